"""Where the rows of a table lie: one directory per value of each partition column, and in it files whose names say who wrote them.

    topic=orders/date=2026-11-15/6f2c….00000042.00003-17.0.parquet
    └ partition columns, as Hive writes them    └ query . batch . task-attempt . running number

Two attempts of a task, two runs of a batch and two queries never choose the same name, so a file is written once and never changed.
Names are for people; what belongs to a table is said by its log alone.
Not here: the files themselves (staging.py), and which of them count (parquet_table.py, delta_table.py).
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from penstock.pipeline.complaints import PipelineComplaint

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # What Hive, Spark, Arrow and Delta write for a partition value that is null.
WHOLE_DIRECTORY = "data"  # For a table without partition columns: a directory can be replaced as a whole, the table's root cannot.
SUFFIX = ".parquet"

_UNSAFE_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")

Partition = tuple[tuple[str, str | None], ...]  # (column, value as text) in the order of the partition columns.


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file that is wholly written and belongs to no table yet."""

    path: str  # Below the directory of the table's files; parts are divided by '/'.
    partition: Partition
    rows: int
    size_bytes: int
    stats: str = ""  # Smallest and largest values in Delta's JSON; readers skip files by them.


def directory_of(partition: Partition) -> str:
    parts = [f"{column}={NULL_PARTITION if value is None else quote(value, safe=' -_.')}" for column, value in partition]
    return "/".join(parts) or WHOLE_DIRECTORY


def partition_of(directory: str) -> Partition:
    """The inverse of `directory_of`."""
    if directory == WHOLE_DIRECTORY:
        return ()
    found = (part.partition("=") for part in directory.split("/"))
    return tuple((column, None if value == NULL_PARTITION else unquote(value)) for column, _, value in found)


class FileNames:
    """Names for the files of one attempt of one task."""

    def __init__(self, *, query: str, batch: int, task: int, attempt: int) -> None:
        token = secrets.token_hex(4)  # Spark counts attempts anew when a query is started again.
        self._prefix = f"{_UNSAFE_IN_NAMES.sub('_', query)}.{batch:08d}.{task:05d}-{attempt}-{token}"
        self._count = 0

    def next(self, partition: Partition) -> str:
        name = f"{directory_of(partition)}/{self._prefix}.{self._count}{SUFFIX}"
        self._count += 1
        return name


def check_partition_columns(columns: Sequence[str], schema: Mapping[str, str]) -> None:
    """Refuses columns that a directory cannot be named after; `schema` is each column's type as Spark names it."""
    fit = ("string", "date", "int", "bigint", "smallint", "tinyint", "boolean")
    for column in columns:
        if column not in schema:
            raise PipelineComplaint(
                f"the table is partitioned by {column!r}, which the frame does not have", f"its columns are {', '.join(schema)}"
            )
        if schema[column] not in fit:
            raise PipelineComplaint(
                f"the table is partitioned by {column!r}, a column of type {schema[column]}", f"take one of type {', '.join(fit)}"
            )
    if columns and len(columns) == len(schema):
        raise PipelineComplaint("every column of the frame is a partition column", "leave at least one that goes into the files")
