"""What the data log tells of messages, for all groups: how far it is known, options of unfinished messages, and when they were written.

Plain messages take nothing here. A delay costs a bit, and options some two hundred bytes, until all groups are done with the message; while
its delay is far away, options lie with the delay in a timetable's pages, which are caches and seldom in memory. What counts is the bit: an
entry of a message that does not wait any more is nothing.
Nothing of this is recorded by the companion log's decisions: it is learned from the data log again, from the last checkpoint on.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.queues.bits import Bits, DoneSet
from penstock.queues.common_delay import CommonDelay
from penstock.queues.headers import PRIORITY_DEFAULT, Traits
from penstock.queues.pages import PageStore
from penstock.queues.timetable import Timetable

_TRAITS = struct.Struct("<Bq")  # priority, expiry; then the group
_MARK_MS = 10_000  # How exactly it is known when plain messages were written.


class Kept(NamedTuple):
    """What has to be remembered of a message's options once it is in line."""

    priority: int = PRIORITY_DEFAULT
    expires_at: int = 0
    group: bytes = b""


PLAIN = Kept()


class Messages:
    def __init__(self, store: PageStore, wall_ms: int) -> None:
        self.learned_end = 0  # Every message below this is known.
        self._unlearned_end = 0  # It was here when some were to be learned of anew.
        self.kept: dict[int, bytes] = {}  # Options of messages that are not plain, packed. Not of those whose delay is far away.
        self.waiting = Bits()  # Those that are delayed, and whose time has not come...
        self.delays = Timetable("delays", store, wall_ms, counts=self.waiting.__contains__, arrived=self.kept.__setitem__)  # ...and when.
        self.common_delay = CommonDelay(self.waiting)  # ...or behind whom.
        self.expiries = Timetable("expiries", store, wall_ms, counts=self.is_optional, arrived=self.kept.__setitem__)
        self.expired = Bits()  # Those whose own time was up when the clock was last looked at: they stand in no line any more.
        self.overdue = Bits()  # Those of them that have yet to be finished.
        self.duplicates: dict[int, None] = {}  # Came by the log's door with an id that is taken; to be finished.
        self.duplicates_ms = 0  # When.
        self.exempt = DoneSet()  # Never taken for duplicates: who begins anew gets what lies in the log, and a purge forgets all ids.
        self._mark_offsets: list[int] = []  # Messages below this offset (and not below the one before)...
        self._mark_times: list[int] = []  # ...were written at this time, at the latest.

    def options(self, offset: int) -> Kept:
        packed = self.kept.get(offset)
        return PLAIN if packed is None else unpack(packed)

    def is_optional(self, offset: int) -> bool:
        """Whether it may have options that count."""
        return offset in self.kept or offset in self.waiting

    def keep(self, offset: int, traits: Traits, *, deliver_at: int, is_held: bool) -> None:
        """Remembers what has to be, and when its time comes. Of a message that somebody has, options are needed at once."""
        options = b""
        if traits.priority != PRIORITY_DEFAULT or traits.expires_at or traits.group:
            options = pack(Kept(traits.priority, traits.expires_at, traits.group))
        if traits.expires_at:
            self.expiries.add(traits.expires_at, offset)
        if deliver_at:
            self.delay(offset, deliver_at, options)
        if options and (is_held or not deliver_at):
            self.kept[offset] = options

    def delay(self, offset: int, until_ms: int, options: bytes = b"") -> None:
        self.waiting.add(offset)
        if not self.delays.add(until_ms, offset, options) and options:
            self.kept[offset] = options

    def has_expired(self, offset: int, wall_ms: int) -> bool:
        """Of a message whose entry among the expiries came up: whether that still counts."""
        packed = self.kept.get(offset)
        if packed is None:
            return offset in self.waiting  # Its options lie with its delay, far away: the entry says all there is to say.
        return 0 < unpack(packed).expires_at <= wall_ms

    def look_for_expired(self, wall_ms: int) -> None:
        """After a load: when an entry among the expiries comes up is no measure, for it may have been looked at before."""
        for offset, packed in self.kept.items() if len(self.expiries) else ():
            if 0 < _TRAITS.unpack_from(packed)[1] <= wall_ms:
                self.expired.add(offset)
                self.overdue.add(offset)

    def forget(self, offset: int) -> None:
        """All groups are done with it."""
        self.kept.pop(offset, None)
        self.duplicates.pop(offset, None)
        if self.expired.count:
            self.expired.discard(offset)
        if self.waiting.discard(offset):
            self._tidy()

    def forget_done(self, dones: Sequence[DoneSet]) -> None:
        """All groups may be done with many."""
        for some in (self.kept, self.duplicates):
            for offset in [offset for offset in some if all(offset in done for done in dones)]:
                some.pop(offset)
        self.forget_waiting(dones, 0, self.learned_end)

    def forget_waiting(self, dones: Sequence[DoneSet], start: int, end: int) -> None:
        """The same for those among [start, end) that wait, or have expired."""
        if self.expired.count:
            self.expired.discard_done(dones, start, end)
        if self.waiting.count:
            self.waiting.discard_done(dones, start, end)
            self._tidy()

    def _tidy(self) -> None:
        """Pages of which nothing counts need not wait for their time."""
        if not self.waiting.count:
            self.delays.clear_far()
            if not self.kept:
                self.expiries.clear_far()

    def exempt_from_dedup(self, start: int, end: int) -> None:
        self.exempt.add_range(start, end)
        for offset in [offset for offset in self.duplicates if start <= offset < end]:
            del self.duplicates[offset]

    def unlearn(self, end: int, is_kept: Callable[[int], bool]) -> None:
        """Messages from here on will be learned of anew; options of some of them are needed meanwhile."""
        if end >= self.learned_end:
            return
        for offset in [offset for offset in self.kept if offset >= end and not is_kept(offset)]:
            del self.kept[offset]
        for bits in (self.waiting, self.expired, self.overdue):
            bits.discard_range(end, self.learned_end)
        self.delays.unlearn(end)
        self.common_delay.unlearn(end)
        self.expiries.unlearn(end)
        while self._mark_offsets and self._mark_offsets[-1] > end:
            del self._mark_offsets[-1], self._mark_times[-1]
        self._unlearned_end, self.learned_end = self.end, end

    @property
    def end(self) -> int:
        """Every message below this is known, or was and is being learned of anew: where the log ends, as far as anybody was told of it."""
        return max(self.learned_end, self._unlearned_end)

    # When they were written

    def mark(self, end: int, written_ms: int) -> None:
        """Messages up to here were written by then."""
        times = self._mark_times
        if times and written_ms < times[-1] // _MARK_MS * _MARK_MS + _MARK_MS:
            times[-1] = max(times[-1], written_ms)
            self._mark_offsets[-1] = end
        else:
            self._mark_offsets.append(end)
            times.append(written_ms)

    def written_ms(self, offset: int) -> int:
        """At the latest; 0: nothing is known of it."""
        at = bisect_right(self._mark_offsets, offset)
        return self._mark_times[at] if at < len(self._mark_times) else 0

    def written_before(self, time_ms: int, start: int) -> int:
        """The end of those from `start` on that were written before this time."""
        at = bisect_right(self._mark_offsets, start)
        while at < len(self._mark_times) and self._mark_times[at] < time_ms:
            start = self._mark_offsets[at]
            at += 1
        return start

    def unmark(self, base: int) -> None:
        """Nobody will ask for messages below this."""
        at = bisect_right(self._mark_offsets, base)
        if at > len(self._mark_offsets) // 2 + 64:
            del self._mark_offsets[:at], self._mark_times[:at]

    def marks(self) -> list[tuple[int, int]]:
        return list(zip(self._mark_offsets, self._mark_times, strict=True))


def pack(kept: Kept) -> bytes:
    return _TRAITS.pack(kept.priority, kept.expires_at) + kept.group


def unpack(packed: bytes) -> Kept:
    priority, expires_at = _TRAITS.unpack_from(packed)
    return Kept(priority, expires_at, packed[_TRAITS.size :])
