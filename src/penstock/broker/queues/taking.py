"""Taking messages of one or several partitions that this node leads.

Whoever comes while something is ready, and nobody waits before them, is served at once; otherwise they stand in line at all of the
partitions, and the first that has something serves them.
"""

import asyncio
from collections.abc import Sequence

from penstock.broker.queues.calls import Code, Lent, QueueRefusal
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.lines import Served, Waiter, Wish
from penstock.queues.replies import Delivery


async def take(places: Sequence[QueuePartition], wish: Wish, wait_s: float) -> list[Lent]:
    """What can be lent, once that is durable; nothing, when there was nothing for so long. The first place is asked first.

    Raises NotHere where the leadership ends meanwhile, or QueueRefusal.
    """
    waits = wait_s > 0
    waiter = Waiter(wish, places, waits=waits, ends=asyncio.get_running_loop().time() + wait_s if waits else None)
    place = places[0] if len(places) == 1 else next((each for each in places if each.is_ready(wish.group)), places[0])
    place.state  # noqa: B018 - raises where there is none
    try:
        place.rounds.take(waiter)  # Also where nothing seems ready: only the ledger can tell why.
        served = await waiter.heard
    except asyncio.CancelledError:
        waiter.give_back()  # It may have been served a moment before.
        raise
    finally:
        waiter.close()
    if served is None:
        return []
    if served.lent is not None:
        return served.lent
    _check_limit(served)
    return await served.queue.lend(wish.group, _still_lent(served, wish), wish.held)


def _still_lent(served: Served, wish: Wish) -> Sequence[Delivery]:
    """A lease that was over before it was durable is nobody's: the message may be somebody else's by now. One of no length never was."""
    queue, deliveries, wall_ms = served.queue, served.taken.deliveries, served.queue.node.env.wall_ms()
    if all([each[3] > wall_ms for each in deliveries]):
        return deliveries
    lease_ms = queue.policy_of(wish.group).lease_ms if wish.lease_ms is None else wish.lease_ms
    return [each for each in deliveries if each.deadline_ms > wall_ms or not lease_ms]


def _check_limit(served: Served) -> None:
    """As SQS has it, where the queue says so: a standard queue complains, a FIFO queue has nothing more to give."""
    if served.taken.deliveries:
        return
    config = served.queue.data.config
    if served.taken.is_over_limit and config.queue_inflight_refuse and not config.queue_fifo:
        raise QueueRefusal(Code.IN_FLIGHT_LIMIT, "as many messages of the queue are lent as may be: finish some first")
