"""Rows as Arrow batches into Parquet files, in the task that has them: the first of the two phases of every write to a table.

Files are complete and flushed to the disk before `stage` returns, but no table names them yet: a task that dies, or whose batch is never
committed, leaves files that nobody reads, and `clean` of the table removes them.
One file per partition is open at a time, at most `OPEN_FILES_MAX` in all, and none grows far beyond the wanted size, so memory is bounded
by row groups that are not yet written. Rows keep their order within a partition.
"""

import functools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.lake.layout import FileNames, Partition, StagedFile

OPEN_FILES_MAX = 32  # Beyond it the file that was written to longest ago is finished; its partition gets another when it comes again.
ROW_GROUP_BYTES = 16 * 2**20  # Held in memory per open file until it is written.
FILE_BYTES = 128 * 2**20  # Large enough that opening costs little beside reading, small enough for one task.
CODEC = "zstd"

# Columns whose smallest and largest value go into the log: short ones, by which files can be skipped.
_COUNTED = (pa.types.is_integer, pa.types.is_date)


def open_directory(location: str) -> tuple[fs.FileSystem, str]:
    """A file system and the path on it: a plain path is this machine's, s3://, gs:// and hdfs:// are Arrow's."""
    if "://" in location:
        filesystem, path = fs.FileSystem.from_uri(location)
        return filesystem, path.rstrip("/")
    return fs.LocalFileSystem(), os.path.abspath(location)


def stage(
    batches: Iterable[pa.RecordBatch],
    directory: str,
    *,
    partition_by: Sequence[str] = (),
    within: Partition = (),
    names: FileNames,
    file_bytes: int = FILE_BYTES,
) -> list[StagedFile]:
    """Writes the rows below `directory` and tells the files.

    Columns of `partition_by` become directories. `within` is the partition of rows that have no such columns any more.
    """
    writers = _Writers(directory, names, file_bytes)
    try:
        for batch in batches:
            for partition, rows in split(batch, partition_by):
                writers.write(within + partition, rows)
        return writers.finish()
    except BaseException:
        writers.give_up()
        raise


def discard(paths: Iterable[str], directory: str) -> None:
    """Deletes staged files that will not be committed. Files that are gone already are no matter."""
    filesystem, root = open_directory(directory)
    for path in paths:
        try:
            filesystem.delete_file(f"{root}/{path}")
        except FileNotFoundError:
            continue


def split(batch: pa.RecordBatch, partition_by: Sequence[str]) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """The rows of each partition, in their order, without the partition columns."""
    if batch.num_rows == 0:
        return
    kept = [name for name in batch.schema.names if name not in partition_by]
    if not partition_by:
        yield (), batch
        return
    texts = {column: pc.cast(batch.column(column), pa.string()) for column in partition_by}
    for column in partition_by:
        if pa.types.is_date(batch.column(column).type):
            _check_dates(column, texts[column])
    found = pa.table(texts).group_by(list(partition_by), use_threads=False).aggregate([]).to_pylist()
    columns = batch.select(kept)
    for values in found:
        partition = tuple((column, values[column]) for column in partition_by)
        if len(found) == 1:  # The common case: one topic, one day. Nothing is copied.
            yield partition, columns
        else:
            yield partition, columns.filter(_belongs(texts, partition))


def _check_dates(column: str, texts: pa.Array) -> None:
    """Refuses dates whose text is none: one in the log of a table, and nobody can open it again. Other types have no such values."""
    for text in pc.unique(texts).to_pylist():
        try:
            if text is not None:
                date.fromisoformat(text)
        except ValueError:
            raise PipelineComplaint(
                f"the rows have a date in {column!r} that no directory can be named after: {text}", "write dates of the years 1 to 9999"
            ) from None


def _belongs(texts: dict[str, pa.Array], partition: Partition) -> pa.Array:
    masks = (pc.is_null(texts[name]) if value is None else pc.fill_null(pc.equal(texts[name], value), False) for name, value in partition)
    return functools.reduce(pc.and_, masks)


@dataclass(slots=True)
class _Open:
    path: str
    partition: Partition
    stream: Any
    writer: pq.ParquetWriter
    waiting: list[pa.RecordBatch]
    waiting_bytes: int = 0
    rows: int = 0
    groups_bytes: int = 0


class _Writers:
    """The files of one task, open and finished."""

    def __init__(self, directory: str, names: FileNames, file_bytes: int) -> None:
        self._directory = directory
        self._filesystem, self._root = open_directory(directory)
        self._names = names
        self._file_bytes = file_bytes
        self._open: dict[Partition, _Open] = {}  # In the order of last use.
        self._finished: list[StagedFile] = []
        self._begun: list[str] = []  # Every path, for the case that nothing of it may stay.

    def write(self, partition: Partition, rows: pa.RecordBatch) -> None:
        file = self._open.pop(partition, None) or self._begin(partition, rows.schema)
        self._open[partition] = file
        file.waiting.append(rows)
        file.waiting_bytes += rows.nbytes
        if file.waiting_bytes >= min(ROW_GROUP_BYTES, self._file_bytes):
            _write_group(file)
        if file.groups_bytes >= self._file_bytes:
            self._end(self._open.pop(partition))
        if len(self._open) > OPEN_FILES_MAX:
            self._end(self._open.pop(next(iter(self._open))))

    def finish(self) -> list[StagedFile]:
        while self._open:
            self._end(self._open.pop(next(iter(self._open))))
        return self._finished

    def give_up(self) -> None:
        for file in self._open.values():
            with file.stream, file.writer:
                continue
        discard(self._begun, self._directory)

    def _begin(self, partition: Partition, schema: pa.Schema) -> _Open:
        path = self._names.next(partition)
        full = f"{self._root}/{path}"
        self._filesystem.create_dir(full.rpartition("/")[0], recursive=True)
        self._begun.append(path)
        stream = self._filesystem.open_output_stream(full)
        return _Open(path, partition, stream, pq.ParquetWriter(stream, schema, compression=CODEC), [])

    def _end(self, file: _Open) -> None:
        _write_group(file)
        file.writer.close()
        file.stream.close()
        full = f"{self._root}/{file.path}"
        if isinstance(self._filesystem, fs.LocalFileSystem):
            flush(full)
        size = self._filesystem.get_file_info(full).size
        metadata = pq.read_metadata(full, filesystem=self._filesystem)
        self._finished.append(StagedFile(file.path, file.partition, file.rows, size, stats_of(metadata)))


def _write_group(file: _Open) -> None:
    if not file.waiting:
        return
    rows = pa.Table.from_batches(file.waiting)
    file.writer.write_table(rows, row_group_size=max(1, rows.num_rows))
    file.rows += rows.num_rows
    file.groups_bytes = file.stream.tell()
    file.waiting, file.waiting_bytes = [], 0


def flush(path: str) -> None:
    """To the disk, with the entry in its directory."""
    for name in (path, os.path.dirname(path)):
        handle = os.open(name, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def stats_of(metadata: pq.FileMetaData) -> str:
    """Rows, smallest and largest values of a file, in the words of Delta's log, from the footer."""
    least: dict[str, object] = {}
    most: dict[str, object] = {}
    nulls: dict[str, int] = {}
    schema = metadata.schema.to_arrow_schema()
    for at in range(metadata.num_columns):
        name = metadata.schema.column(at).path
        if name not in schema.names or not any(is_counted(schema.field(name).type) for is_counted in _COUNTED):
            continue
        found = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
        if any(one is None or not one.has_min_max for one in found) or not found:
            continue
        least[name], most[name] = _as_json(min(one.min for one in found)), _as_json(max(one.max for one in found))
        if all(one.has_null_count for one in found):
            nulls[name] = sum(one.null_count for one in found)
    return json.dumps({"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls})


def _as_json(value: Any) -> object:
    return value if isinstance(value, int) else str(value)
