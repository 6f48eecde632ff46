"""Partitions of a share session whose ledger is not there for the group yet: it is being loaded, or made, or the group is to begin in it.

They are opened side by side, and beside the fetches that want them: a fetch that has something else is answered meanwhile, and the next one
finds the partition open, or hears why it is not. So one ledger that does not answer holds up nobody.
"""

import asyncio
from typing import TYPE_CHECKING

from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node

OPENED_AT_ONCE = 64  # By one session: each looks a hundred times a second whether its ledger is there.

Place = tuple[TopicId, int]


class Openings:
    """Of one session."""

    __slots__ = ("_ended", "_failed", "_is_over", "_under_way")

    def __init__(self) -> None:
        self._under_way: dict[Place, asyncio.Task[None] | None] = {}  # None: not begun yet.
        self._failed: dict[Place, Refusal] = {}  # Of which nobody has heard.
        self._ended: asyncio.Future[None] | None = None
        self._is_over = False

    def __len__(self) -> int:
        return len(self._under_way)

    def under_way(self) -> list[Place]:
        return list(self._under_way)

    def begin(self, node: "Node", group: str, place: Place) -> None:
        if place not in self._under_way and len(self._under_way) < OPENED_AT_ONCE:
            self._under_way[place] = None
            node.spawn(self._open(node, group, place))

    def why_not(self, place: Place) -> Refusal | None:
        """Why it could not be opened; this is told once."""
        return self._failed.pop(place, None)

    def next_end(self) -> asyncio.Future[None]:
        """Resolves when one of them has ended."""
        if self._ended is None or self._ended.done():
            self._ended = asyncio.get_running_loop().create_future()
        return self._ended

    async def settle(self, node: "Node", *, first_s: float, others_s: float) -> None:
        """Waits until all have ended, but for so long at most until the first of them has, and for so long after that."""
        now, count = node.env.now, len(self._under_way)
        ends = now() + first_s
        while self._under_way and (left_s := ends - now()) > 0:
            await asyncio.wait([self.next_end()], timeout=left_s)
            if len(self._under_way) < count:
                ends = min(ends, now() + others_s)

    def cancel(self) -> None:
        """The session is over: nobody is waiting for them, and a group that is deleted next must not begin once more."""
        self._is_over = True
        for task in self._under_way.values():
            if task is not None:
                task.cancel()

    async def _open(self, node: "Node", group: str, place: Place) -> None:
        self._under_way[place] = asyncio.current_task()
        try:
            if self._is_over:
                raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the share session is over")
            await node.shares.begin(*place, group)
        except Refusal as refusal:
            self._failed[place] = refusal
        except Exception:
            self._failed[place] = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the partition's ledger could not be opened")
            raise  # The node's top reports it.
        finally:
            del self._under_way[place]
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(None)
