"""The ledger: who may append, what a reader makes of it, and how little of it is left after a while."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

pytest.importorskip("pyspark", reason="needs spark: pyspark is not installed")

from peers.scripted import TestEnv
from pipeline.sink.conftest import MakeQuery
from pipeline.sink.small_spark import Killed, Query, all_values, batches_of, in_child, table
from waiting import PATIENCE_S

from penstock.peers.client import Client
from penstock.pipeline.sink.entries import (
    Begun,
    Committed,
    Entries,
    SinkState,
    Token,
    Winner,
    begun_record,
    committed_records,
    ended_records,
)
from penstock.pipeline.sink.failures import SinkFailure
from penstock.pipeline.sink.ledger import Ledger, Superseded
from penstock.pipeline.sink.names import Place, is_task_of, neighbours, task_id
from penstock.pipeline.sink.runs import ACTION, Work
from penstock.pipeline.sink.steps import Step
from penstock.pipeline.sink.tasks import commit_batch, write_task
from penstock.wire.batches import Record, decode_records, encode_batch, read_header

if TYPE_CHECKING:
    from penstock.testing.brokers import Broker

WINNER = Winner("id", 7, 3, "orders", 1, 42)


class Log:
    """Records as a partition would hold them, and what a reader knows who read them all."""

    def __init__(self) -> None:
        self.entries = Entries()
        self.end = 0

    def append(self, records: list[Record], producer: tuple[int, int, int] = (1, 0, 0)) -> None:
        producer_id, epoch, sequence = producer
        batch = encode_batch(records, base_offset=self.end, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        self.entries.replay(read_header(batch), decode_records(batch, bytes_max=1 << 20))
        self.end += len(records)

    @property
    def state(self) -> SinkState:
        return self.entries.states["s"]


def committed(batch: int, run: str = "r") -> Committed:
    return Committed("s", batch, run, "q", (WINNER,), 10)


def test_a_reader_knows_the_last_run_the_last_batch_and_what_to_append_next() -> None:
    log = Log()
    log.append([begun_record(Begun("s", "r"), 0)], (9, 2, 0))
    assert (log.state.run, log.state.token, log.state.last) == ("r", Token(9, 2, 1, 0), None)
    log.append(committed_records(committed(0), None, 0), (9, 2, 1))
    log.append(committed_records(committed(1), 0, 0), (9, 2, 2))
    assert log.state.last == committed(1), "as it was written"
    assert log.state.token == Token(9, 2, 4, 3)


def test_a_run_is_over_when_another_has_begun_and_stays_over() -> None:
    log = Log()
    for number in range(20):
        known = log.entries.states.get("s", SinkState())
        log.append([begun_record(known.next_run("s", f"run {number}"), 0)], (9, number, 0))
    assert log.state.run == "run 19" and not log.state.is_over("run 19")
    assert all(log.state.is_over(f"run {number}") for number in range(3, 19)), "as many as are remembered"


def test_a_record_under_a_producer_id_that_was_replaced_since_does_not_count() -> None:
    """Epochs are used up after 32,767 runs; then the ledger's id gets another producer id, which no leader can compare with the first."""
    log = Log()
    log.append([begun_record(Begun("s", "old"), 0)], (9, 32_766, 0))
    log.append([begun_record(Begun("s", "new", ("old",)), 0)], (10, 0, 0))
    log.append(committed_records(committed(5, "old"), None, 0), (9, 32_766, 1))
    assert log.state.last is None and log.state.token == Token(10, 0, 1, 1)


def test_what_compaction_leaves_means_the_same() -> None:
    """The run of the last batch is gone, replaced by the one that came after it: the batch still counts."""
    log = Log()
    log.append(committed_records(committed(4), None, 0), (9, 2, 17))
    log.append([begun_record(Begun("s", "later", ("r",)), 0)], (9, 3, 0))
    assert log.state.last == committed(4) and log.state.run == "later"


def test_a_write_that_is_over_leaves_nothing() -> None:
    log = Log()
    log.append([begun_record(Begun("s", "r"), 0)], (9, 0, 0))
    log.append(committed_records(committed(0), None, 0), (9, 0, 1))
    log.append(ended_records(committed(0), 0), (9, 0, 2))
    assert "s" not in log.entries.states


def test_a_record_of_a_newer_format_is_refused_and_one_of_somebody_else_ignored() -> None:
    log = Log()
    log.append([Record(b"anything", b"else"), Record(b'["run"]', b"x"), Record(None, b"y")])
    assert log.entries.states == {}
    with pytest.raises(SinkFailure, match=r"format 2; this version knows 1\n  upgrade"):
        log.append([Record(b'["run","s"]', b'{"format":2}')])


def test_names_tell_whose_they_are() -> None:
    assert is_task_of("a", task_id("a", 5, Place(3, 0)))
    assert not is_task_of("a", task_id("a.0", 5, Place(3, 0)))
    assert not is_task_of("a.0", task_id("a", 5, Place(3, 0)))
    assert not is_task_of("a", "penstock-sink.a")
    assert neighbours("a", 5, Place(3, 1)) == [task_id("a", 5, Place(3, 0)), task_id("a", 5, Place(3, 2))]


def play(node: "Broker", story: Callable[[Client], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S), Client(TestEnv(), node.bootstrap) as client:
            await story(client)

    asyncio.run(whole())


@pytest.mark.invariant("sink.last-run-commits")
def test_only_the_last_run_that_took_the_ledger_can_append(node: "Broker") -> None:
    async def story(client: Client) -> None:
        ledger, sink = Ledger(client, f"ledger-{uuid4().hex[:8]}"), f"sink-{uuid4().hex[:8]}"
        await ledger.take(Begun(sink, "one"))
        first = (await ledger.read(sink)).token
        await ledger.take(Begun(sink, "two", ("one",)))
        second = (await ledger.read(sink)).token
        assert first is not None and second is not None
        record = Committed(sink, 0, "one", "q", (), 0)
        with pytest.raises(Superseded):
            await ledger.append(first, committed_records(record, None, 0))
        await ledger.append(second, committed_records(record, None, 0))
        await ledger.append(second, committed_records(record, None, 0))  # The same again, as after a lost answer: stored once.
        with pytest.raises(Superseded):
            await ledger.append(second._replace(sequence=7), committed_records(record, None, 0))
        other = Ledger(client, ledger.topic)
        assert await other.read(sink) == await ledger.read(sink)
        assert (await other.read(sink)).token == Token(second.producer_id, second.epoch, 2, 2)

    play(node, story)


def test_a_topic_that_forgets_is_no_ledger(node: "Broker", query: MakeQuery) -> None:
    name = f"forgetful-{uuid4().hex[:8]}"
    node.create_topic(name, partitions=1)
    with pytest.raises(SinkFailure, match=r"its cleanup\.policy is delete"):
        query(ledgerTopic=name).start(batches_of(1))


@pytest.mark.invariant("sink.state-bounded")
def test_the_ledger_is_made_where_it_is_missing_and_holds_one_batch_for_each_sink(query: MakeQuery, topic: str) -> None:
    name = f"ledger-{uuid4().hex[:8]}"
    writing, batches = query(ledgerTopic=name), batches_of(4)
    writing.start(batches)
    latest = {record.key: record.value for record in writing.records(name)}
    assert [key for key, value in latest.items() if value is not None] == [
        f'["run","{writing.sink}"]'.encode(),
        f'["batch","{writing.sink}",3]'.encode(),
    ]
    assert writing.values(topic) == all_values(batches)


def test_a_batch_without_rows_costs_no_record(query: MakeQuery) -> None:
    name = f"ledger-{uuid4().hex[:8]}"
    writing = query(ledgerTopic=name)
    writing.start([[[], []], [[], []], *batches_of(1)])
    assert len(writing.records(name)) == 2
    writing.start([[[], []]] * 3 + [[]] * 3)
    assert len(writing.records(name)) == 2


def test_what_a_batch_write_had_committed_is_ended_by_the_next_who_comes(node: "Broker", topic: str, tmp_path: Path) -> None:
    """`df.write` has nobody who starts it again."""

    ledger = f"ledger-{uuid4().hex[:8]}"
    writing = Query(node.bootstrap, topic, tmp_path / "checkpoint", ledgerTopic=ledger)
    batches, work = batches_of(2), Work(f"{ACTION}{uuid4().hex}", 0, "nonce")

    def write_and_commit() -> None:
        reports = [
            write_task(writing.broker(), writing.options, work, Place(index, 0), iter([table(rows)]))
            for index, rows in enumerate(batches[0])
        ]
        commit_batch(writing.broker(), writing.options, reports)

    with pytest.raises(Killed):
        in_child(write_and_commit, Step.COMMITTED)
    assert writing.values(topic) == []
    writing.start([batches[1]])
    assert writing.values(topic) == all_values(batches)
    assert writing.held_back(topic) == 0
    latest = {record.key: record.value for record in writing.records(ledger)}
    assert [key for key, value in latest.items() if value is not None and ACTION.encode() in key] == []
