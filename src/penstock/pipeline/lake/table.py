"""What a table of the lake can do, whatever its format: take staged files in one step, tell what it holds, join small files, remove waste.

`open_table(path, format)` gives one. Both formats hold the same rows in the same layout and keep the same promises:

| | parquet | delta |
|---|---|---|
| what counts is said by | a log of our own, `_penstock/log` | Delta's log, `_delta_log` |
| a batch counts once by | a mark (query, batch) in the log, beside its files | an app transaction (query, batch), beside its files |
| who lists the directory sees | the tree, which follows the log | also files that no longer count; read it as Delta |
| lives on | a file system with hard links that every executor sees | what `deltalake` and Arrow both write to |
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.lake.layout import Partition, StagedFile
from penstock.pipeline.lake.staging import discard
from penstock.pipeline.options import Options, WrongOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "delta")
RETAIN_S = 24 * 3600.0  # How long a file that no longer counts stays for those who still read it, and how old an orphan must be.
RETAIN_S_MIN = 3600.0  # A file whose batch is not committed yet looks like an orphan, so that batches must be shorter than this.


NO_MARKS: Mapping[str, int | None] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files that made up a table at one moment. They stay where they are for as long as `clean` retains them."""

    directory: str
    files: tuple[StagedFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def locations(self) -> list[str]:
        return [f"{self.directory}/{file.path}" for file in self.files]


@dataclass(frozen=True, slots=True)
class Joined:
    """What a compaction did."""

    files_before: int = 0
    files_after: int = 0


class Table(Protocol):
    path: str
    format: str

    @property
    def directory(self) -> str:
        """Where files are staged, and what their paths are relative to."""

    def exists(self) -> bool: ...

    def mark(self, name: str) -> int | None:
        """The number that was last committed under this name."""

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuses rows of another shape than those that the table holds."""

    def commit(
        self,
        files: Sequence[StagedFile],
        *,
        schema: pa.Schema,
        marks: Mapping[str, int],
        replace: Partition | None = None,
        seen: Mapping[str, int | None] = NO_MARKS,
    ) -> bool:
        """Adds the files, in one step with the marks; False where a mark is not above the one that stands, and then nothing is changed.

        `replace` names a partition whose files until now no longer count. `seen` are marks that must still stand as they did when the files
        were planned: who replaces rows must not replace those of another that he has not seen.
        """

    def snapshot(self, partition: Partition | None = None) -> Snapshot: ...

    def compact(self, *, file_bytes: int) -> Joined: ...

    def clean(self, *, retain_s: float = RETAIN_S) -> int:
        """Deletes files that have not counted for that long, or never did and are that old. Tells how many.

        Less than a batch takes is for tables that nobody writes to.
        """


def retain_of(options: Options) -> float:
    """The option `retain`, refused where it would take files from under those who write."""
    given = options.seconds("retain", RETAIN_S)
    if given < RETAIN_S_MIN:
        raise WrongOption(f"retain is {options.text('retain', '')}", "write 1h or more: batches that are being written need their files")
    return given


def open_table(path: str, format: str, *, partition_by: Sequence[str] = ()) -> Table:
    if format == "parquet":
        from penstock.pipeline.lake.parquet_table import ParquetTable

        return ParquetTable(path)
    if format == "delta":
        from penstock.pipeline.lake.delta_table import LakeDelta

        return LakeDelta(path, partition_by=partition_by)
    raise PipelineComplaint(f"there is no table format {format!r}", f"take {' or '.join(FORMATS)}")


def format_at(path: str) -> str:
    """What the table that stands there was written as."""
    if os.path.isdir(os.path.join(path, "_penstock", "log")):
        return "parquet"
    from penstock.pipeline.lake.delta_table import LakeDelta

    if LakeDelta(path).exists():
        return "delta"
    raise PipelineComplaint(f"there is no archive at {path}", "give the path that `archive` wrote to; other tables go by from-format")


def frame_of(spark: "SparkSession", snapshot: Snapshot) -> "DataFrame":
    """The rows of a snapshot with their partition columns; writers may go on meanwhile."""
    if not snapshot.files:
        raise PipelineComplaint(f"the table at {snapshot.directory} is empty", "write to it first")
    return spark.read.option("basePath", snapshot.directory).parquet(*snapshot.locations())


def may_commit(standing: Callable[[str], int | None], marks: Mapping[str, int], seen: Mapping[str, int | None]) -> bool:
    """Whether every mark would grow, and those that were seen stand as they did."""
    for name, number in marks.items():
        stands = standing(name)
        if stands is not None and number <= stands:
            return False
    return all(standing(name) == number for name, number in seen.items())


def landed_after_all(table: Table, files: Sequence[StagedFile]) -> bool:
    """Whether a commit that was refused is the very one that was made: an answer can be lost after the step was taken.

    Of the files only those that do not count are deleted. They are a batch's rows once more, or those of whoever came too late.
    """
    counting = {file.path for file in table.snapshot().files}
    discard([file.path for file in files if file.path not in counting], table.directory)
    return any(file.path in counting for file in files)


def describe(schema: pa.Schema) -> str:
    """Names and types of all columns, in a form that can be kept and compared."""
    return ", ".join(f"{column.name} {column.type}" for column in schema)


def check_same_schema(path: str, held: str, given: str) -> None:
    """Columns of one table never change: a reader of an old file and one of a new file must get the same."""
    if held and held != given:
        raise PipelineComplaint(
            f"the rows have other columns than the table at {path}\n  table: {held}\n  rows:  {given}",
            "write rows of the same shape, or another table",
        )
