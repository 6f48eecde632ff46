"""Small files made into large ones: which, decided purely, and how, without holding more than a row group.

A batch leaves at least one file per partition, whatever its size, and readers pay for every file. Neighbours (files of one partition in
the order in which they were added) are joined until the wanted size is reached; what is large already is left alone, so each row is
written again a bounded number of times. Rows keep their order.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.lake.layout import StagedFile

SMALL_SHARE = 0.5  # Of the wanted size; a file above it would grow beyond the wanted size with most neighbours.
JOIN_MIN = 2


def groups_to_join(files: Iterable[StagedFile], *, file_bytes: int, at_least: int = JOIN_MIN) -> list[list[StagedFile]]:
    """Groups of small files of one partition, each of which becomes one file; groups of fewer than `at_least` files are left for later."""
    small: dict[object, list[StagedFile]] = {}
    for file in files:
        if file.size_bytes < file_bytes * SMALL_SHARE:
            small.setdefault(file.partition, []).append(file)
    return [group for neighbours in small.values() for group in _packed(neighbours, file_bytes) if len(group) >= max(JOIN_MIN, at_least)]


def _packed(files: Sequence[StagedFile], file_bytes: int) -> list[list[StagedFile]]:
    groups: list[list[StagedFile]] = []
    size = file_bytes
    for file in files:
        if size + file.size_bytes > file_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size_bytes
    return groups


def rows_of(paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """The rows of several files, one after the other."""
    for path in paths:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches()
