"""A query as Spark runs it, without Spark: a checkpoint, batches with numbers, tasks with attempts, a commit or an abort by the driver.

A batch in which a process is to end has a process for each task and for each call of the driver, forked for it as Spark's daemon does, so
that each can be killed for real (PENSTOCK_SINK_EXIT_AT) while this one, the engine, keeps count. Other batches share one process, as tasks
do whose worker Spark uses again. What Spark promises is kept: a batch that was not committed in the checkpoint comes again with its number
and its rows, and `commit` sees one report for each task.
"""

import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
from waiting import PATIENCE_S, until

from penstock.peers.client import Client
from penstock.peers.fetching import FetchLimits
from penstock.peers.offsets import LATEST
from penstock.peers.positions import FROM_EARLIEST
from penstock.peers.reader import Reader, ReaderSettings
from penstock.peers.transaction_admin import Wanted, list_transactions
from penstock.pipeline.brokers import Broker, brokers
from penstock.pipeline.sink.committing import Report
from penstock.pipeline.sink.names import Place
from penstock.pipeline.sink.options import sink_options
from penstock.pipeline.sink.runs import Work
from penstock.pipeline.sink.steps import EXIT_AT, EXIT_CODE, Step
from penstock.pipeline.sink.tasks import abort_batch, commit_batch, write_task
from penstock.vocabulary import TopicPartition

T = TypeVar("T")

Rows = Sequence[Mapping[str, Any]]
Ending = Callable[[Sequence[Report]], None]


class Killed(Exception):
    """A process of the query ended at the step that it was told to."""


def in_child(work: Callable[[], T], exit_at: Step | None = None) -> T:
    """Runs it in a forked process; gives back or raises what it does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        if exit_at is not None:
            os.environ[EXIT_AT] = exit_at.value
        told = _told_by(work)
        with os.fdopen(writing, "wb") as out:
            out.write(told)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == EXIT_CODE:
        raise Killed
    assert code == 0, f"a process of the query ended with {code}"
    result, raised, imported = pickle.loads(told)
    for name in imported:  # So that the next child need not: schemas are loaded when they are needed.
        import_module(name)
    if raised is not None:
        raise raised
    return result  # type: ignore[no-any-return]


def _told_by(work: Callable[[], Any]) -> bytes:
    before, result, raised = set(sys.modules), None, None
    try:
        result = work()
    except BaseException as failure:
        raised = failure
        try:
            pickle.loads(pickle.dumps(failure))
        except Exception:  # Some cannot be taken apart and put together again.
            raised = RuntimeError(f"{type(failure).__name__}: {failure}")
    imported = [name for name in sys.modules if name not in before and name.startswith(("kio.", "penstock.", "uvloop", "asyncio"))]
    return pickle.dumps((result, raised, imported))


def table(rows: Rows) -> pa.RecordBatch:
    """Made before a process is forked: Arrow imports Pandas for it."""
    return pa.RecordBatch.from_pylist([dict(row) for row in rows])


class Query:
    """One checkpoint. `start` is a run of it, from the first batch that is not committed."""

    def __init__(self, bootstrap: str, topic: str | None, checkpoint: Path, **options: object) -> None:
        given = {"kafka.bootstrap.servers": bootstrap, **{name.replace("__", "."): str(value) for name, value in options.items()}}
        if topic is not None:
            given["topic"] = topic
        self.given = given
        self.options = sink_options(given, is_stream=True)
        self.checkpoint = checkpoint
        self.checkpoint.mkdir(parents=True, exist_ok=True)

    @property
    def id(self) -> str:
        file = self.checkpoint / "metadata"
        if not file.exists():
            file.write_text(str(uuid4()))
        return file.read_text()

    @property
    def sink(self) -> str:
        return self.options.sink_id or self.id

    def start(self, batches: Sequence[Sequence[Rows]], *, exit_at: Step | None = None, in_batch: int = -1) -> None:
        """`batches` has the rows of each task of each batch. With `exit_at` whoever comes to that step in that batch takes all with it."""
        run, left = str(uuid4()), [number for number in range(len(batches)) if not (self.checkpoint / f"commit-{number}").exists()]
        tables = {number: [table(rows) for rows in batches[number]] for number in left}

        def undisturbed(numbers: Sequence[int]) -> None:
            for number in numbers:
                reports = [self._written(number, run, index, rows) for index, rows in enumerate(tables[number])]
                self._end_batch(number, reports, self._commit, self._abort)

        if exit_at is None:
            in_child(lambda: undisturbed(left))
            return
        if before := [number for number in left if number < in_batch]:
            in_child(lambda: undisturbed(before))
        reports = [self.task(in_batch, run, index, rows, exit_at=exit_at) for index, rows in enumerate(batches[in_batch])]
        self._end_batch(in_batch, reports, partial(self.commit, exit_at=exit_at), self.abort)
        raise AssertionError(f"no process of batch {in_batch} came to the step {exit_at.value}")

    def task(self, number: int, run: str, index: int, rows: Rows, *, attempt: int = 0, exit_at: Step | None = None) -> Report:
        made = table(rows)
        return in_child(lambda: self._written(number, run, index, made, attempt), exit_at)

    def commit(self, reports: Sequence[Report], *, exit_at: Step | None = None) -> None:
        in_child(lambda: self._commit(reports), exit_at)

    def abort(self, reports: Sequence[Report], *, exit_at: Step | None = None) -> None:
        in_child(lambda: self._abort(reports), exit_at)

    def _end_batch(self, number: int, reports: Sequence[Report], commit: Ending, abort: Ending) -> None:
        try:
            commit(reports)
        except Killed:
            raise
        except Exception:
            abort(reports)
            raise
        (self.checkpoint / f"commit-{number}").touch()

    def _written(self, number: int, run: str, index: int, rows: pa.RecordBatch, attempt: int = 0) -> Report:
        work, batches = Work(self.sink, number, run, self.id), [rows] if rows.num_rows else []
        return write_task(self.broker(), self.options, work, Place(index, attempt), iter(batches))

    def _commit(self, reports: Sequence[Report]) -> None:
        commit_batch(self.broker(), self.options, reports)

    def _abort(self, reports: Sequence[Report]) -> None:
        abort_batch(self.broker(), self.options, reports)

    def broker(self) -> Broker:
        return brokers(self.given)

    # What readers see.

    def records(self, topic: str, *, is_committed_only: bool = True) -> list[Any]:
        """Everything that is there now, by partition and offset."""

        async def read(client: Client) -> list[Any]:
            count = await client.partition_count(topic)
            starts = {TopicPartition(topic, index): FROM_EARLIEST for index in range(count)}
            settings = ReaderSettings(fetch=FetchLimits(wait_ms=50, is_committed_only=is_committed_only))
            async with Reader(client, starts, settings) as reader:
                return sorted([record async for record in reader], key=lambda record: (record.partition, record.offset))

        def read_when_told() -> list[Any]:
            until_told(self.broker())
            return self.broker().run(read(self.broker().client))

        return in_child(read_when_told)

    def values(self, topic: str) -> list[str]:
        return sorted((record.value or b"").decode() for record in self.records(topic))

    def held_back(self, topic: str) -> int:
        """How many offsets readers of committed records have to wait for."""
        return in_child(lambda: _held_back(self.broker(), topic))

    def until_released(self, topic: str) -> None:
        in_child(lambda: until(lambda: _held_back(self.broker(), topic) == 0, f"no transaction holds readers of {topic} back"))

    def call(self, ask: Callable[[Client], Any]) -> Any:
        """Anything else, asked by a client of its own."""
        return in_child(lambda: self.broker().run(ask(self.broker().client)))


def until_told(broker: Broker) -> None:
    """Waits until no transaction is about to end: coordinators answer before every partition has heard of it."""
    ending, router = Wanted(states=("PrepareCommit", "PrepareAbort")), broker.client.router
    until(
        lambda: not broker.run(list_transactions(router, ending, router.deadline(PATIENCE_S))),
        "every partition knows how transactions ended",
    )


def _held_back(broker: Broker, topic: str) -> int:
    async def ask(client: Client) -> int:
        wishes = {TopicPartition(topic, index): LATEST for index in range(await client.partition_count(topic))}
        ends = await client.list_offsets(wishes)
        stable = await client.list_offsets(wishes, is_committed_only=True)
        return sum(ends[where].offset - stable[where].offset for where in wishes)

    until_told(broker)
    return broker.run(ask(broker.client))


def rows_of(batch: int, task: int, count: int = 3) -> Rows:
    return [{"key": f"{batch}-{task}-{row}".encode(), "value": f"batch {batch} task {task} row {row}".encode()} for row in range(count)]


def batches_of(batches: int, tasks: int = 2, count: int = 3) -> list[list[Rows]]:
    return [[rows_of(batch, task, count) for task in range(tasks)] for batch in range(batches)]


def all_values(batches: Sequence[Sequence[Rows]]) -> list[str]:
    return sorted(row["value"].decode() for tasks in batches for rows in tasks for row in rows)
