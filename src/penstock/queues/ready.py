"""Who is next in one ledger: lanes by priority, groups, and what waits for its time. All of it is derived, and is built anew at a load.

Every message that is neither done, nor leased, nor being buried is in exactly one of these: a lane's runs, a lane's heap, its group's heap,
`retrying` (it waits for its next try), or among those that `Messages` knows to be delayed. Entries that say otherwise are stale: a look at
the message's row tells, and they are passed over.
Not here: which of them a taker gets (picking.py).
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from penstock.queues.bits import Bits, DoneSet
from penstock.queues.headers import PRIORITY_DEFAULT
from penstock.queues.lanes import LEVELS, OFFSET_MASK, Lane, entry_of
from penstock.queues.message_groups import NONE_HELD, NONE_LISTED, MessageGroup, Spent
from penstock.queues.messages import Messages
from penstock.queues.policy import Policy
from penstock.queues.rows import ROW
from penstock.queues.schedule import Schedule
from penstock.queues.states import State

_READY, _LEASED = State.READY.value, State.LEASED.value


class Ready:
    def __init__(self, messages: Messages, rows: dict[int, bytes], done: DoneSet, policy: Policy) -> None:
        self._messages = messages
        self._rows = rows
        self._done = done
        self.policy = policy
        self.is_grouped = policy.is_fifo or policy.is_fair
        self.lanes = [Lane() for _ in range(LEVELS)]
        self.groups: dict[bytes, MessageGroup] = {}  # Those with anything in line or in flight.
        self.spent = Spent()  # By all workers together.
        self.leases = Schedule(alive=rows)  # For each lease an entry at its end, or earlier.
        self.retries = Schedule()
        self.retrying = Bits()  # Those that wait in `retries`.
        self.is_cut = False  # Whether whoever last picked gave up: there is more to pass over than one call may.

    def fits(self, policy: Policy) -> bool:
        """Whether it can go on under this policy."""
        mine = self.policy
        return (mine.is_fifo, mine.is_fair, mine.has_priorities) == (policy.is_fifo, policy.is_fair, policy.has_priorities)

    # Messages come into line

    def add_run(self, start: int, end: int) -> None:
        """Plain messages, none of them below any that came this way before."""
        self.lanes[PRIORITY_DEFAULT].add_run(start, end)

    def add(self, offset: int, place: int, sent_ms: int = 0) -> None:
        kept = self._messages.options(offset)
        if self.is_grouped and kept.group:
            group = self.groups.setdefault(kept.group, MessageGroup())
            group.sent_ms = max(group.sent_ms, sent_ms)
            heappush(group.pending, entry_of(place, offset))
            self._list(group)
        else:
            self.lanes[self.policy.level_of(kept.priority)].add(entry_of(place, offset))

    # What becomes of them

    def leased(self, offset: int, deadline_ms: int) -> None:
        self.leases.add(deadline_ms, offset)
        if self.is_grouped:
            self._hold_of_group(offset)

    def all_leased(self, offsets: Sequence[int], deadline_ms: int) -> None:
        if offsets:
            self.leases.add_all(deadline_ms, offsets)
        if self.is_grouped and self._messages.kept:  # Only those with options may have a group.
            for offset in offsets:
                self._hold_of_group(offset)

    def leased_again(self, offset: int, deadline_ms: int) -> None:
        """By whoever had it last."""
        self._stop_waiting(offset)
        self.leased(offset, deadline_ms)

    def returned(self, offset: int, place: int, not_before: int, wall_ms: int, *, held_ms: int) -> None:
        """Nobody has it any more."""
        group = self._let_go(offset)
        self._spend(group, held_ms, wall_ms)
        if not_before > wall_ms:
            self.wait(offset, not_before)
            if group is not None:
                self._list(group)
        else:
            self.add(offset, place)

    def wait(self, offset: int, until_ms: int) -> None:
        self.retries.add(until_ms, offset)
        self.retrying.add(offset)
        if self.is_grouped and (name := self._messages.options(offset).group):
            group = self.groups.setdefault(name, MessageGroup())
            group.waiting += 1
            self._hold(group, offset)

    def gone(self, offset: int, *, was_leased: bool, held_ms: int = 0, wall_ms: int = 0) -> None:
        """It is done, or being buried."""
        group = self._let_go(offset) if was_leased else self._group_of(offset) if self.groups else None
        if self.retrying.count and self.retrying.discard(offset) and group is not None:
            group.waiting -= 1
        if group is None:
            return
        self._spend(group, held_ms, wall_ms)
        self._list(group)
        if group.is_over:
            self.groups.pop(self._messages.options(offset).group, None)

    def come(self, wall_ms: int, count_max: int) -> int:
        """Those whose next try has come get into line: how many entries were looked at."""
        for looked_at in range(count_max):
            found = self.retries.pop(wall_ms)
            if found is None:
                return looked_at
            offset = found[1]
            if offset in self.retrying and (fields := ROW.unpack_from(self._rows[offset]))[3] <= wall_ms:  # Else it is of an earlier try.
                self._stop_waiting(offset)
                self.add(offset, fields[4])
        return count_max

    def expired(self, offset: int) -> None:
        """Its own time is up: another one stands for its group."""
        group = self._group_of(offset)
        if group is not None:
            self._list(group)

    def clean(self) -> None:
        for lane in self.lanes:
            if lane.runs or lane.heap:  # Said at length: this is asked at each decision, and mostly of empty ones.
                lane.clean(self._rows, self._done, self.counts)

    # What counts

    def is_fresh(self, offset: int) -> bool:
        """Of an offset in a lane's runs: it was never taken, and is not done."""
        return offset not in self._rows and offset not in self._done

    def first_fresh(self, lane: Lane, count: int) -> list[int]:
        """So many of a lane's runs that are fresh, at most. Written straight: nearly all that is ever taken is found here."""
        rows, base, bits = self._rows, self._done.base, self._done.bits
        has_gaps, found, runs = bits.count > 0, list[int](), iter(lane.runs)
        for start in runs:
            for offset in range(max(start, base), next(runs)):
                if offset not in rows and not (has_gaps and offset in bits):
                    found.append(offset)
                    if len(found) == count:
                        return found
        return found

    def is_in_line(self, entry: int) -> bool:
        """Of an entry of a heap: the message may be taken, and has this place."""
        offset = entry & OFFSET_MASK
        if (expired := self._messages.expired).count and offset in expired:
            return False
        row = self._rows.get(offset)
        if row is None:
            return offset not in self._done
        return row[0] == _READY and offset not in self.retrying and ROW.unpack_from(row)[4] == entry >> 64

    def counts(self, entry: int) -> bool:
        """Of an entry of a lane's heap: it is in line, and nothing of its group is before it."""
        if not self.is_in_line(entry):
            return False
        group = self._group_of(entry & OFFSET_MASK)
        return group is None or self.head(group) == entry

    def head(self, group: MessageGroup) -> int:
        """The entry of the first message of a group that may be taken; NONE_LISTED where there is none."""
        pending = group.pending
        while pending and not self.is_in_line(pending[0]):
            heappop(pending)
        return pending[0] if pending and pending[0] & OFFSET_MASK < self.first_held(group) else NONE_LISTED

    def first_held(self, group: MessageGroup) -> int:
        """Nothing of the group is given from this offset on."""
        held = group.held
        while held and not self._is_held(held[0]):
            heappop(held)
        return held[0] if held else NONE_HELD

    def group_of(self, offset: int) -> MessageGroup | None:
        """None: it has none, or groups don't matter here."""
        return self._group_of(offset)

    def _group_of(self, offset: int) -> MessageGroup | None:
        if not self.groups:
            return None
        name = self._messages.options(offset).group
        return self.groups.get(name) if name else None

    def _hold_of_group(self, offset: int) -> None:
        name = self._messages.options(offset).group
        if name:
            group = self.groups.setdefault(name, MessageGroup())
            group.in_flight += 1
            self._hold(group, offset)
            self._list(group)

    def _hold(self, group: MessageGroup, offset: int) -> None:
        if self.policy.is_fifo:
            heappush(group.held, offset)  # Twice at most: before it is given again, all up to it were found to be held no more.

    def _is_held(self, offset: int) -> bool:
        row = self._rows.get(offset)
        return row is not None and (row[0] == _LEASED or offset in self.retrying)

    def _let_go(self, offset: int) -> MessageGroup | None:
        group = self._group_of(offset)
        if group is not None:
            group.in_flight -= 1
        return group

    def _stop_waiting(self, offset: int) -> bool:
        """Whether it did wait for its next try."""
        is_waiting = self.retrying.discard(offset)
        if is_waiting and (group := self._group_of(offset)) is not None:
            group.waiting -= 1
        return is_waiting

    def _spend(self, group: MessageGroup | None, held_ms: int, wall_ms: int) -> None:
        if group is not None and held_ms:
            group.spent.add(held_ms, wall_ms)
            self.spent.add(held_ms, wall_ms)

    def _list(self, group: MessageGroup) -> None:
        """The first of the group stands in a lane for all of it."""
        head = self.head(group)
        if head != group.listed:
            group.listed = head
            if head == NONE_LISTED:
                group.is_noisy = False  # Its backlog is drained.
            else:
                level = self.policy.level_of(self._messages.options(head & OFFSET_MASK).priority)
                self.lanes[level].add(head)
