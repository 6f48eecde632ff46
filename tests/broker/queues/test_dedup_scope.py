"""Deduplication ids on queues with several partitions, each of which knows its own ids only."""

import pytest
from serving import Serving

from penstock.broker.queues.calls import Code, Draft, QueueRefusal, Sent
from penstock.broker.queues.facade import Queues
from penstock.queues.dedup import DRAWN
from penstock.wire.murmur2 import partition_of_key

ALL_LOOPS = True

QUEUE = "wide"
PARTITIONS = 5


async def opened(serving: Serving, **settings: str) -> Queues:
    queues = (await serving.open()).queues
    await queues.create(QUEUE, {name.replace("_", "."): value for name, value in settings.items()}, partitions=PARTITIONS)
    return queues


async def sent(queues: Queues, *drafts: Draft) -> list[Sent]:
    results = []
    for draft in drafts:  # One by one: what is sent in one call goes the same way.
        results += [each for each in await queues.send(QUEUE, [draft]) if isinstance(each, Sent)]
    assert len(results) == len(drafts)
    return results


def originals(results: list[Sent]) -> int:
    return sum(not each.is_duplicate for each in results)


async def test_an_id_counts_in_the_whole_queue_whatever_key_and_group_a_message_has(serving: Serving) -> None:
    queues = await opened(serving)
    results = await sent(
        queues, *[Draft(b"pay", key=b"%d" % at, group=f"tenant-{at}" if at % 2 else "", dedup="order-7") for at in range(12)]
    )
    assert originals(results) == 1
    assert len({each.id for each in results}) == 1, "all hear of the same message"
    assert (await queues.counts(QUEUE)).ready == 1


async def test_ids_that_are_made_from_bodies_count_in_the_whole_queue(serving: Serving) -> None:
    queues = await opened(serving, queue_dedup_by_content="true")
    assert originals(await sent(queues, *[Draft(b"the same", key=b"%d" % at) for at in range(12)])) == 1
    assert originals(await sent(queues, *[Draft(b"other %d" % at, key=b"k") for at in range(5)])) == 5


async def test_ids_that_count_by_group_follow_the_group(serving: Serving) -> None:
    queues = await opened(serving, queue_dedup_scope="group")
    groups = [f"tenant-{at}" for at in range(6)]
    results = await sent(queues, *[Draft(b"pay", key=b"%d" % at, group=group, dedup="order-7") for at in range(3) for group in groups])
    assert originals(results) == len(groups)
    assert [each.partition for each in results[:6]] == [partition_of_key(group.encode(), PARTITIONS) for group in groups]
    assert originals(await sent(queues, *[Draft(b"pay", key=b"%d" % at, dedup="order-7") for at in range(6)])) == 1


async def test_an_id_that_a_client_drew_for_itself_moves_no_message_from_the_partition_of_its_key(serving: Serving) -> None:
    queues = await opened(serving)
    drafts = [Draft(b"x", key=b"customer-%d" % (at % 3), dedup=f"{DRAWN.decode()}{at}") for at in range(9)]
    results = await sent(queues, *drafts)
    assert [each.partition for each in results] == [partition_of_key(b"customer-%d" % (at % 3), PARTITIONS) for at in range(9)]
    assert originals(await sent(queues, *drafts)) == 0, "sent again"
    bare = [Draft(b"x", dedup=f"{DRAWN.decode()}bare-{at}") for at in range(4)]
    assert originals(await sent(queues, *bare, *bare)) == 4


async def test_a_fifo_queue_with_several_partitions_counts_ids_by_group(serving: Serving) -> None:
    queues = await opened(serving, queue_fifo="true")
    assert queues.describe(QUEUE).settings["queue.dedup.scope"] == "group"
    results = await sent(queues, *[Draft(b"pay", group=f"account-{at % 4}", dedup="order-7") for at in range(12)])
    assert originals(results) == 4
    assert not await queues.create(QUEUE, {"queue.fifo": "true"}, partitions=PARTITIONS), "it is there, with these settings"
    with pytest.raises(QueueRefusal) as refused:
        await queues.configure(QUEUE, {"queue.dedup.scope": "queue"})
    assert refused.value.code is Code.INVALID
    with pytest.raises(QueueRefusal) as refused:
        await queues.create("torn", {"queue.fifo": "true", "queue.dedup.scope": "queue"}, partitions=2)
    assert refused.value.code is Code.INVALID and "one partition" in str(refused.value)
