"""Those who wait for messages, in the order in which they came.

A waiter stands in the lines of all partitions from which it would take, and leaves all of them at once when one of them serves it, when its
time is up, or when nobody wants its answer any more. So it costs nothing while nothing happens, and nothing is lent on its behalf twice.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.memory import HeldReply
from penstock.broker.queues.calls import Lent
from penstock.queues.replies import Taken

if TYPE_CHECKING:
    from penstock.broker.queues.leading import QueuePartition

LINE_LENGTH_MAX = 100_000


@dataclass(slots=True)  # Not frozen, which would cost more than all the rest of it; nobody changes it.
class Wish:
    """What a taker wants."""

    group: str
    count: int
    lease_ms: int | None = None
    who: str = ""
    attempt_id: bytes = b""
    held: HeldReply | None = None  # Where the answer is counted.
    is_again: bool | None = False  # It was asked for before, by the same attempt id. None: nobody knows.
    only_again: bool = False  # Nothing but what the same attempt was given.


class Served(NamedTuple):
    queue: "QueuePartition"
    taken: Taken
    lent: list[Lent] | None = None  # What was at hand at once; it is counted.


class Waiter:
    """One take, as its partitions see it. `heard` resolves when it is served with something, or there is nothing to wait for."""

    __slots__ = ("_ends", "_timer", "heard", "lines", "places", "waits", "wish")

    def __init__(self, wish: Wish, places: Sequence["QueuePartition"], *, waits: bool, ends: float | None = None) -> None:
        """`ends` is when its time is up, by the loop's clock. None: whoever waits has a timer of their own."""
        self.wish = wish
        self.places = places
        self.waits = waits  # It stands in line when there is nothing.
        self.lines: list[Line] = []
        self.heard: asyncio.Future[Served | None] = asyncio.get_running_loop().create_future()
        self._ends = ends
        self._timer: asyncio.TimerHandle | None = None

    def stand(self) -> None:
        """In the lines of all its places; at the front of those where it was before. Its time passes from here on: whoever is served at
        once needs no timer."""
        if self._timer is None and self._ends is not None:
            self._timer = asyncio.get_running_loop().call_at(self._ends, self.time_is_up)
        for place in self.places:
            line = place.line(self.wish.group)
            line.add(self)
            self.lines.append(line)

    def leave(self) -> None:
        lines, self.lines = self.lines, []
        for line in lines:
            line.remove(self)

    def give_back(self) -> None:
        """Nobody waits any more: what it was served with, and nobody has looked at, goes back."""
        heard = self.heard
        if not heard.cancel() and not heard.cancelled() and heard.exception() is None and (served := heard.result()) is not None:
            served.queue.give_back(self.wish.group, served.taken.deliveries)

    def close(self) -> None:
        """Nobody waits for it any more."""
        if self.lines:
            self.leave()
        if not self.heard.done():
            self.heard.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def time_is_up(self) -> None:
        """Whoever is being served hears of it as soon as that is durable."""
        self.waits = False
        if self.lines:
            self.leave()
            if not self.heard.done():
                self.heard.set_result(None)


class Line:
    """Of one group at one partition."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: OrderedDict[Waiter, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiters)

    def first(self) -> Waiter | None:
        return next(iter(self._waiters), None)

    def add(self, waiter: Waiter) -> None:
        self._waiters[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter, None)

    def everybody(self) -> list[Waiter]:
        return list(self._waiters)
