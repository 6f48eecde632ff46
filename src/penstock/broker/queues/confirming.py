"""When a queue may forget which moves have brought messages to it: once their sources owe them no more.

A move that its source has recorded as made is not made again, except by calls of it that are still on their way. Where there was one call
and it was answered, none is, and the source says that the move is over. It need not be heard: other moves are remembered for a while at
least, and then for as long as their source says that they are owed, or cannot be asked. Where the source was deleted, nobody is left to
repeat them; one that is not in this node's image may have been made a moment ago, so it counts as deleted only after this node has caught
up with the metadata. What a leader has forgotten is asked about again after its ledger was loaded from before that, which does no harm.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.broker.queues.asking import Place, Question
from penstock.broker.queues.calls import QueueRefusal
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.quorum_calls import catch_up
from penstock.errors import Refusal
from penstock.queues.moves import Source, read_source
from penstock.settings import MINUTE_MS

if TYPE_CHECKING:
    from penstock.broker.node import Node

REMEMBERED_MS = 5 * MINUTE_MS  # Far longer than any call between nodes may take.
AT_ONCE = 1_000


class Confirming:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._at_work: dict[QueuePartition, None] = {}

    def look_at(self, queue: QueuePartition) -> None:
        """Off the hot path: now and then."""
        state = queue.coordinator.state
        if state is None or queue in self._at_work or not len(state.moves):
            return
        sources = state.moves.noted_by(self._node.env.wall_ms() - REMEMBERED_MS, AT_ONCE)
        if sources:
            self._at_work[queue] = None
            self._node.spawn(self._ask_about(queue, sources))

    async def _ask_about(self, queue: QueuePartition, sources: list[bytes]) -> None:
        try:
            places: dict[Place | None, list[tuple[bytes, Source]]] = {}
            for text in sources:
                source = read_source(text)
                place = Place(source.topic_id, source.partition) if source is not None else None
                places.setdefault(place, []).append((text, source or Source(queue.data.topic_id, 0, 0, 0, 0)))
            gone = await self._gone([place for place in places if place is not None])
            for place, chosen in places.items():
                if place is None or place in gone:
                    self._note(queue, chosen, [False] * len(chosen))
                else:
                    self._note(queue, chosen, await self._owed(place, [each for _, each in chosen]))
        finally:
            del self._at_work[queue]

    async def _gone(self, places: Sequence[Place]) -> Collection[Place]:
        """Those of them that were deleted for certain."""
        if any(self._is_unknown(place) for place in places):
            try:
                await catch_up(self._node)
            except Refusal:
                return ()
        return [place for place in places if self._is_unknown(place)]

    def _is_unknown(self, place: Place) -> bool:
        return self._node.image.partition(*place) is None

    async def _owed(self, place: Place, sources: list[Source]) -> list[bool]:
        moves = [(each.group_hash, each.offset, each.lease) for each in sources]
        question = Question("owed", {"moves": moves}, lambda answer: [bool(each) for each in answer.fields["owed"]])
        try:
            found = await self._node.queues.asking.ask(place, lambda here: owed(here, moves), question)
            return found if len(found) == len(sources) else [True] * len(sources)
        except QueueRefusal:
            return [True] * len(sources)  # As far as anybody knows.

    def _note(self, queue: QueuePartition, chosen: list[tuple[bytes, Source]], are_owed: list[bool]) -> None:
        state = queue.coordinator.state
        if state is None:
            return
        for (text, _), is_owed in zip(chosen, are_owed, strict=True):
            if is_owed:
                state.moves.ask_later(text, self._node.env.wall_ms())
            else:
                state.moves.forget(text)


async def tell_over(node: "Node", place: Place, moves: list[str]) -> None:
    """To the partition where they have ended, by the source that has recorded them as made. Each was tried once, and answered."""
    with suppress(QueueRefusal):
        await node.queues.asking.ask(place, lambda here: over(here, moves), Question("moves_over", {"moves": moves}, lambda answer: None))


async def over(queue: QueuePartition, moves: list[str]) -> None:
    for each in moves:
        queue.state.moves.forget(each.encode())


async def owed(queue: QueuePartition, moves: list[tuple[int, int, int]]) -> list[bool]:
    """Which of these moves (the group's hash, offset, lease) may still be made, by this leader or the next one."""
    found: list[bool] = await queue.read(lambda state: [state.is_owed(*move) for move in moves])
    return found
