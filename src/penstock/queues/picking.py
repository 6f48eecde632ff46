"""Which messages a taker gets. Nothing is taken out of line here: that happens when the lease is replayed.

Strict levels: the highest priority first. With a starvation guard, every so manieth delivery of the ledger goes to the message that has the
first place of all, whatever its level. Within a level, by place; a FIFO group that is begun is given as far as it goes before the next one,
which is up to its first message that is in flight or waits for its next try.
Noisy tenants of a fair queue come after all others of their level.
Entries that do not count any more are passed over, so many in one call; then it ends, as if there was no more. They are cleaned away piece
by piece, at each look at the clock: who finds nothing, and reads that the search was cut, asks again at once.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice, takewhile

from penstock.queues.headers import PRIORITY_DEFAULT
from penstock.queues.lanes import OFFSET_MASK, Lane, entry_of, in_order, step
from penstock.queues.message_groups import MessageGroup
from penstock.queues.messages import Messages
from penstock.queues.ready import Ready

PASSED_MAX = 500  # Entries that are passed over in one call: some milliseconds.

_FOLLOWER = -1  # In place of a position in a heap: the next one of a tenant.


def pick(ready: Ready, messages: Messages, count: int, *, next_lease: int, in_flight: int, wall_ms: int) -> list[int]:
    """Offsets, in the order in which they are given."""
    ready.is_cut = False
    lanes = [(level, lane) for level, lane in enumerate(ready.lanes) if lane.runs or lane.heap]
    if not lanes:
        return []
    if len(lanes) == 1 and lanes[0][0] == PRIORITY_DEFAULT and not lanes[0][1].heap:
        return ready.first_fresh(lanes[0][1], count)
    picker = _Picker(ready, messages, in_flight, wall_ms)
    streams = [picker.level(lane) for _, lane in reversed(lanes)]
    every = ready.policy.starvation_every
    if not every or len(streams) == 1:
        entries = islice((entry for stream in streams for entry in stream), count)
    else:
        entries = islice(_guarded([_Line(stream) for stream in streams], count, next_lease, every), count)
    offsets = [entry & OFFSET_MASK for entry in entries]
    ready.is_cut = picker.is_cut
    return offsets


class _Line:
    """What is to be given of a level or a tenant, with the next one known."""

    def __init__(self, entries: Iterator[int], in_flight: int = 0) -> None:
        self._entries = entries
        self.in_flight = in_flight
        self.next = next(entries, None)

    def take(self) -> int:
        entry, self.next = self.next, next(self._entries, None)
        assert entry is not None
        return entry


def _guarded(lines: list[_Line], count: int, next_lease: int, every: int) -> Iterator[int]:
    for lease in range(next_lease, next_lease + count):
        left = [(line.next, line) for line in lines if line.next is not None]
        if not left:
            return
        is_first_places_turn = lease % every == 0
        yield (min(left, key=lambda each: each[0]) if is_first_places_turn else left[0])[1].take()


class _Picker:
    def __init__(self, ready: Ready, messages: Messages, in_flight: int, wall_ms: int) -> None:
        self._ready = ready
        self._messages = messages
        self._in_flight = in_flight
        self._wall_ms = wall_ms
        self._may_expire = len(messages.expiries) > 0
        self._passed = 0
        self._lines: dict[int, Iterator[int]] = {}  # What follows of tenants that were begun. By identity; never iterated.

    @property
    def is_cut(self) -> bool:
        return self._passed >= PASSED_MAX

    def level(self, lane: Lane) -> Iterator[int]:
        """Entries of one lane in the order in which they are given."""
        noisy: dict[int, MessageGroup] = {}
        seen: set[int] = set()
        for entry in self._merged(lane, noisy):
            if entry in seen or self._is_expired(entry & OFFSET_MASK):
                self._passed += 1
            else:
                seen.add(entry)
                yield entry
        yield from self._of_noisy(list(noisy.values()))

    def _merged(self, lane: Lane, noisy: dict[int, MessageGroup]) -> Iterator[int]:
        heap = lane.heap
        frontier = [(heap[0], 0)] if heap else []
        fresh = filter(self._ready.is_fresh, lane.fresh())
        next_fresh = next(fresh, None)
        while (frontier or next_fresh is not None) and not self.is_cut:
            if next_fresh is not None and (not frontier or entry_of(next_fresh, next_fresh) < frontier[0][0]):
                yield entry_of(next_fresh, next_fresh)
                next_fresh = next(fresh, None)
                continue
            entry, at = frontier[0]
            if at == _FOLLOWER:
                heappop(frontier)
            else:
                step(heap, frontier, at)
                if not self._ready.counts(entry):
                    self._passed += 1
                    continue
            yield from self._with_its_group(entry, frontier, noisy)

    def _with_its_group(self, entry: int, frontier: list[tuple[int, int]], noisy: dict[int, MessageGroup]) -> Iterator[int]:
        group = self._ready.group_of(entry & OFFSET_MASK)
        if group is None:
            yield entry
        elif self._ready.policy.is_fifo:
            first_held = self._ready.first_held(group)
            in_front = takewhile(lambda each: each & OFFSET_MASK < first_held, in_order(group.pending))
            yield from self._in_line(in_front)
        elif group.judge(self._wall_ms, self._in_flight, self._ready.spent.of_late(self._wall_ms)):
            noisy[id(group)] = group
        else:
            yield entry
            line = self._lines.get(id(group))
            if line is None:
                line = self._lines[id(group)] = self._in_line(in_order(group.pending))
                next(line, None)  # The one that was just given.
            follower = next(line, None)
            if follower is not None:
                heappush(frontier, (follower, _FOLLOWER))

    def _of_noisy(self, groups: list[MessageGroup]) -> Iterator[int]:
        """Always one of the tenant with the least in flight, what was just picked included."""
        lines = [_Line(self._unexpired(self._in_line(in_order(group.pending))), group.in_flight) for group in groups]
        while left := [line for line in lines if line.next is not None]:
            line = min(left, key=lambda each: each.in_flight)
            line.in_flight += 1
            yield line.take()

    def _in_line(self, entries: Iterator[int]) -> Iterator[int]:
        for entry in entries:
            if self.is_cut:
                return
            if self._ready.is_in_line(entry):
                yield entry
            else:
                self._passed += 1

    def _unexpired(self, entries: Iterator[int]) -> Iterator[int]:
        for entry in entries:
            if not self._is_expired(entry & OFFSET_MASK):
                yield entry
            else:
                self._passed += 1

    def _is_expired(self, offset: int) -> bool:
        if not self._may_expire:
            return False
        expires_at = self._messages.options(offset).expires_at
        return 0 < expires_at <= self._wall_ms
