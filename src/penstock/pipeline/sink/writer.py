"""The sink as Spark sees it: `df.write.format("penstock")` and `df.writeStream.format("penstock")`.

Spark makes a writer on the driver for each batch, sends it to the tasks, and makes another for the commit; none of them lives longer than
that. What a task must know of the query it finds among the local properties of its thread: the query's id and the batch's number, and the
run, which is the name of the job group that Spark gives to every start of a query.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.pipeline.brokers import Broker, brokers, contact
from penstock.pipeline.options import WrongOption
from penstock.pipeline.sink.committing import Report
from penstock.pipeline.sink.failures import SinkFailure
from penstock.pipeline.sink.names import Place
from penstock.pipeline.sink.options import sink_options
from penstock.pipeline.sink.runs import ACTION, Work
from penstock.pipeline.sink.schema import check_schema
from penstock.pipeline.sink.tasks import abort_batch, commit_batch, write_task

QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"


@dataclass
class Told(WriterCommitMessage):
    """A task's report on its way to the driver."""

    report: Report


class _Sink:
    """What both kinds of writer have. It travels to the tasks by pickle, and so holds plain values only."""

    def __init__(self, options: dict[str, str], schema: StructType, *, is_stream: bool) -> None:
        self._contact = contact(options)
        self._options = sink_options(options, is_stream=is_stream)
        check_schema(schema, self._options)
        self._nonce = uuid4().hex  # Of this writer: where nothing else tells two starts apart.

    @property
    def _broker(self) -> Broker:
        return brokers(self._contact)

    def _write(self, work: Work, context: TaskContext, batches: Iterator[pa.RecordBatch]) -> Told:
        place = Place(context.partitionId(), context.attemptNumber())
        return Told(write_task(self._broker, self._options, work, place, batches))

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit_batch(self._broker, self._options, _reports(messages))

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        abort_batch(self._broker, self._options, _reports(messages))


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    def __init__(self, options: dict[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, is_stream=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise SinkFailure(
                "Spark does not say which batch of which query this task writes, so that it cannot count once",
                "report it with the version of Spark; deliver=at-least-once writes without",
            )
        run = context.getLocalProperty(RUN_ID) or self._nonce
        return self._write(Work(self._options.sink_id or query, int(batch), run, query), context, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


class BatchWriter(_Sink, DataSourceArrowWriter):
    def __init__(self, options: dict[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise WrongOption('topics cannot be overwritten: mode("overwrite") was asked for', 'write mode("append")')
        super().__init__(options, schema, is_stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        sink, number = self._options.sink_id, self._options.batch_id
        work = Work(ACTION + self._nonce, 0, self._nonce) if sink is None else Work(sink, number or 0, self._nonce)
        return self._write(work, _context(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SinkFailure("the sink's writer was called outside of a Spark task")
    return context


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[Report]:
    return [message.report for message in messages if isinstance(message, Told)]
