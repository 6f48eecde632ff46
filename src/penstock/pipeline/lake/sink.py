"""What the format "penstock-lake" does: any frame into a table of files, each batch exactly once.

    frame.writeStream.format("penstock-lake").option("path", "/data/orders").option("partitionBy", "topic,date").start()

| option | what it means | default |
|---|---|---|
| `path` | where the table is | must be given |
| `tableFormat` | parquet or delta | parquet |
| `partitionBy` | columns that become directories, commas between | none |
| `fileBytes` | the size at which a file is finished, and to which small ones are joined | 128 MiB |
| `compactEvery` | join small files and clean after so many batches; 0 never does | 0 |
| `retain` | how long files that no longer count stay | 24h |
| `writeId` | for `frame.write`: a name under which these rows count once, however often they are written | a fresh one each time |

A task stages its rows and tells the files; the driver makes those of the winning attempts count, in one step that is keyed (query, batch).
A batch that a restarted query brings again is recognised and dropped. A frame written at once (`frame.write`) is one batch.
Joining happens in the driver's process after the commit. Where it fails the batch counts all the same; it is logged and tried again later.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.datasource import settle_in_worker
from penstock.pipeline.lake.layout import FileNames, StagedFile, check_partition_columns
from penstock.pipeline.lake.staging import FILE_BYTES, discard, stage
from penstock.pipeline.lake.table import FORMATS, Table, landed_after_all, open_table, retain_of
from penstock.pipeline.options import Options, WrongOption

FILE_BYTES_MIN = 64 * 1024
OPTIONS = ("path", "tableFormat", "partitionBy", "fileBytes", "compactEvery", "retain", "writeId")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a task and the driver must know of the table. It travels to the tasks."""

    path: str
    format: str
    partition_by: tuple[str, ...]
    file_bytes: int
    compact_every: int
    retain_s: float
    write_id: str | None

    def table(self) -> Table:
        return open_table(self.path, self.format, partition_by=self.partition_by)


class Staged(WriterCommitMessage):
    """What a task says to the driver."""

    def __init__(self, query: str, files: Sequence[StagedFile]) -> None:
        self.query = query
        self.files = tuple(files)


def read_plan(given: Mapping[str, str]) -> Plan:
    options = Options(given)
    options.refuse_misspelled(OPTIONS, of_whom="the lake")
    path = options.text("path", None)
    if not path:
        raise WrongOption("the option path is missing", "say where the table is: .option('path', '/data/orders')")
    partition_by = tuple(name.strip() for name in options.text("partitionBy", "").split(",") if name.strip())
    return Plan(
        path=path,
        format=options.choice("tableFormat", "parquet", FORMATS),
        partition_by=partition_by,
        file_bytes=options.whole("fileBytes", FILE_BYTES, low=FILE_BYTES_MIN),
        compact_every=options.whole("compactEvery", 0),
        retain_s=retain_of(options),
        write_id=options.text("writeId", None),
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """As rows are kept: times in UTC, and every column may be null, so that a frame's own promises do not become the table's."""
    made = to_arrow_schema(schema, timezone="UTC")
    return pa.schema([pa.field(column.name, column.type) for column in made])


class _TwoPhases:
    """What writing a stream and writing a frame at once have in common."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.plan = read_plan(options)
        check_partition_columns(self.plan.partition_by, {column.name: column.dataType.simpleString() for column in schema.fields})
        self.schema = arrow_schema(schema)
        table = self.plan.table()
        table.check_schema(self.schema)
        self.directory = table.directory

    def stage(self, batches: Iterator[pa.RecordBatch], *, query: str, batch: int) -> Staged:
        task = TaskContext.get()
        assert task is not None, "rows are staged in tasks"
        names = FileNames(query=query, batch=batch, task=task.partitionId(), attempt=task.attemptNumber())
        rows = (batch_of_rows.cast(self.schema) for batch_of_rows in batches)
        plan = self.plan
        files = stage(rows, self.directory, partition_by=plan.partition_by, names=names, file_bytes=plan.file_bytes)
        return Staged(query, files)

    def publish(self, messages: Sequence[Any], *, query: str, batch: int) -> None:
        files = [file for message in messages if isinstance(message, Staged) for file in message.files]
        table = self.plan.table()
        if not table.commit(files, schema=self.schema, marks={query: batch}):
            landed_after_all(table, files)
        if self.plan.compact_every and batch % self.plan.compact_every == self.plan.compact_every - 1:
            self._tidy(table)

    def withdraw(self, messages: Sequence[Any]) -> None:
        told = [message for message in messages if isinstance(message, Staged)]
        discard([file.path for message in told for file in message.files], self.directory)

    def _tidy(self, table: Table) -> None:
        try:
            table.compact(file_bytes=self.plan.file_bytes)
            table.clean(retain_s=self.plan.retain_s)
        except Exception as failure:
            _log.warning("small files of %s could not be joined or cleaned, and will be later: %s", table.path, failure)


class LakeStreamWriter(_TwoPhases, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        task = TaskContext.get()
        assert task is not None, "rows are staged in tasks"
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise PipelineComplaint("Spark did not tell the task which query and batch it belongs to", "use a version of Spark from 4.1 on")
        return self.stage(iterator, query=query, batch=int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        told = [message for message in messages if isinstance(message, Staged) and message.files]
        if told:  # A batch without rows leaves no trace; done again, it has none either.
            self.publish(told, query=told[0].query, batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Also called after a commit that failed, which may have counted all the same: only files that do not count are withdrawn."""
        told = [message for message in messages if isinstance(message, Staged)]
        stands = self.plan.table().mark(told[0].query) if told else None
        if stands is None or stands < batchId:
            self.withdraw(messages)


class LakeBatchWriter(_TwoPhases, DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._query = self.plan.write_id or f"write-{uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self.stage(iterator, query=self._query, batch=0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.publish(messages, query=self._query, batch=0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.plan.table().mark(self._query) is None:
            self.withdraw(messages)


settle_in_worker()
