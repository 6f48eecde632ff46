"""How bytes travel from one simulated host to another, one way.

A `Link` is the road from one host to another: delay, jitter, speed, and what is wrong with it just now. A `Stream` is one direction of one
connection on that road. TCP's promise is kept: bytes of a stream arrive in order and once, or not at all. What varies is when, and in which
pieces.

A road that is cut loses nothing by itself: streams wait, as TCP retransmits, and what waited arrives in a burst after the road is healed;
a stream that waited longer than `GIVE_UP_SECONDS` dies at its sender.
"""

import math
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from penstock.simulator.loop import SimLoop

if TYPE_CHECKING:
    from penstock.simulator.transports import SimTransport

GIVE_UP_SECONDS = 900.0  # About what Linux does with tcp_retries2 = 15.
RECOVERY_SECONDS_MAX = 3.0  # After a heal, a sender's next retransmission may be this far off.


class Fin:
    """The sender will send no more."""


class Reset:
    """The connection is void."""


FIN: Final = Fin()
RESET: Final = Reset()
Segment = bytes | Fin | Reset


@dataclass(frozen=True, slots=True)
class LinkQuality:
    delay_seconds: float = 0.000_2
    jitter_seconds: float = 0.000_3  # Added to the delay, evenly drawn per piece.
    bytes_per_second: float = math.inf
    split: float = 0.05  # Probability that what is sent at once arrives in two pieces.
    reset: float = 0.0  # Probability, per send, that the connection breaks somewhere inside what is sent.
    window_bytes: int = 256 * 1024  # Sent but not yet read by the other side; past this the sender's own buffer fills.


GOOD = LinkQuality()
LOOPBACK = LinkQuality(delay_seconds=0.000_02, jitter_seconds=0.000_02)


class Link:
    __slots__ = ("is_cut", "parked", "quality", "stalled_until")

    def __init__(self, quality: LinkQuality) -> None:
        self.quality = quality
        self.is_cut = False
        self.stalled_until = 0.0  # Nothing arrives before this; then everything does.
        self.parked: list[Stream] = []  # Streams that have something to deliver and wait for the heal.

    def delay(self, rng: Random) -> float:
        return self.quality.delay_seconds + rng.random() * self.quality.jitter_seconds


class Stream:
    """One direction of a connection."""

    __slots__ = (
        "_arrivals",
        "_is_travelling",
        "_last_arrival",
        "_parked_at",
        "is_orphan",
        "link",
        "loop",
        "receiver",
        "rng",
        "sender",
        "unread_bytes",
    )

    def __init__(self, loop: SimLoop, rng: Random, link: Link, sender: "SimTransport", receiver: "SimTransport") -> None:
        self.loop = loop
        self.rng = rng
        self.link = link
        self.sender = sender
        self.receiver = receiver
        self.unread_bytes = 0  # Sent, and not yet taken by the receiver's protocol.
        self.is_orphan = False  # Its bytes came to a machine without power.
        self._arrivals: deque[tuple[float, Segment]] = deque()
        self._last_arrival = 0.0
        self._is_travelling = False  # There is one event in the heap for the head of the queue, never more.
        self._parked_at = math.inf

    def room(self) -> int:
        return self.link.quality.window_bytes - self.unread_bytes

    def send(self, content: bytes) -> None:
        if not content:
            return
        self.unread_bytes += len(content)
        quality = self.link.quality
        if quality.split and len(content) > 1 and self.rng.random() < quality.split:
            at = 1 + int(self.rng.random() * (len(content) - 1))
            self._dispatch(content[:at], at)
            self._dispatch(content[at:], len(content) - at)
        else:
            self._dispatch(content, len(content))

    def send_mark(self, mark: Fin | Reset) -> None:
        """A FIN or a reset follows the bytes that were sent before it."""
        self._dispatch(mark, 0)

    def drop(self) -> None:
        """What is still on the road never arrives."""
        self._arrivals.clear()

    def taken(self, size: int) -> None:
        """The receiver's protocol has read this much: the sender may send as much again, once it hears of it."""
        self.unread_bytes -= size
        if self.sender.has_backlog:
            self.loop.happen_at(self.loop.now + self.link.quality.delay_seconds, self.sender.continue_sending)

    def healed(self) -> None:
        self._parked_at = math.inf
        self._travel(self.loop.now + self.rng.random() * RECOVERY_SECONDS_MAX)

    def _dispatch(self, segment: Segment, size: int) -> None:
        quality = self.link.quality
        arrival = self.loop.now + quality.delay_seconds + self.rng.random() * quality.jitter_seconds
        arrival = max(arrival, self._last_arrival) + size / quality.bytes_per_second
        self._last_arrival = arrival
        self._arrivals.append((arrival, segment))
        if not self._is_travelling:
            self._travel(arrival)

    def _travel(self, arrival: float) -> None:
        self._is_travelling = True
        self.loop.happen_at(arrival, self._arrive)

    def _arrive(self) -> None:
        link, now, arrivals = self.link, self.loop.now, self._arrivals
        if link.is_cut:
            self._park(now)
            return
        if link.stalled_until > now:
            self._travel(link.stalled_until)
            return
        while arrivals and arrivals[0][0] <= now:
            self.receiver.arrived(arrivals.popleft()[1])
        self._is_travelling = False
        if arrivals:
            self._travel(arrivals[0][0])

    def _park(self, now: float) -> None:
        self.link.parked.append(self)
        self._parked_at = now
        self.loop.happen_at(now + GIVE_UP_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if self._parked_at <= self.loop.now - GIVE_UP_SECONDS:
            self.sender.broke(TimeoutError("the other side has not answered for too long"))
