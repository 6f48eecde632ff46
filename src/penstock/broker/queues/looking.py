"""What can be seen of a partition's messages without taking them: counts, a few of them with their bodies, one by its offset.

What was acknowledged is seen: where the ledger has yet to read some of it, that is waited for. Bodies are read as far as the node has room
for replies, and at least one.
"""

import asyncio
from collections.abc import Sequence

from penstock.broker.queues.bodies import Message
from penstock.broker.queues.calls import PEEKED_BYTES_MAX, Counts, Peeked
from penstock.broker.queues.calls import State as Shown
from penstock.broker.queues.leading import QueuePartition, kept_id
from penstock.queues.headers import PREFIX, parse
from penstock.queues.states import State
from penstock.queues.views import Counts as LedgerCounts
from penstock.queues.views import MessageView

_SHOWN = {
    State.READY: Shown.READY, State.DELAYED: Shown.DELAYED, State.LEASED: Shown.LEASED, State.BURYING: Shown.BURYING,
    State.DONE: Shown.FINISHED,
}  # fmt: skip
_MEANT = {
    Shown.READY: State.READY, Shown.BLOCKED: State.READY, Shown.DELAYED: State.DELAYED, Shown.LEASED: State.LEASED,
    Shown.BURYING: State.BURYING, Shown.FINISHED: State.DONE,
}  # fmt: skip
LOOKED_AT_ONCE = 500
UNFINISHED = (State.READY, State.DELAYED, State.LEASED, State.BURYING)


async def counts(queue: QueuePartition, group: str) -> Counts:
    await queue.following.learned_all()
    wall_ms = queue.node.env.wall_ms()
    seen: LedgerCounts = await queue.read(lambda state: state.counts(group, wall_ms))
    return Counts(seen.ready, seen.leased, seen.delayed, seen.burying, seen.oldest_ms, seen.finished, seen.dropped, seen.is_paused)


async def peek(queue: QueuePartition, group: str, states: Sequence[Shown], first: int, count: int) -> list[Peeked]:
    """Finished ones are there for as long as the log has their records."""
    wanted = tuple(dict.fromkeys(_MEANT[each] for each in states)) if states else UNFINISHED
    peeked = list[Peeked]()
    await queue.following.learned_all()
    while len(peeked) < count and first < queue.state.learned_end:
        if State.DONE in wanted:
            first = max(first, int(queue.data.log.start_offset))
        views, first = await _views(queue, group, wanted, first, count - len(peeked))
        seen = await _with_bodies(queue, views)
        peeked += [each for each in seen if each.body is not None or each.state is not Shown.FINISHED]
        if len(seen) < len(views):
            break  # Those that are left out are found when somebody peeks on.
    return peeked


async def _views(queue: QueuePartition, group: str, wanted: tuple[State, ...], first: int, count: int) -> tuple[list[MessageView], int]:
    """Up to so many, and where to go on. In pieces: those that are wanted may be few among many, and others need the loop too."""
    views = list[MessageView]()
    while len(views) < count and first < queue.state.learned_end:
        seen, first = queue.state.page(
            group, wanted, first, count=count - len(views), looked_at_max=LOOKED_AT_ONCE, wall_ms=queue.node.env.wall_ms()
        )
        views += seen
        await asyncio.sleep(0)
    await queue.read(lambda state: None)  # All that was seen is durable then.
    return views, first


async def find(queue: QueuePartition, group: str, offset: int) -> Peeked | None:
    await queue.following.learned_all()
    wall_ms = queue.node.env.wall_ms()
    view: MessageView | None = await queue.read(lambda state: state.find(group, offset, wall_ms))
    return None if view is None else (await _with_bodies(queue, [view]))[0]


async def _with_bodies(queue: QueuePartition, views: Sequence[MessageView]) -> list[Peeked]:
    room = queue.node.reply_room
    bytes_max = min(PEEKED_BYTES_MAX, room.fair_share())
    room.take(bytes_max)  # Others read at the same time.
    try:
        found, unread = await queue.bodies.read([view.offset for view in views], bytes_max=bytes_max)
    finally:
        room.give_back(bytes_max)
    return [_peeked(queue, view, found.get(view.offset)) for view in views[: len(views) - len(unread)]]


def _peeked(queue: QueuePartition, view: MessageView, message: Message | None) -> Peeked:
    state = Shown.BLOCKED if view.is_blocked and view.state is State.READY else _SHOWN[view.state]
    return Peeked(
        id=(message and kept_id(message)) or queue.id_of(view.offset),
        partition=queue.data.index,
        offset=view.offset,
        state=state,
        attempts=view.attempts,
        ready_at_ms=view.when_ms or _delayed_until(queue, view, message),
        who=view.who,
        sent_ms=0 if message is None else message.timestamp_ms,
        key=None if message is None else message.key,
        body=None if message is None else message.value or b"",
        headers=() if message is None else message.headers,
        history=view.history,
    )


def _delayed_until(queue: QueuePartition, view: MessageView, message: Message | None) -> int:
    """Where only the message itself tells."""
    if view.state is not State.DELAYED or message is None:
        return 0
    own = parse([each for each in message.headers if each[0].startswith(PREFIX)], 0).deliver_at
    return own or message.timestamp_ms + queue.state.messages.common_delay.of(view.offset)
