"""When something is due, over any number of messages and any length of time, in a bounded amount of memory.

What is due within the next minutes is in a `Schedule`. All that is later is in buckets of ten minutes, of a day and of 64 days: in the
coarsest one whose time is not near yet. A bucket is a tail in memory, and pages behind a port (pages.py). All tails together are bounded:
beyond that, the largest becomes a page. When a bucket's time is near it is opened, page by page, and what was in it goes to finer buckets,
or to the schedule: so an entry is moved three times at most, no page is ever merged with another, and a page far away costs a line.
Opening begins ahead of time and goes on in small steps. A page that is not at hand is waited for: entries may come late, never early.
With an entry go the options of its message: while it is far away, nothing of it has to be in memory.
What counts no more is told by whoever asks (`counts`), and is dropped when its bucket is opened.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from weakref import ref

from penstock.queues import pages
from penstock.queues.pages import ENTRY_BYTES, PageStore
from penstock.queues.schedule import Schedule
from penstock.settings import DAY_MS, HOUR_MS, MINUTE_MS

WIDTHS_MS = (10 * MINUTE_MS, DAY_MS, 64 * DAY_MS)  # Of buckets; each is a multiple of the one before.
LEADS_MS = (10 * MINUTE_MS, 2 * HOUR_MS, DAY_MS)  # So long before its time a bucket is opened; rising.
LAST_MS = 7_258_118_400_000  # The year 2200: all that is later is in one bucket.
TAILS_BYTES = 1 << 20  # Of one timetable.
OPTIONS_HELD_BYTES = 150  # What options take in memory beside their own bytes, about.
OPENED_AT_ONCE = 4_096  # Entries: some milliseconds.
PACE_MS = 10  # Between two steps of opening.
PACE_AHEAD_MS = 50  # The same while there is time.
AGAIN_MS = 100  # After which a page that was not at hand is asked for again.

_LEVELS = range(len(WIDTHS_MS))
NO_CUT = (1 << 63) - 1  # Behind every offset.


class Page:
    __slots__ = ("count", "cut", "end", "first", "place")

    def __init__(self, place: object, count: int, first: int, end: int, cut: int) -> None:
        self.place = place
        self.count = count
        self.first, self.end = first, end  # Its offsets are among these.
        self.cut = cut  # What is at or above this does not count: the log was read again from there.


class Bucket:
    __slots__ = ("held_bytes", "level", "number", "options", "pages", "pairs", "tail_bytes")

    def __init__(self, level: int, number: int) -> None:
        self.level = level
        self.number = number
        self.pairs: array[int] = array("q")  # The tail: (when, offset) of each...
        self.options: dict[int, bytes] = {}  # ...and options by offset, of those that have any.
        self.tail_bytes = 0  # As a page.
        self.held_bytes = 0  # In memory.
        self.pages: list[Page] = []

    def packed_tail(self) -> bytes:
        return pages.pack(WIDTHS_MS[self.level], self.number, self.pairs, self.options)


class Drawing:
    """A timetable as it was at one moment, for a checkpoint. While it lives, pages that are opened leave their content here."""

    def __init__(self, table: "Timetable") -> None:
        self.near = table.near.entries()
        self._store = table.store
        self._tails = [(WIDTHS_MS[each.level], each.number, each.pairs[:], each.options.copy()) for each in table.buckets() if each.pairs]
        self._cuts = {page: page.cut for bucket in table.buckets() for page in bucket.pages}  # Of those that were not drawn yet.
        self._rescued: dict[Page, bytes] = {}

    def rescue(self, page: Page, content: bytes) -> None:
        if page in self._cuts:
            self._rescued[page] = content

    def pages(self) -> Iterator[tuple[int, bytes] | None]:
        """(from which offset on nothing counts, the page) of each. None: the next one is not at hand yet; go on a little later."""
        for tail in self._tails:
            yield NO_CUT, pages.pack(*tail)
        while self._cuts:
            page, cut = next(iter(self._cuts.items()))
            content = self._rescued.pop(page, None)
            if content is None and page.place is not None:
                content = self._store.get(page.place)
                if content is None:
                    yield None
                    continue
            del self._cuts[page]
            if content is not None:  # Else it was dropped: what was in it was finished, or is learned anew, by records that come later.
                yield cut, content


class Timetable:
    def __init__(
        self, name: str, store: PageStore, wall_ms: int, *, counts: Callable[[int], bool], arrived: Callable[[int, bytes], None]
    ) -> None:
        """`arrived` hears of each message with options whose entry is near now. The clock may well be 0: then all is far at first."""
        self.near = Schedule(is_near=True)
        self.store = store
        self._name = name
        self._wall_ms = wall_ms  # The latest that was heard of.
        self._counts = counts
        self._arrived = arrived
        self._levels: tuple[dict[int, Bucket], ...] = tuple({} for _ in _LEVELS)
        self._order: tuple[list[int], ...] = tuple([] for _ in _LEVELS)  # Heaps of the numbers of buckets.
        self._opens_ms: int | None = None  # When the next step of opening is due. None: nothing is far.
        self._tails_bytes = 0  # In memory.
        self._far = 0
        self._drawing: ref[Drawing] | None = None

    def __len__(self) -> int:
        return self.near.size + self._far

    @property
    def held_bytes(self) -> int:
        """In memory, about."""
        return len(self.near) * 20 + self._tails_bytes + sum(400 + 200 * len(each.pages) for each in self.buckets())

    def buckets(self) -> Iterator[Bucket]:
        return (bucket for level in self._levels for bucket in level.values())

    def add(self, when_ms: int, offset: int, options: bytes = b"") -> bool:
        """Whether it is far away, so that its options are kept here."""
        if when_ms <= self._wall_ms + LEADS_MS[0]:
            self.near.add(when_ms, offset)
            return False
        for level in reversed(_LEVELS):
            number = _bucket_of(level, when_ms)
            if _opens_ms(level, number) > self._wall_ms:
                self._file(level, number, when_ms, offset, options)
                return True
        self.near.add(when_ms, offset)
        return False

    def next_ms(self, wall_ms: int) -> int | None:
        """When the next entry is due, or, where that is after now, some time earlier. None: there is none."""
        self._wall_ms = max(self._wall_ms, wall_ms)
        if self._opens_ms is None:
            return self.near.next_ms(wall_ms) if self.near.size else None
        if self._opens_ms <= wall_ms:
            self._open(wall_ms)
        near_ms, opens_ms = self.near.next_ms(wall_ms), self._opens_ms
        return near_ms if opens_ms is None else opens_ms if near_ms is None else min(near_ms, opens_ms)

    def pop(self, wall_ms: int) -> tuple[int, int] | None:
        """The first entry that is due by now and at hand: (when, offset)."""
        self._wall_ms = max(self._wall_ms, wall_ms)
        if self._opens_ms is not None and self._opens_ms <= wall_ms:
            self._open(wall_ms)
        return self.near.pop(wall_ms) if self.near.size else None

    def open_due(self, wall_ms: int) -> bool:
        """A step of opening what is due by now. False: it was not the last one, or waits for a page."""
        if self._opens_ms is not None:
            self._open(wall_ms)
        return self._next_to_open() is None

    def recall(self, offsets: Sequence[int]) -> bool:
        """Brings the options of these messages, in order, although their time has not come. False: a page is not at hand yet."""
        for bucket in self.buckets():
            for offset in offsets:
                if offset in bucket.options:
                    self._arrived(offset, bucket.options[offset])
            for page in bucket.pages:
                among = offsets[bisect_left(offsets, page.first) : bisect_left(offsets, min(page.end, page.cut))]
                content = self.store.get(page.place) if among else b""
                if content is None:
                    return False
                options = pages.unpack(content).options if content else {}
                for offset in among:
                    if offset in options:
                        self._arrived(offset, options[offset])
        return True

    def unlearn(self, end: int) -> None:
        """Messages from here on will be learned of anew."""
        self.near.drop_from(end)
        for bucket in self.buckets():
            self._set_tail(bucket, _below(bucket.pairs, end), {each: packed for each, packed in bucket.options.items() if each < end})
            for page in [page for page in bucket.pages if page.first >= end]:
                self._drop_page(bucket, page)
            for page in bucket.pages:
                page.cut = min(page.cut, end)
        self._sweep()

    def clear_far(self) -> None:
        """Nothing that is far counts."""
        for bucket in self.buckets():
            for page in bucket.pages[:]:
                self._drop_page(bucket, page)
            self._set_tail(bucket, array("q"), {})
        self._sweep()

    # Checkpoints

    def draw(self, has_any: Callable[[int, int], bool]) -> Drawing:
        """As it is now. Pages of which nothing counts (`has_any` of a range of offsets) go first."""
        for bucket in self.buckets():
            for page in [page for page in bucket.pages if not has_any(page.first, page.end)]:
                self._drop_page(bucket, page)
        self._sweep()
        drawing = Drawing(self)
        self._drawing = ref(drawing)
        return drawing

    def restore(self, cut: int, content: bytes) -> None:
        """A page of a checkpoint. Small ones become tails again. Raises ValueError or struct.error."""
        width_ms, number, pairs, _ = pages.unpack_pairs(content)
        if len(content) < pages.PAGE_BYTES // 2 or width_ms not in WIDTHS_MS:
            self._scatter(pairs, pages.unpack(content).options, cut)
        else:
            self._far += len(pairs) // 2
            self._add_page(self._bucket(WIDTHS_MS.index(width_ms), number), pairs, content, cut)

    # Filing

    def _bucket(self, level: int, number: int) -> Bucket:
        bucket = self._levels[level].get(number)
        if bucket is None:
            bucket = self._levels[level][number] = Bucket(level, number)
            heappush(self._order[level], number)
            opens_ms = _opens_ms(level, number)
            self._opens_ms = opens_ms if self._opens_ms is None else min(self._opens_ms, opens_ms)
        return bucket

    def _file(self, level: int, number: int, when_ms: int, offset: int, options: bytes) -> None:
        bucket = self._levels[level].get(number) or self._bucket(level, number)
        bucket.pairs.append(when_ms)
        bucket.pairs.append(offset)
        held_bytes = ENTRY_BYTES
        if options:
            bucket.options[offset] = options
            held_bytes += len(options) + OPTIONS_HELD_BYTES
        bucket.tail_bytes += pages.size_of(options)
        bucket.held_bytes += held_bytes
        self._tails_bytes += held_bytes
        self._far += 1
        if bucket.tail_bytes >= pages.PAGE_BYTES:
            self._put(bucket)
        elif self._tails_bytes > TAILS_BYTES:
            self._put(max(self.buckets(), key=lambda each: each.tail_bytes))

    def _put(self, bucket: Bucket) -> None:
        self._far += len(bucket.pairs) // 2
        self._add_page(bucket, bucket.pairs, bucket.packed_tail(), NO_CUT)
        self._set_tail(bucket, array("q"), {})

    def _add_page(self, bucket: Bucket, pairs: "array[int]", content: bytes, cut: int) -> None:
        offsets = pairs[1::2]
        place = self.store.put(f"{self._name}-{WIDTHS_MS[bucket.level]}-{bucket.number}", content)
        bucket.pages.append(Page(place, len(offsets), min(offsets), max(offsets) + 1, cut))

    def _set_tail(self, bucket: Bucket, pairs: "array[int]", options: dict[int, bytes]) -> None:
        """What was in it counts no more, or is elsewhere."""
        self._far += (len(pairs) - len(bucket.pairs)) // 2
        self._tails_bytes -= bucket.held_bytes
        entries_bytes, options_bytes = ENTRY_BYTES * (len(pairs) // 2), sum(map(pages.size_of, options.values()))
        bucket.pairs, bucket.options = pairs, options
        bucket.tail_bytes = entries_bytes + options_bytes - ENTRY_BYTES * len(options)
        bucket.held_bytes = entries_bytes + sum(map(len, options.values())) + OPTIONS_HELD_BYTES * len(options)
        self._tails_bytes += bucket.held_bytes

    # Opening

    def _open(self, wall_ms: int) -> None:
        """A step of what is due, coarse buckets first."""
        self._wall_ms = max(self._wall_ms, wall_ms)
        opened, is_at_hand = 0, True
        while is_at_hand and opened < OPENED_AT_ONCE and (bucket := self._next_to_open()) is not None:
            if bucket.pairs:
                pairs, options = bucket.pairs, bucket.options
                self._set_tail(bucket, array("q"), {})
                opened += self._scatter(pairs, options, NO_CUT)
            elif bucket.pages:
                is_at_hand = (count := self._open_page(bucket, bucket.pages[0])) is not None
                opened += count or 0
            else:
                heappop(self._order[bucket.level])
                del self._levels[bucket.level][bucket.number]
        self._opens_ms = self._next_opening(wall_ms, is_at_hand=is_at_hand)

    def _next_to_open(self) -> Bucket | None:
        for level in reversed(_LEVELS):
            order = self._order[level]
            if order and _opens_ms(level, order[0]) <= self._wall_ms:
                return self._levels[level][order[0]]
        return None

    def _next_opening(self, wall_ms: int, *, is_at_hand: bool) -> int | None:
        bucket = self._next_to_open()
        if bucket is None:
            return min((_opens_ms(level, self._order[level][0]) for level in _LEVELS if self._order[level]), default=None)
        if not is_at_hand:
            return wall_ms + AGAIN_MS
        is_ahead = bucket.number * WIDTHS_MS[bucket.level] > wall_ms
        return wall_ms + (PACE_AHEAD_MS if is_ahead else PACE_MS)

    def _open_page(self, bucket: Bucket, page: Page) -> int | None:
        """How many entries it had. None: it is not at hand."""
        content = self.store.get(page.place)
        if content is None:
            return None
        drawing = None if self._drawing is None else self._drawing()
        if drawing is not None:
            drawing.rescue(page, content)
        self._drop_page(bucket, page)
        _, _, pairs, options = pages.unpack(content)
        return self._scatter(pairs, options, page.cut)

    def _scatter(self, pairs: "array[int]", options: dict[int, bytes], cut: int) -> int:
        for at in range(0, len(pairs), 2):
            offset = pairs[at + 1]
            if offset < cut and self._counts(offset):
                with_it = options.get(offset, b"")
                if not self.add(pairs[at], offset, with_it) and with_it:
                    self._arrived(offset, with_it)
        return len(pairs) // 2

    # Dropping

    def _drop_page(self, bucket: Bucket, page: Page) -> None:
        bucket.pages.remove(page)
        self._far -= page.count
        self.store.drop(page.place)
        page.place = None

    def _sweep(self) -> None:
        """Buckets with nothing in them go."""
        for level in _LEVELS:
            kept = {number: bucket for number, bucket in self._levels[level].items() if bucket.pairs or bucket.pages}
            self._levels[level].clear()
            self._levels[level].update(kept)
            self._order[level][:] = list(kept)
            heapify(self._order[level])
        if not any(self._order):
            self._opens_ms = None


def _bucket_of(level: int, when_ms: int) -> int:
    return (when_ms if level < _LEVELS[-1] else min(when_ms, LAST_MS)) // WIDTHS_MS[level]


def _opens_ms(level: int, number: int) -> int:
    return number * WIDTHS_MS[level] - LEADS_MS[level]


def _below(pairs: "array[int]", end: int) -> "array[int]":
    kept = array("q")
    for at in range(0, len(pairs), 2):
        if pairs[at + 1] < end:
            kept.extend(pairs[at : at + 2])
    return kept
