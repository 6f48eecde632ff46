"""Delays that are far away, in files of the node: caches that may be damaged, lost or impossible to write, and nothing comes of it."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from serving import NodePath, Serving, patient_s
from waiting import until_async

from penstock.broker.queues import bucket_files
from penstock.broker.queues.bucket_files import BucketFiles, Place
from penstock.broker.queues.calls import Code, Draft, Order, Outcome, QueueRefusal, Sent, Verb
from penstock.broker.queues.facade import Queues
from penstock.broker.queues.following import Following
from penstock.broker.queues.leading import QueuePartition
from penstock.queues import pages, timetable
from penstock.queues.state import LedgerState
from penstock.settings import DAY_MS
from penstock.simulator.knobs import replaced
from penstock.simulator.loop import SimLoop

ALL_LOOPS = True

QUEUE = "later"
WEEK_MS = 7 * DAY_MS
COUNT = 40


@pytest.fixture(autouse=True)
def small_pages() -> Iterator[None]:
    with replaced([(pages, "PAGE_BYTES", 160), (timetable, "TAILS_BYTES", 300)]):
        yield


async def sent(serving: Serving, **options: str) -> list[str]:
    queues = (await serving.open()).queues
    await queues.create(QUEUE, {"queue.backoff.min.ms": "0", **options})
    drafts = [Draft(b"%d" % at, delay_ms=WEEK_MS, priority=at % 3) for at in range(COUNT)]
    results = [each for each in await queues.send(QUEUE, drafts) if isinstance(each, Sent)]
    assert len(results) == COUNT
    return [each.id for each in results]


def ledger_of(serving: Serving) -> QueuePartition:
    ledger = serving.node.ledgers.find(serving.node.queues.describe(QUEUE).topic_id, 0)
    assert ledger is not None
    return ledger


def files(serving: Serving) -> list[NodePath]:
    found: list[NodePath] = (serving.directory / "delays").files()
    return found


def told(serving: Serving, words: str) -> bool:
    return any(words in sentence for sentence in serving.node._reporter._told)


async def opened_again(serving: Serving) -> Queues:
    queues = (await serving.open()).queues
    await until_async(lambda: ledger_of(serving).coordinator.state is not None)
    return queues


async def all_come(serving: Serving, count: int = COUNT) -> list[bytes]:
    """After a week, and no sooner; what they say, in the order of their priorities.

    In virtual time the node refuses nothing and no lease lapses; on a real clock a slow machine may do both.
    """
    queues, is_virtual = serving.node.queues, isinstance(asyncio.get_running_loop(), SimLoop)
    serving.env.wall_ahead_ms += WEEK_MS - 60_000
    assert await queues.take(QUEUE, 100) == []
    serving.env.wall_ahead_ms += 60_000
    came: list[bytes] = []
    while len(came) < count:
        try:
            lent = await queues.take(QUEUE, 100, wait_s=patient_s(10.0), lease_ms=1_000)
        except QueueRefusal as refusal:  # The ledger is being loaded again. What was lent in that moment comes when its lease has lapsed.
            assert refusal.code is Code.NOT_AVAILABLE and "ask again" in str(refusal) and not is_virtual, refusal
            continue
        assert lent, f"{count - len(came)} have not come"
        verdicts = await queues.settle(QUEUE, [Order(each.handle, Verb.DONE) for each in lent])
        outcomes = [verdict.outcome for verdict in verdicts]
        assert {Outcome.OK} == set(outcomes) or (not is_virtual and set(outcomes) <= {Outcome.OK, Outcome.LOST}), outcomes
        came += [each.body for each, outcome in zip(lent, outcomes, strict=True) if outcome is Outcome.OK]  # Others come again.
    assert await queues.take(QUEUE, 100) == []
    return came


async def test_pages_lie_in_files_until_their_time_comes(serving: Serving) -> None:
    await sent(serving)
    assert sum(len(path.read_bytes()) for path in files(serving)) > COUNT * 16 // 2
    assert sorted(await all_come(serving), key=int) == [b"%d" % at for at in range(COUNT)]
    await until_async(lambda: not files(serving))


@pytest.mark.parametrize("has_checkpoint", [False, True])
async def test_a_node_that_starts_removes_old_files_and_writes_its_own(serving: Serving, has_checkpoint: bool) -> None:
    ids = await sent(serving)
    if has_checkpoint:
        await serving.node.ledgers.look_at(ledger_of(serving), is_forced=True)
    await serving.node.queues.cancel(QUEUE, ids[:5])
    before = files(serving)
    await serving.crash()
    assert files(serving) == before
    before[0].write_bytes(b"of no use to anybody")
    queues = await opened_again(serving)
    assert (await queues.counts(QUEUE)).delayed == COUNT - 5
    await until_async(lambda: not any(path.exists() for path in before))
    assert files(serving)
    assert len(await all_come(serving, COUNT - 5)) == COUNT - 5


@pytest.mark.parametrize("how", ["damaged", "cut off", "gone"])
async def test_a_file_that_is_not_what_it_was_is_built_anew_from_the_log(serving: Serving, how: str) -> None:
    await sent(serving)
    for path in files(serving):
        if how == "gone":
            path.remove()
        else:
            content = path.read_bytes()
            path.write_bytes(content[:-1] if how == "cut off" else bytes([content[0] ^ 1]) + content[1:])
    assert len(set(await all_come(serving))) == COUNT
    assert told(serving, "cannot be read back")


async def test_pages_that_are_cold_are_fetched_beside_everything_else(serving: Serving) -> None:
    await sent(serving)
    disk = serving.env.disk
    disk.is_cold = True
    disk.cold_reads.hold()
    serving.env.wall_ahead_ms += WEEK_MS
    assert len(await serving.node.queues.take(QUEUE, 100)) < COUNT, "nobody waits for the disk"
    await disk.cold_reads.until_waited_for()
    disk.cold_reads.let_go()
    await until_async(lambda: not ledger_of(serving).state.messages.waiting.count)
    counts = await serving.node.queues.counts(QUEUE)
    assert (counts.ready + counts.leased, counts.delayed) == (COUNT, 0)


async def test_a_load_ends_with_its_queue(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by simulation: a node that lost a queue while it loaded it asked for ever for pages that nobody had any more, and did nothing
    else."""
    may_fetch, fetch, catch_up = asyncio.Event(), BucketFiles._fetch, Following.catch_up

    async def catch_up_for_a_week(following: Following, state: LedgerState) -> int:
        read_bytes = await catch_up(following, state)
        serving.env.wall_ahead_ms += WEEK_MS
        return read_bytes

    async def fetch_later(pages: BucketFiles, place: Place) -> None:
        await may_fetch.wait()
        await fetch(pages, place)

    monkeypatch.setattr(Following, "catch_up", catch_up_for_a_week)
    monkeypatch.setattr(BucketFiles, "_fetch", fetch_later)
    await sent(serving)
    serving.env.disk.is_cold = True
    ledger, ledgers = ledger_of(serving), serving.node.ledgers
    ledger.coordinator.reload("a test")
    await until_async(lambda: bool(ledger.pages._fetching))
    assert ledgers._loading == 1
    ledger.close()
    may_fetch.set()
    await until_async(lambda: ledgers._loading == 0)
    assert ledger.coordinator.state is None


async def test_a_checkpoint_is_drawn_from_pages_that_are_cold(serving: Serving) -> None:
    await sent(serving)
    serving.env.disk.is_cold = True
    ledger = ledger_of(serving)
    await serving.node.ledgers.look_at(ledger, is_forced=True)
    assert ledger.companion.log.start_offset > 0 or ledger.companion.log.end_offset > 0
    serving.env.disk.is_cold = False
    await serving.crash()
    await opened_again(serving)
    assert len(set(await all_come(serving))) == COUNT


async def test_what_cannot_be_written_stays_in_memory_and_is_written_later(serving: Serving) -> None:
    obstacle = serving.directory / "delays"
    obstacle.write_bytes(b"")
    await sent(serving)
    pages_of = ledger_of(serving).pages
    assert told(serving, "stay in memory") and pages_of._held_bytes > COUNT * 16 // 2
    obstacle.remove()
    for _ in range(COUNT):
        await serving.node.queues.send(QUEUE, [Draft(b"more", delay_ms=WEEK_MS)])
    assert not pages_of._held and files(serving)
    assert len(await all_come(serving, 2 * COUNT)) == 2 * COUNT


async def test_nothing_is_written_while_the_disk_is_nearly_full(serving: Serving) -> None:
    await sent(serving)
    await serving.crash()
    node = await serving.open(disk_free_bytes_min=1 << 51)
    await until_async(lambda: ledger_of(serving).coordinator.state is not None)
    pages_of = ledger_of(serving).pages
    assert node.disk_is_low and told(serving, "disk.free.bytes.min") and pages_of._held_bytes > COUNT * 16 // 2
    await until_async(lambda: not files(serving))  # Those of the life before.
    node.settings = replace(node.settings, disk_free_bytes_min=0)
    node.look_at_disk_room()
    for _ in range(COUNT):
        await node.queues.send(QUEUE, [Draft(b"more", delay_ms=WEEK_MS)])
    assert not pages_of._held and files(serving)
    assert len(await all_come(serving, 2 * COUNT)) == 2 * COUNT


async def test_senders_are_refused_when_too_much_stays_in_memory(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_files, "HELD_BYTES_MAX", 200)
    obstacle = serving.directory / "delays"
    obstacle.write_bytes(b"")
    await sent(serving)
    (refusal,) = await serving.node.queues.send(QUEUE, [Draft(b"one too many", delay_ms=WEEK_MS)])
    assert isinstance(refusal, QueueRefusal) and refusal.code is Code.NOT_AVAILABLE and "delays" in str(refusal)
    (now,) = await serving.node.queues.send(QUEUE, [Draft(b"at once")])
    assert isinstance(now, Sent)


async def test_files_go_with_a_purge_and_with_the_queue(serving: Serving) -> None:
    await sent(serving)
    await serving.node.queues.purge(QUEUE)
    await until_async(lambda: not files(serving))
    await serving.node.queues.send(QUEUE, [Draft(b"again", delay_ms=WEEK_MS) for _ in range(COUNT)])
    assert files(serving)
    await serving.node.queues.delete(QUEUE)
    await until_async(lambda: not files(serving))
