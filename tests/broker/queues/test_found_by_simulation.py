"""What simulated worlds have found in queues, told again in order."""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast
from unittest.mock import ANY

import pytest
from broker.queues.test_ledgers import QUEUE, ledger_of, opened, sent
from serving import Serving, patient_s
from waiting import until_async

from penstock.broker.queues import checkpoints, ledgers
from penstock.broker.queues.asking import Place
from penstock.broker.queues.calls import QUEUE_GROUP, Code, Counts, Draft, Order, QueueRefusal, Verb
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.ledgers import Ledgers
from penstock.broker.queues.packing import pack_drafts
from penstock.broker.trimming import trim
from penstock.consensus.nouns import DirectoryId
from penstock.env import Env
from penstock.links.door import Asked, CalledChannel
from penstock.links.queue_calls import NOT_HERE, QueueAnswer, QueueCall, read_answer, write_call
from penstock.log.faults import OffsetOutOfRange
from penstock.log.log import Log
from penstock.queues.commands import Rewind
from penstock.queues.state import LedgerState
from penstock.vocabulary import Buffer, NodeId, Offset

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("queues.no-message-lost")


async def test_a_purge_takes_what_its_ledger_has_yet_to_read(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.queues.following.READ_BYTES", 1)
    monkeypatch.setattr("penstock.broker.queues.following.READS_AT_ONCE", 1)
    queues = await opened(serving)
    for number in range(10):
        await sent(queues, Draft(b"%d" % number))
    await asyncio.gather(*(sent(queues, Draft(b"more %d" % number)) for number in range(10)))
    await queues.purge(QUEUE)
    assert await queues.take(QUEUE, 10, wait_s=0.2) == []


async def test_what_could_not_be_read_is_read_again_and_a_purge_says_that_it_cannot_take_it(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that were acknowledged were unknown to the ledger until the next one came, and a purge passed over them."""
    monkeypatch.setattr("penstock.broker.queues.following.READ_AGAIN_SECONDS", 0.05)
    queues = await opened(serving)
    disk = serving.env.disk
    disk.is_cold = disk.is_unreadable = True
    await sent(queues, Draft(b"one", priority=9))
    assert ledger_of(serving).state.learned_end == 0
    with pytest.raises(QueueRefusal, match="cannot be read from the disk now"):
        await queues.purge(QUEUE)
    disk.is_unreadable = False
    assert [each.body for each in await queues.take(QUEUE, 1, wait_s=patient_s(10.0))] == [b"one"]
    await queues.purge(QUEUE)
    assert (await queues.counts(QUEUE)).leased == 0


async def test_what_is_unfinished_stays_where_the_log_begins_behind_ids_that_count(serving: Serving) -> None:
    """The log's start was moved by hand; ids of what is gone still count. Upkeep took the last segment's start for the one to trim to."""
    queues = await opened(serving, segment_bytes="1024")
    await sent(queues, *[Draft(b"%d" % at + bytes(200), dedup=f"id-{at}") for at in range(5)])
    await sent(queues, *[Draft(b"%d" % at + bytes(200), dedup=f"id-{at}") for at in range(5, 10)])
    await sent(queues, *[Draft(b"%d" % at + bytes(200), dedup=f"id-{at}") for at in range(10, 15)])
    ledger = ledger_of(serving)
    await trim(serving.node, ledger.data, Offset(7))
    first = serving.directory / "topics" / ledger.data.topic_id.hex() / "0" / f"{0:020}.log"
    await until_async(lambda: not first.exists())
    for _ in range(3):
        await serving.node.ledgers.look_at(ledger)
    assert ledger.data.log.start_offset == 7
    assert await queues.counts(QUEUE) == Counts(ready=8, dropped=7, finished=ANY, oldest_ms=ANY)


async def test_a_rewind_while_new_messages_are_read_takes_none_of_the_old_ones_for_nothing(serving: Serving) -> None:
    """What was read began where the ledger's knowledge ended before. Afterwards it ends earlier, and all between was held to be empty."""
    queues = await opened(serving, queue_retention="keep")
    await sent(queues, *[Draft(b"%d" % at, priority=9) for at in range(3)])
    await queues.settle(QUEUE, [Order(each.handle, Verb.DONE) for each in await queues.take(QUEUE, 10, wait_s=patient_s(5.0))])
    disk, ledger = serving.env.disk, ledger_of(serving)
    disk.is_cold = True
    disk.cold_reads.hold()
    await sent(queues, Draft(b"3", priority=9))
    await disk.cold_reads.until_waited_for()
    await ledger.ask(lambda asker: Rewind(asker, QUEUE_GROUP, 0))
    disk.is_cold = False
    disk.cold_reads.let_go()
    await until_async(lambda: ledger.state.learned_end == 4)
    assert [each.body for each in await queues.take(QUEUE, 10)] == [b"0", b"1", b"2", b"3"]


async def test_a_log_that_fails_at_the_end_of_a_load_keeps_no_other_queue_from_being_loaded(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever loaded them, one after the other, died of it."""
    monkeypatch.setattr(ledgers, "LOADED_AT_A_TIME", 1)
    queues = await opened(serving)
    await queues.create("another", {})
    await sent(queues, Draft(b"one"))
    await queues.send("another", [Draft(b"two")])
    await serving.crash()
    note_delay, failed = Ledgers._note_delay, list[str]()

    def fail_once(loading: Ledgers, queue: QueuePartition, state: LedgerState) -> None:
        if failed:
            note_delay(loading, queue, state)
        else:
            failed.append(queue.data.topic)
            queue.coordinator.log_failed("a test")

    monkeypatch.setattr(Ledgers, "_note_delay", fail_once)
    queues = (await serving.open()).queues
    await until_async(lambda: bool(failed))
    (other,) = {QUEUE, "another"} - set(failed)
    assert len(await queues.take(other, 1, wait_s=patient_s(10.0))) == 1
    assert "a task failed" not in caplog.text


async def test_a_log_that_is_trimmed_while_it_is_loaded_is_loaded_again(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was, but as if nobody had thought of it."""
    monkeypatch.setattr(ledgers, "LOADED_AGAIN_SECONDS", 0.01)
    await sent(await opened(serving), Draft(b"one"))
    await serving.crash()
    load, loads = checkpoints.load, list[int]()

    async def overtaken_once(env: Env, log: Log, new_state: Callable[[], LedgerState]) -> object:
        loads.append(len(loads))
        if len(loads) == 1:
            new_state()
            raise OffsetOutOfRange("12 is not between 36 and 45")
        return await load(env, log, new_state)

    monkeypatch.setattr(checkpoints, "load", overtaken_once)
    queues = (await serving.open()).queues
    assert [each.body for each in await queues.take(QUEUE, 1, wait_s=patient_s(10.0))] == [b"one"]
    assert len(loads) == 2 and "could not be loaded" not in caplog.text


async def test_a_log_that_could_not_be_opened_is_not_taken_for_an_empty_one(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody had taken anything, so its ledger was empty, too: it answered as a new queue's, and a purge took nothing."""
    await sent(await opened(serving), Draft(b"one"))
    topic_id = serving.node.image.topics[QUEUE].topic_id
    await serving.crash()
    unreadable = serving.directory / "topics" / topic_id.hex() / "0" / "checkpoint"
    unreadable.remove()
    unreadable.mkdir()
    node = await serving.open()
    await until_async(lambda: "cannot be loaded" in caplog.text or node.queues.asking.here(Place(topic_id, 0)) is not None)
    assert node.queues.asking.here(Place(topic_id, 0)) is None, "nobody knows what is there"
    await serving.crash()
    unreadable.remove()
    queues = (await serving.open()).queues
    assert [each.body for each in await queues.take(QUEUE, 1, wait_s=patient_s(10.0))] == [b"one"]


class Channel:
    """The other end of a link: what it was told."""

    ended = None

    def __init__(self) -> None:
        self.told: list[QueueAnswer] = []

    def answer(self, _: int, pieces: Sequence[Buffer]) -> None:
        self.told.append(read_answer(memoryview(b"".join(pieces))))


@pytest.mark.invariant("queues.unfinished-send-unknown")
@pytest.mark.parametrize(("operation", "code"), [("send", str(Code.NOT_AVAILABLE)), ("counts", NOT_HERE)])
async def test_a_send_that_is_cut_short_may_have_been_made(serving: Serving, operation: str, code: str) -> None:
    """The leader stopped, and told the node that had asked it that nothing was done: it sent the same to the next leader."""
    queues = await opened(serving)
    ledger, channel = ledger_of(serving), Channel()
    await sent(queues, Draft(b"before"))
    serving.env.disk.flushes.hold()
    lending = asyncio.ensure_future(queues.take(QUEUE, 1))  # Counts wait for it to be durable.
    await serving.env.disk.flushes.until_waited_for()
    rows, blobs = pack_drafts([Draft(b"one")])
    call = QueueCall(operation, ledger.data.topic_id, 0, 1, {"drafts": rows, "group": QUEUE_GROUP}, blobs)
    body = memoryview(b"".join(write_call(call)))
    asked = Asked(cast(CalledChannel, channel), NodeId(2), DirectoryId(bytes(16)), body, 1)
    queues.answering.asked(asked)
    await until_async(lambda: asked.parked is not None and ledger.data.log.end_offset == (2 if operation == "send" else 1))
    await asyncio.sleep(0)
    assert asked.parked is not None
    asked.parked.cancel()
    await until_async(lambda: bool(channel.told))
    assert [answer.code for answer in channel.told] == [code]
    serving.env.disk.flushes.let_go()
    await lending
