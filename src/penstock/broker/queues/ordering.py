"""Orders to a partition's ledger that are not about messages somebody holds: cancel, purge, pause, resume, rewind."""

from collections.abc import Sequence

from penstock.broker.queues.calls import Code, Outcome, QueueRefusal, Verdict
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.refusals import refusal_of
from penstock.queues.commands import Cancel, Pause, Purge, Resume, Rewind
from penstock.queues.replies import Done, Fault
from penstock.queues.states import State
from penstock.queues.views import MessageView


async def cancel(queue: QueuePartition, group: str, offsets: Sequence[int]) -> list[Verdict]:
    """In one decision. What becomes of each is seen just before it, in the same turn of the loop."""
    await _all_known(queue)
    wall_ms = queue.node.env.wall_ms()
    views = {offset: queue.state.find(group, offset, wall_ms) for offset in offsets}
    await queue.ask(lambda asker: Cancel(asker, group, tuple(views)))
    return [_cancelled(views[offset]) for offset in offsets]


async def _all_known(queue: QueuePartition) -> None:
    """What was acknowledged before is meant too."""
    if not await queue.following.learned_all():
        raise QueueRefusal(Code.NOT_AVAILABLE, "some messages of the queue cannot be read from the disk now; ask again")


def _cancelled(view: MessageView | None) -> Verdict:
    if view is None:
        return Verdict(Outcome.UNKNOWN)
    if view.state in (State.READY, State.DELAYED):
        return Verdict(Outcome.OK)
    return Verdict(Outcome.GONE) if view.state is State.DONE else Verdict(Outcome.LOST, view.when_ms)


async def purge(queue: QueuePartition, group: str, pause_ms: int = 0, *, is_trial: bool = False) -> int:
    wall_ms = queue.node.env.wall_ms()
    since_ms = wall_ms - pause_ms if pause_ms else None
    if is_trial:
        if since_ms is not None and since_ms < await queue.read(lambda state: state.ledgers[group].purged_ms) <= wall_ms:
            raise refusal_of(Fault.TOO_SOON)
        return 0
    await _all_known(queue)
    done: Done = await queue.ask(lambda asker: Purge(asker, group, since_ms))
    return done.count


async def pause(queue: QueuePartition, group: str, *, is_over: bool) -> int:
    done: Done = await queue.ask(lambda asker: Resume(asker, group) if is_over else Pause(asker, group))
    return done.count


async def rewind(queue: QueuePartition, group: str, to_ms: int) -> int:
    """Returns how many offsets there are from there on."""
    data = queue.data
    found = await data.log.find_timestamp(to_ms, data.high_watermark)
    return await rewind_to(queue, group, int(data.high_watermark) if found is None else int(found.offset))


async def rewind_to(queue: QueuePartition, group: str, offset: int) -> int:
    """The same, by an offset. What is not in the log any more does not come back."""
    data, end_offset = queue.data, queue.state.messages.end
    offset = max(offset, int(data.log.start_offset))
    if offset > end_offset:
        raise QueueRefusal(Code.INVALID, f"partition {data.index} of the queue ends at offset {end_offset}, before {offset}")
    await queue.ask(lambda asker: Rewind(asker, group, offset))
    queue.following.advanced(data, 0)  # It knows of none of them any more.
    return end_offset - offset
