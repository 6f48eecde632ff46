"""Ledgers on their node: checkpoints in their own log, loading, and logs that are trimmed under them."""

import asyncio

import pytest
from serving import Serving, patient_s, started, virtually
from waiting import until_async

from penstock.broker.queues import checkpoints
from penstock.broker.queues.calls import QUEUE_GROUP, Code, Draft, Order, QueueRefusal, Sent, State, Verb
from penstock.broker.queues.facade import Queues
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.trimming import trim
from penstock.queues.decision import Decision
from penstock.queues.records import CheckpointPiece, decode
from penstock.queues.state import LedgerState
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.vocabulary import Instant, Offset
from penstock.wire.keyed_records import Pair, keyed_records

ALL_LOOPS = True

QUEUE = "jobs"
LONG_MS = 3_600_000


async def opened(serving: Serving, **settings: str) -> Queues:
    queues = (await serving.open()).queues
    await queues.create(QUEUE, {name.replace("_", "."): value for name, value in settings.items()})
    return queues


def ledger_of(serving: Serving) -> QueuePartition:
    ledger = serving.node.ledgers.find(serving.node.queues.describe(QUEUE).topic_id, 0)
    assert ledger is not None
    return ledger


async def sent(queues: Queues, *drafts: Draft) -> list[Sent]:
    results = [each for each in await queues.send(QUEUE, drafts) if isinstance(each, Sent)]
    assert len(results) == len(drafts)
    return results


async def done(queues: Queues, count: int) -> None:
    lent = await queues.take(QUEUE, count)
    assert len(lent) == count
    await queues.settle(QUEUE, [Order(each.handle, Verb.DONE) for each in lent])


async def stored(ledger: QueuePartition) -> list[Pair]:
    """All that the ledger's log has."""
    log = ledger.companion.log
    content = await log.read_later(log.start_offset, bytes_max=1 << 20, end_offset=log.end_offset)
    return keyed_records(bytes(content), log.start_offset)[0]


async def test_a_ledger_is_loaded_from_its_checkpoint_and_what_came_after(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, *[Draft(b"%d" % at, priority=at % 3, dedup=f"id-{at}") for at in range(30)])
    await done(queues, 5)
    held = await queues.take(QUEUE, 3, lease_ms=LONG_MS)
    before = ledger_of(serving)
    await serving.node.ledgers.look_at(before, is_forced=True)
    assert before.companion.log.start_offset > 0
    await done(queues, 2)
    await queues.settle(QUEUE, [Order(held[0].handle, Verb.DONE)])
    await sent(queues, Draft(b"last"))
    counts = await queues.counts(QUEUE)
    await serving.crash()
    queues = (await serving.open()).queues
    await until_async(lambda: ledger_of(serving).coordinator.state is not None)
    assert await queues.counts(QUEUE) == counts
    (again,) = await queues.send(QUEUE, [Draft(b"3", dedup="id-3")])
    assert isinstance(again, Sent)
    assert again.is_duplicate
    assert (await queues.settle(QUEUE, [Order(held[1].handle, Verb.DONE)]))[0].outcome == "ok"


@pytest.mark.invariant("queues.ledger-log-starts-whole")
async def test_what_is_decided_between_the_pieces_is_not_lost(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.queues.checkpoint.PIECE_BYTES", 50)
    monkeypatch.setattr("penstock.broker.patience.SECONDS_AT_ONCE", -1.0)
    queues = await opened(serving)
    await sent(queues, *[Draft(b"%d" % at, dedup=f"id-{at}") for at in range(60)])
    held = await queues.take(QUEUE, 20, lease_ms=LONG_MS)
    ledger = ledger_of(serving)

    async def settle(turn: int) -> None:
        for _ in range(turn):  # While that many pieces are written.
            await asyncio.sleep(0)
        await queues.settle(QUEUE, [Order(held[turn].handle, Verb.DONE)])

    size, *_ = await asyncio.gather(checkpoints.write(serving.node, ledger), *(settle(turn) for turn in range(10)))
    assert size is not None
    kinds = [isinstance(decode(*pair), CheckpointPiece) for pair in await stored(ledger)]
    assert False in kinds[: len(kinds) - kinds[::-1].index(True)]  # Decisions stand between the pieces.
    counts = await queues.counts(QUEUE)
    await serving.crash()
    queues = (await serving.open()).queues
    await until_async(lambda: ledger_of(serving).coordinator.state is not None)
    assert await queues.counts(QUEUE) == counts


@pytest.mark.invariant("queues.ledger-log-starts-whole")
async def test_a_checkpoint_that_was_cut_short_does_no_harm(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, Draft(b"one"), Draft(b"two"))
    await done(queues, 1)
    ledger = ledger_of(serving)
    checkpoints._append(serving.node, ledger, CheckpointPiece(int(ledger.companion.log.end_offset), 0, False, b"half of something"))
    await done(queues, 1)
    await serving.crash()
    queues = (await serving.open()).queues
    await sent(queues, Draft(b"three"))
    assert [each.body for each in await queues.take(QUEUE, 10, wait_s=patient_s(5.0))] == [b"three"]
    assert (await queues.counts(QUEUE)).finished == 2


@pytest.mark.invariant("queues.ledger-log-starts-whole")
async def test_checkpoints_come_by_themselves_and_keep_the_log_short(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.queues.ledgers.CHECKPOINT_EVERY_BYTES_MIN", 500)
    monkeypatch.setattr("penstock.broker.queues.ledgers.ROUND_SECONDS", 0.01)
    queues = await opened(serving)
    ledger = ledger_of(serving)
    for _ in range(3):
        start = ledger.companion.log.start_offset
        for _ in range(20):
            await sent(queues, Draft(b"x"))
            await done(queues, 1)
        await until_async(lambda start=start: ledger.companion.log.start_offset > start)  # type: ignore[misc]
    first = decode(*(await stored(ledger))[0])
    assert isinstance(first, CheckpointPiece)
    assert first.number == 0


@pytest.mark.invariant("queues.lost-records-counted")
async def test_a_log_that_is_trimmed_takes_its_messages_with_it_and_they_are_counted(serving: Serving) -> None:
    queues = await opened(serving, queue_retention="keep")
    await sent(queues, *[Draft(b"%d" % at) for at in range(5)])
    (held,) = await queues.take(QUEUE, 1, lease_ms=LONG_MS)
    ledger = ledger_of(serving)
    await trim(serving.node, ledger.data, Offset(3))
    assert [each.body for each in await queues.take(QUEUE, 10)] == [b"3", b"4"]
    counts = await queues.counts(QUEUE)
    assert (counts.dropped, counts.leased) == (3, 2)
    assert (await queues.settle(QUEUE, [Order(held.handle, Verb.DONE)]))[0].outcome == "gone"
    await serving.stop()
    queues = (await serving.open()).queues
    await until_async(lambda: ledger_of(serving).coordinator.state is not None)
    assert (await queues.counts(QUEUE)).dropped == 3


async def test_what_is_done_leaves_the_log_of_a_queue_that_keeps_nothing(serving: Serving) -> None:
    queues = await opened(serving, segment_bytes="16384")
    for _ in range(6):
        await sent(queues, *[Draft(bytes(1_000)) for _ in range(10)])
    ledger = ledger_of(serving)
    await done(queues, 45)
    await serving.node.ledgers.look_at(ledger)
    base = ledger.state.base(QUEUE_GROUP)
    assert base == 45
    assert 0 < ledger.data.log.start_offset <= base
    await done(queues, 15)
    assert (await queues.counts(QUEUE)).dropped == 0


async def test_a_log_that_begins_after_an_id_that_counts_loses_nothing_more(serving: Serving) -> None:
    queues = await opened(serving, segment_bytes="16384")
    for number in range(6):
        await sent(queues, *[Draft(bytes(1_000), dedup=f"{number}-{at}") for at in range(10)])
    ledger = ledger_of(serving)
    await trim(serving.node, ledger.data, Offset(3))
    assert ledger.state.base_of_all < 3
    await serving.node.ledgers.look_at(ledger)
    assert ledger.data.log.start_offset == 3
    assert (await queues.counts(QUEUE)).ready == 57


async def test_an_ordinary_topic_becomes_a_queue_with_all_that_is_in_it(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("orders", 1)
    await line.produce("orders", b"1", b"2")
    topic = node.image.topics["orders"]
    assert node.ledgers.find(topic.topic_id, 0) is None
    await node.ledgers.prepare(topic.topic_id)
    ledger = node.ledgers.find(topic.topic_id, 0)
    assert ledger is not None
    await until_async(lambda: ledger.coordinator.state is not None)
    assert ledger.is_ready(QUEUE_GROUP)


async def test_a_deleted_queue_is_gone_with_its_ledger_and_who_waits_is_told(serving: Serving) -> None:
    queues = await opened(serving)
    waiting = asyncio.ensure_future(queues.take(QUEUE, 1, wait_s=patient_s(20.0)))
    ledger = ledger_of(serving)
    await until_async(lambda: ledger.waiting(QUEUE_GROUP) == 1)
    await queues.delete(QUEUE)
    with pytest.raises(Exception, match="deleted"):
        await waiting
    assert list(serving.node.ledgers) == []
    assert queues.names() == []
    await queues.create(QUEUE, {})
    assert (await queues.counts(QUEUE)).ready == 0


async def test_a_damaged_ledger_is_loaded_again_from_its_log(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    queues = await opened(serving)
    await sent(queues, Draft(b"one"), Draft(b"two"))
    await done(queues, 1)
    ledger = ledger_of(serving)
    ledger.coordinator.reload("the test says so")
    assert [each.body for each in await queues.take(QUEUE, 10, wait_s=patient_s(5.0))] == [b"two"]


def test_a_full_disk_holds_up_what_lapses_without_keeping_the_node_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    tries, lapse = [], LedgerState.lapse

    def counted(state: LedgerState, now: Instant, wall_ms: int) -> Decision:
        tries.append(now)
        return lapse(state, now, wall_ms)

    monkeypatch.setattr(LedgerState, "lapse", counted)

    async def scenario(world: World, env: SimEnv) -> None:
        node, _ = await started(env, disk_free_bytes_min=0)
        await node.queues.create(QUEUE, {"queue.backoff.min.ms": "0"})
        await sent(node.queues, Draft(b"one"))
        await node.queues.take(QUEUE, 1, lease_ms=1_000)
        disk = world.hosts["node"].disk
        roomy, disk.capacity_bytes = disk.capacity_bytes, 0
        with pytest.raises(QueueRefusal) as refused:
            (result,) = await node.queues.send(QUEUE, [Draft(b"two")])
            raise result if isinstance(result, QueueRefusal) else AssertionError(result)
        assert refused.value.code is Code.NOT_AVAILABLE
        await asyncio.sleep(20)
        assert 1 <= len(tries) <= 30
        disk.capacity_bytes = roomy
        assert [each.body for each in await node.queues.take(QUEUE, 10, wait_s=patient_s(5.0))] == [b"one"]
        await node.stop()

    virtually(scenario)


async def test_few_of_many_are_found_by_looking_in_pieces(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.queues.looking.LOOKED_AT_ONCE", 3)
    queues = await opened(serving)
    await sent(queues, *[Draft(b"%d" % at, delay_ms=LONG_MS if at in (2, 17, 19) else None) for at in range(20)])
    held = await queues.take(QUEUE, 5, lease_ms=LONG_MS)
    assert [each.body for each in held] == [b"0", b"1", b"3", b"4", b"5"]

    async def seen(*states: State, count: int = 100, after: tuple[int, int] | None = None) -> list[int]:
        return [each.offset for each in await queues.peek(QUEUE, states=states, count=count, after=after)]

    assert await seen(State.DELAYED) == [2, 17, 19]
    assert await seen(State.LEASED) == [0, 1, 3, 4, 5]
    assert await seen(State.LEASED, State.DELAYED, count=4) == [0, 1, 2, 3]
    assert await seen(State.LEASED, State.DELAYED, after=(0, 3)) == [4, 5, 17, 19]
    assert await seen(State.READY, count=3) == [6, 7, 8]
    assert await seen(State.READY, after=(0, 15)) == [16, 18]
    assert await seen(State.BURYING) == []
    assert await seen() == list(range(20))
