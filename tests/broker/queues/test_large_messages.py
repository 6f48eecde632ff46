"""Messages that are large: a take and a peek end at a number of bytes, and what the node has lent is counted until it is sent."""

import asyncio

import pytest
from serving import Serving

from penstock.broker.memory import HeldReply
from penstock.broker.queues.calls import LENT_BYTES_MAX, PEEKED_BYTES_MAX, Draft, Lent, Peeked, Sent
from penstock.broker.queues.facade import Queues

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("queues.memory-bounded")

QUEUE = "films"
SIZE, COUNT = 1_000_000, 18


async def opened(serving: Serving, **options: object) -> Queues:
    queues = (await serving.open()).queues
    await queues.create(QUEUE, {})
    for at in range(COUNT):
        (result,) = await queues.send(QUEUE, [Draft(bytes([at]) * SIZE, **options)])  # type: ignore[arg-type]
        assert isinstance(result, Sent)
    return queues


def numbers(messages: list[Lent] | list[Peeked]) -> list[int]:
    return [(each.body or b"\xff")[0] for each in messages]


async def test_a_take_ends_at_a_number_of_bytes_and_the_rest_was_never_delivered(serving: Serving) -> None:
    queues = await opened(serving)
    first = await queues.take(QUEUE, 1_000)
    assert 10 <= len(first) == -(-LENT_BYTES_MAX // SIZE)
    assert (await queues.counts(QUEUE)).leased == len(first)
    rest = await queues.take(QUEUE, 1_000)
    assert numbers(first) + numbers(rest) == list(range(COUNT))
    assert {each.attempt for each in rest} == {1}


async def test_what_is_urgent_goes_first_also_where_it_lies_last(serving: Serving) -> None:
    queues = await opened(serving, priority=0)
    for at in (100, 101):
        await queues.send(QUEUE, [Draft(bytes([at]) * SIZE, priority=9)])
    lent = await queues.take(QUEUE, 1_000)
    assert numbers(lent) == [100, 101, *range(len(lent) - 2)]
    assert 2 < len(lent) < COUNT


async def test_takes_share_the_nodes_room_for_replies(serving: Serving) -> None:
    queues = await opened(serving)
    room = serving.node.reply_room
    held = HeldReply(room)
    lent = await queues.take(QUEUE, 2, held=held)
    assert room.bytes_taken == sum(len(each.body) for each in lent) == 2 * SIZE
    room.take(room.bytes_max - room.bytes_taken)  # A crowd that does not read.
    assert numbers(await queues.take(QUEUE, 10, held=held)) == [2], "one is given whatever its size"
    assert numbers(await queues.take(QUEUE, 1)) == [3]
    held.let_go()
    assert room.bytes_taken == room.bytes_max - 2 * SIZE
    room.give_back(room.bytes_taken)


async def test_a_peek_ends_at_a_number_of_bytes_and_goes_on_from_there(serving: Serving) -> None:
    queues = await opened(serving)
    seen, after, pages = list[int](), None, 0
    while page := await queues.peek(QUEUE, count=1_000, after=after):
        assert len(page) <= -(-PEEKED_BYTES_MAX // SIZE)
        seen += numbers(page)
        after, pages = (page[-1].partition, page[-1].offset), pages + 1
    assert seen == list(range(COUNT))
    assert pages > 1


async def test_what_was_acknowledged_is_seen_though_it_has_yet_to_be_read(serving: Serving) -> None:
    queues = (await serving.open()).queues
    await queues.create(QUEUE, {})
    serving.env.disk.is_cold = True
    for at in range(4):
        results = await queues.send(QUEUE, [Draft(bytes([at]) * SIZE, key=b"so that it is read again")])
        assert isinstance(results[0], Sent)
        assert (await queues.counts(QUEUE)).ready == at + 1
        assert await queues.find(QUEUE, results[0].id) is not None


async def test_what_is_read_for_a_ledger_that_is_gone_counts_no_more(serving: Serving) -> None:
    """The bytes in hand would have been counted for ever: nobody looks after a ledger that is not there."""
    queues = (await serving.open()).queues
    await queues.create("left", {})
    for _ in range(100):
        await queues.send("left", [Draft(b"x" * 1_000)])
    disk, queue = serving.env.disk, serving.node.ledgers.find(queues.describe("left").topic_id, 0)
    assert queue is not None
    disk.is_cold = True
    disk.cold_reads.hold()
    taking = asyncio.ensure_future(queue.bodies.read([1]))
    await disk.cold_reads.until_waited_for()
    serving.node.ledgers.partition_left(queue.data)
    disk.cold_reads.let_go()
    assert list((await taking).messages) == [1]
    disk.is_cold = False
    assert queue.stored.at_hand(1, 10)
    assert serving.node.reply_room.bytes_taken == 0
