"""What is done to the ledger of a share group at the leader of its partition, and how other nodes ask for it.

A ledger begins where the group's `share.auto.offset.reset` says when a member first fetches (beginning.py), or where an admin says; once it
has begun, a second beginning is only an admin's.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from penstock.broker.queues.calls import Code, QueueRefusal
from penstock.broker.queues.leading import QueuePartition
from penstock.links.queue_calls import QueueAnswer, QueueCall
from penstock.queues.commands import LATEST, QUEUE_GROUP, Forget, Start
from penstock.queues.state import LedgerState
from penstock.queues.turning import GROUPS_MAX
from penstock.settings.group import check_reset

NOT_BEGUN = -1  # Start offset of a ledger that nobody has fetched from yet: as Kafka tells it.


class Standing(NamedTuple):
    """How far a group is with a partition."""

    start_offset: int = NOT_BEGUN  # Everything below is done.
    lag: int = -1  # How many records are not done.
    leader_epoch: int = 0


async def first_offset(queue: QueuePartition, group: str) -> int:
    """Where it begins if nobody says otherwise."""
    data = queue.data
    reset = queue.node.shares.configs.config_of(group).share_auto_offset_reset
    if reset == "earliest":
        return int(data.log.start_offset)
    ago_ms = check_reset(reset)
    if ago_ms is None:
        return LATEST
    found = await data.log.find_timestamp(queue.node.env.wall_ms() - ago_ms, data.high_watermark)
    return LATEST if found is None else int(found.offset)


async def begin_at(queue: QueuePartition, group: str, offset: int) -> None:
    """Raises NotHere or QueueRefusal: FULL where the partition has as many ledgers as it may."""
    await _start(queue, group, offset)


async def start(queue: QueuePartition, group: str, offset: int) -> None:
    """Begins it here, or anew: whatever is lent is void."""
    log = queue.data.log
    await _start(queue, group, max(int(log.start_offset), min(offset, int(queue.data.high_watermark))))


async def forget(queue: QueuePartition, group: str) -> None:
    """The jobs of a queue are its own: they stay, whatever becomes of the group that shares them with its other doors."""
    if group == QUEUE_GROUP and queue.data.config.queue_enabled:
        return
    queue.node.shares.beginnings.forgotten(queue, group)
    if queue.state.has(group):
        await queue.ask(lambda asker: Forget(asker, group))


async def standing(queue: QueuePartition, group: str) -> Standing:
    wall_ms, epoch = queue.node.env.wall_ms(), int(queue.data.epoch)

    def look(state: LedgerState) -> Standing:
        if not state.has(group):
            return Standing(leader_epoch=epoch)
        counts = state.counts(group, wall_ms)
        return Standing(state.base(group), counts.ready + counts.leased + counts.delayed + counts.burying, epoch)

    found: Standing = await queue.read(look)
    return found


async def _start(queue: QueuePartition, group: str, offset: int) -> None:
    if not queue.state.has(group) and len(queue.state.groups()) >= GROUPS_MAX:  # Told apart from a leader that is not there.
        raise QueueRefusal(Code.FULL, f"{GROUPS_MAX} groups have ledgers of this partition, the most that may be: delete some of them")
    await queue.ask(lambda asker: Start(asker, group, offset))
    queue.following.advanced(queue.data, 0)  # It may have to learn again of messages that others are done with.


async def _asked_start(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    await start(queue, str(call.fields["group"]), int(call.fields["offset"]))
    return QueueAnswer("")


async def _asked_forget(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    await forget(queue, str(call.fields["group"]))
    return QueueAnswer("")


async def _asked_standing(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    return QueueAnswer("", fields={"standing": list(await standing(queue, str(call.fields["group"])))})


SHARE_OPERATIONS: dict[str, Callable[[QueuePartition, QueueCall], Awaitable[QueueAnswer]]] = {
    "share.start": _asked_start,
    "share.forget": _asked_forget,
    "share.standing": _asked_standing,
}
