"""A query as Spark runs it, without Spark: a checkpoint, batches with numbers, tasks with attempts, a commit or an abort by the driver.

Every task and every call of the driver is a process of its own, forked for it as Spark's daemon does, so that each can be killed for real
(PENSTOCK_SINK_EXIT_AT) while this one, the engine, keeps count. What Spark promises is kept: a batch that was not committed in the
checkpoint comes again with its number and its rows, and `commit` sees one report for each task.
"""

import asyncio
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa

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
        run = str(uuid4())
        for number, tasks in enumerate(batches):
            if (self.checkpoint / f"commit-{number}").exists():
                continue
            self.run_batch(number, run, tasks, exit_at=exit_at if number == in_batch else None)

    def run_batch(self, number: int, run: str, tasks: Sequence[Rows], *, exit_at: Step | None = None) -> None:
        reports = [self.task(number, run, index, rows, exit_at=exit_at) for index, rows in enumerate(tasks)]
        try:
            self.commit(reports, exit_at=exit_at)
        except Killed:
            raise
        except Exception:
            self.abort(reports)
            raise
        (self.checkpoint / f"commit-{number}").touch()

    def task(self, number: int, run: str, index: int, rows: Rows, *, attempt: int = 0, exit_at: Step | None = None) -> Report:
        work = Work(self.sink, number, run, self.id)
        batches = [table(rows)] if rows else []
        return in_child(lambda: write_task(self.broker(), self.options, work, Place(index, attempt), iter(batches)), exit_at)

    def commit(self, reports: Sequence[Report], *, exit_at: Step | None = None) -> None:
        in_child(lambda: commit_batch(self.broker(), self.options, reports), exit_at)

    def abort(self, reports: Sequence[Report], *, exit_at: Step | None = None) -> None:
        in_child(lambda: abort_batch(self.broker(), self.options, reports), exit_at)

    def broker(self) -> Broker:
        return brokers(self.given)

    # What readers see.

    def records(self, topic: str, *, is_committed_only: bool = True) -> list[Any]:
        """Everything that is there now, by partition and offset."""

        async def read(client: Client) -> list[Any]:
            await until_told(client)
            count = await client.partition_count(topic)
            starts = {TopicPartition(topic, index): FROM_EARLIEST for index in range(count)}
            settings = ReaderSettings(fetch=FetchLimits(wait_ms=50, is_committed_only=is_committed_only))
            async with Reader(client, starts, settings) as reader:
                return sorted([record async for record in reader], key=lambda record: (record.partition, record.offset))

        return in_child(lambda: self.broker().run(read(self.broker().client)))

    def values(self, topic: str) -> list[str]:
        return sorted((record.value or b"").decode() for record in self.records(topic))

    def held_back(self, topic: str) -> int:
        """How many offsets readers of committed records have to wait for."""
        return int(self.call(lambda client: _held_back(client, topic)))

    def until_released(self, topic: str) -> None:
        async def wait(client: Client) -> None:
            async with asyncio.timeout(30):
                while await _held_back(client, topic):
                    await asyncio.sleep(0.05)

        self.call(wait)

    def call(self, ask: Callable[[Client], Any]) -> Any:
        """Anything else, asked by a client of its own."""
        return in_child(lambda: self.broker().run(ask(self.broker().client)))


async def until_told(client: Client) -> None:
    """Until no transaction is about to end: coordinators answer before every partition has heard of it."""
    ending = Wanted(states=("PrepareCommit", "PrepareAbort"))
    while await list_transactions(client.router, ending, client.router.deadline(10)):
        await asyncio.sleep(0.005)


async def _held_back(client: Client, topic: str) -> int:
    await until_told(client)
    wishes = {TopicPartition(topic, index): LATEST for index in range(await client.partition_count(topic))}
    ends = await client.list_offsets(wishes)
    stable = await client.list_offsets(wishes, is_committed_only=True)
    return sum(ends[where].offset - stable[where].offset for where in wishes)


def rows_of(batch: int, task: int, count: int = 3) -> Rows:
    return [{"key": f"{batch}-{task}-{row}".encode(), "value": f"batch {batch} task {task} row {row}".encode()} for row in range(count)]


def batches_of(batches: int, tasks: int = 2, count: int = 3) -> list[list[Rows]]:
    return [[rows_of(batch, task, count) for task in range(tasks)] for batch in range(batches)]


def all_values(batches: Sequence[Sequence[Rows]]) -> list[str]:
    return sorted(row["value"].decode() for tasks in batches for rows in tasks for row in rows)
