"""The delay of a queue that is changed while it runs: whom it holds for, before a restart and after it."""

import asyncio

import pytest
from serving import Serving, batch, patient_s
from waiting import until_async

from penstock.broker.queues.calls import QUEUE_GROUP, Draft, Order, Sent, Verb
from penstock.broker.queues.facade import Queues
from penstock.broker.queues.leading import QueuePartition

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("queues.changed-delay")

QUEUE = "slow"
HOUR = "3600000"
DELAY = "queue.delay.ms"


async def opened(serving: Serving, **settings: str) -> Queues:
    queues = (await serving.open()).queues
    await queues.create(QUEUE, {name.replace("_", "."): value for name, value in settings.items()})
    return queues


async def opened_again(serving: Serving) -> Queues:
    await serving.crash()
    queues = (await serving.open()).queues
    await until_async(lambda: ledger_of(serving).coordinator.state is not None)
    return queues


def ledger_of(serving: Serving) -> QueuePartition:
    ledger = serving.node.ledgers.find(serving.node.queues.describe(QUEUE).topic_id, 0)
    assert ledger is not None
    return ledger


async def send(queues: Queues, *bodies: bytes, group: str = "", delay_ms: int | None = None) -> None:
    results = await queues.send(QUEUE, [Draft(body, group=group, delay_ms=delay_ms) for body in bodies])
    assert all(isinstance(each, Sent) for each in results)


async def bodies(queues: Queues) -> list[bytes]:
    """All that are ready; they are finished."""
    found: list[bytes] = []
    while lent := await queues.take(QUEUE, 10):
        found += [each.body for each in lent]
        await queues.settle(QUEUE, [Order(each.handle, Verb.DONE) for each in lent])
    return found


@pytest.mark.parametrize("has_restart", [False, True])
async def test_messages_of_a_group_keep_their_order_when_the_delay_of_their_queue_is_shortened(serving: Serving, has_restart: bool) -> None:
    queues = await opened(serving, queue_fifo="true", queue_delay_ms=HOUR)
    await send(queues, b"first", group="g")
    await send(queues, b"second", group="g", delay_ms=0)
    assert await bodies(queues) == []
    if has_restart:
        queues = await opened_again(serving)
        assert (await queues.counts(QUEUE)).delayed == 2
    await queues.configure(QUEUE, {DELAY: "0"})
    await send(queues, b"third", group="g")
    assert await bodies(queues) == [b"first", b"second", b"third"]


async def test_a_change_that_nobody_saw_is_noted_when_the_ledger_is_loaded(serving: Serving) -> None:
    """Its leader had died before it heard of it."""
    queues = await opened(serving, queue_fifo="true", queue_delay_ms=HOUR)
    await send(queues, b"first", group="g")
    ledger_of(serving).coordinator.close()
    await queues.configure(QUEUE, {DELAY: "0"})
    queues = await opened_again(serving)
    await send(queues, b"second", group="g")
    assert await bodies(queues) == [b"first", b"second"]


async def test_who_waits_for_messages_is_served_when_the_delay_is_taken_away(serving: Serving) -> None:
    queues = await opened(serving, queue_fifo="true", queue_delay_ms=HOUR)
    await send(queues, b"first", group="g")
    taking = asyncio.ensure_future(queues.take(QUEUE, 1, wait_s=patient_s(20.0)))
    await until_async(lambda: ledger_of(serving).waiting(QUEUE_GROUP) == 1)
    await queues.configure(QUEUE, {DELAY: "0"})
    assert [each.body for each in await taking] == [b"first"]


@pytest.mark.parametrize("has_checkpoint", [False, True])
async def test_a_delay_that_comes_later_holds_for_nothing_that_was_sent_before(serving: Serving, has_checkpoint: bool) -> None:
    queues = await opened(serving)
    line = await serving.line()
    await send(queues, b"by the door")
    await line.produce(QUEUE, b"by the log")
    await queues.configure(QUEUE, {DELAY: HOUR})
    await send(queues, b"late, by the door")
    await line.produce_batch(QUEUE, batch(b"late, by the log", timestamp_ms=serving.env.wall_ms()))
    await until_async(lambda: ledger_of(serving).state.learned_end == 4)
    counts = await queues.counts(QUEUE)
    assert (counts.ready, counts.delayed) == (2, 2)
    if has_checkpoint:
        await serving.node.ledgers.look_at(ledger_of(serving), is_forced=True)
    queues = await opened_again(serving)
    counts = await queues.counts(QUEUE)
    assert (counts.ready, counts.delayed) == (2, 2)
    assert await bodies(queues) == [b"by the door", b"by the log"]
    serving.env.wall_ahead_ms += int(HOUR)
    assert await bodies(queues) == [b"late, by the door", b"late, by the log"]
