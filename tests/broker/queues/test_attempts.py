"""Whoever asks again with the same attempt id, in a queue of several partitions."""

import asyncio

from serving import Serving, patient_s, virtual_timeout
from waiting import until_async

from penstock.broker.queues.calls import QUEUE_GROUP, Draft, Order, Sent, Verb
from penstock.broker.queues.facade import Queues

ALL_LOOPS = True

QUEUE = "wide"
PARTITIONS = 4
LONG_MS = 600_000


async def opened(serving: Serving) -> Queues:
    queues = (await serving.open()).queues
    await queues.create(QUEUE, {"queue.fifo": "true"}, partitions=PARTITIONS)
    return queues


async def fill(queues: Queues, count: int) -> None:
    results = await queues.send(QUEUE, [Draft(b"%d" % at, group=f"group-{at}") for at in range(count)])
    assert len({each.partition for each in results if isinstance(each, Sent)}) == PARTITIONS


async def taken(queues: Queues, attempt_id: str, wait_s: float = 0.0) -> list[str]:
    return [each.id for each in await queues.take(QUEUE, 2, lease_ms=LONG_MS, attempt_id=attempt_id, wait_s=wait_s)]


async def test_the_same_attempt_is_served_by_the_same_partition_whichever_has_its_turn(serving: Serving) -> None:
    queues = await opened(serving)
    await fill(queues, 40)
    first = await taken(queues, "a")
    assert len(first) == 2
    others = [await taken(queues, "b"), await taken(queues, "")]
    assert not {*first} & {id for each in others for id in each}
    for _ in range(2 * PARTITIONS):
        assert await taken(queues, "a") == first
    assert (await queues.counts(QUEUE)).leased == 6


async def test_an_attempt_that_was_served_while_it_waited_is_known_too(serving: Serving) -> None:
    queues = await opened(serving)
    waiting = asyncio.ensure_future(taken(queues, "a", wait_s=patient_s(10.0)))
    topic_id = queues.describe(QUEUE).topic_id
    ledgers = [each for index in range(PARTITIONS) if (each := serving.node.ledgers.find(topic_id, index)) is not None]
    await until_async(lambda: all(each.waiting(QUEUE_GROUP) for each in ledgers))
    await fill(queues, 40)
    first = await waiting
    assert first and await taken(queues, "a") == first


async def test_what_is_settled_of_an_attempt_does_not_come_again(serving: Serving) -> None:
    queues = await opened(serving)
    await fill(queues, 40)
    first = await queues.take(QUEUE, 2, lease_ms=LONG_MS, attempt_id="a")
    await queues.settle(QUEUE, [Order(first[0].handle, Verb.DONE)])
    assert await taken(queues, "a") == [first[1].id]
    await queues.settle(QUEUE, [Order(first[1].handle, Verb.DONE)])
    new = await taken(queues, "a")
    assert len(new) == 2 and not {*new} & {each.id for each in first}


async def test_a_partition_that_is_away_holds_up_nobody_who_names_an_attempt(serving: Serving) -> None:
    """Who leads it now may have served the attempt, and nobody looks long for it."""
    queues = await opened(serving)
    await fill(queues, 40)
    away = serving.node.ledgers.find(queues.describe(QUEUE).topic_id, 1)
    assert away is not None
    serving.node.ledgers.partition_left(away.data)
    async with virtual_timeout(3.0):  # Looking for a leader takes five seconds.
        assert len(await taken(queues, "a")) == 2
