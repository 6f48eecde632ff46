"""Plain messages take a straight way into the log and to the ledger: nobody can tell which way they took."""

import asyncio
from random import Random

from serving import Serving
from waiting import until_async

from penstock.broker.queues import plain_sending, sending
from penstock.broker.queues.calls import QUEUE_GROUP, Draft, Sent
from penstock.broker.queues.leading import QueuePartition
from penstock.queues.headers import PRIORITY
from penstock.wire.batches import Record, encode_batch

ALL_LOOPS = True

WALL_MS = 1_800_000_000_000
STRAIGHT, GENERAL, QUEUE = "straight", "general", "mixed"


def partition_of(serving: Serving, queue: str) -> QueuePartition:
    found = serving.node.ledgers.find(serving.node.queues.describe(queue).topic_id, 0)
    assert found is not None
    return found


def content_of(queue: QueuePartition) -> bytes:
    return bytes(queue.data.log.read(0, bytes_max=1 << 20, end_offset=queue.data.log.end_offset) or b"")


async def test_the_straight_way_writes_and_answers_what_the_general_one_does(serving: Serving) -> None:
    node, rng = await serving.open(), Random(8)
    serving.env.wall_stopped_ms = WALL_MS
    for name in (STRAIGHT, GENERAL):
        await node.queues.create(name, {})
    straight, general = partition_of(serving, STRAIGHT), partition_of(serving, GENERAL)
    for _ in range(30):
        drafts = [Draft(rng.randbytes(rng.choice((0, 1, 60, 70, 9_000)))) for _ in range(rng.randint(1, 80))]
        appended = plain_sending.append(straight, drafts, plain_sending.size_of(drafts))
        assert appended is not None
        other = sending._Sending(general, drafts)
        assert other.append_all() == appended[1]
        assert [each._replace(id="") for each in other.results if isinstance(each, Sent)] == [each._replace(id="") for each in appended[0]]
        assert [each.id for each in appended[0]] == [straight.id_of(each.offset) for each in appended[0]]
    assert content_of(straight) == content_of(general)
    for queue in (straight, general):
        if (durable := queue.durable.awaited(int(queue.data.log.end_offset))) is not None:
            await durable
        await queue.following.learned_all()
    assert straight.state.learned_end == general.state.learned_end == straight.data.log.end_offset
    assert straight.state.counts(QUEUE_GROUP, WALL_MS) == general.state.counts(QUEUE_GROUP, WALL_MS)


async def test_what_needs_a_decision_is_left_to_the_general_way(serving: Serving) -> None:
    node = await serving.open()
    await node.queues.create(QUEUE, {"max.message.bytes": "2000"})
    await node.queues.create("by-content", {"queue.dedup.by.content": "true"})
    queue = partition_of(serving, QUEUE)
    too_large = [Draft(b"plain"), Draft(b"x" * 3_000)]
    assert plain_sending.append(queue, too_large, plain_sending.size_of(too_large)) is None
    for draft in (
        Draft(b"", key=b"k"),
        Draft(b"", headers=(("a", b""),)),
        Draft(b"", delay_ms=0),
        Draft(b"", dedup="d"),
    ):
        assert not plain_sending.size_of([Draft(b"plain"), draft])
    assert plain_sending.append(partition_of(serving, "by-content"), [Draft(b"plain")], 500) is None
    assert queue.data.log.end_offset == 0


async def test_own_messages_are_learned_in_order_with_what_others_write_between_them(serving: Serving) -> None:
    """Of the queue's own messages the ledger is told; what producers write it must read, options and all, and pass over nothing."""
    node = await serving.open()
    await node.queues.create(QUEUE, {})
    line = await serving.line()
    urgent = encode_batch([Record(value=b"urgent", headers=((PRIORITY, b"9"),), timestamp_ms=serving.env.wall_ms())])
    serving.env.disk.flushes.hold()
    sends = []
    for body in (b"one", b"two"):
        sends.append(asyncio.create_task(node.queues.send(QUEUE, [Draft(body)])))
    await until_async(lambda: partition_of(serving, QUEUE).data.log.end_offset == 2)
    produced = asyncio.create_task(line.produce_batch(QUEUE, bytes(urgent)))
    await until_async(lambda: partition_of(serving, QUEUE).data.log.end_offset == 3)
    sends.append(asyncio.create_task(node.queues.send(QUEUE, [Draft(b"three")])))
    await asyncio.sleep(0)
    serving.env.disk.flushes.let_go()
    await asyncio.gather(produced, *sends)
    assert [each.body for each in await node.queues.take(QUEUE, 10)] == [b"urgent", b"one", b"two", b"three"]


async def test_own_messages_that_were_deleted_before_the_ledger_knew_of_them_are_nobodys(serving: Serving) -> None:
    node = await serving.open()
    await node.queues.create(QUEUE, {})
    queue = partition_of(serving, QUEUE)
    await node.queues.send(QUEUE, [Draft(b"kept")])
    queue.following.appended(1, 3, WALL_MS)  # As if these two had been appended, and the log had lost them since.
    queue.data.log.start_offset = queue.data.log.end_offset
    await node.queues.send(QUEUE, [Draft(b"later")])
    assert [each.body for each in await node.queues.take(QUEUE, 10)] == [b"later"]


async def test_of_messages_that_came_side_by_side_those_are_learned_that_are_flushed(serving: Serving) -> None:
    node = await serving.open()
    await node.queues.create(QUEUE, {})
    queue, flushes = partition_of(serving, QUEUE), serving.env.disk.flushes
    serving.env.wall_stopped_ms = WALL_MS  # So that the ledger is told of one run.
    flushes.hold()
    first = asyncio.create_task(node.queues.send(QUEUE, [Draft(b"one"), Draft(b"two")]))
    await flushes.until_waited_for()
    second = asyncio.create_task(node.queues.send(QUEUE, [Draft(b"three")]))
    await until_async(lambda: queue.data.log.end_offset == 3)
    assert queue.state.learned_end == 0
    flushes.let_go()
    await first
    assert queue.state.learned_end in (2, 3)  # The next round may have ended by now.
    await second
    assert queue.state.learned_end == 3
    assert [each.body for each in await node.queues.take(QUEUE, 10)] == [b"one", b"two", b"three"]
