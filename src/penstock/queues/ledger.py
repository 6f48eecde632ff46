"""The ledger of one group over one data partition: what is done, and a row for each message that somebody has or had.

Only `replay` changes what is recorded, and it never refuses: a record in the log has happened. It keeps the index (`ready`) in step, where
there is one: while loading there is none, for messages are learned of after the records.
"""

import struct
from bisect import bisect_left
from collections.abc import Callable
from typing import assert_never

from penstock.queues import history, many
from penstock.queues.bits import DoneSet, runs_outside
from penstock.queues.messages import Messages
from penstock.queues.policy import Policy
from penstock.queues.ready import Ready
from penstock.queues.records import Bound, Changed, Leased, Turn, Turned
from penstock.queues.repeats import Repeats
from penstock.queues.rows import HEARD, LET_GO, ROW, Row, packed, read
from penstock.queues.states import State

_READY, _LEASED, _BURYING = State.READY.value, State.LEASED.value, State.BURYING.value

PLACE = struct.Struct("<16si?")  # Where a message is moved to: topic id and partition; whether it was sent off.

# Of all failures that are remembered. Beyond it a message's last failure alone is.
HISTORY_BYTES_MAX = 64 << 20


class Ledger:
    def __init__(
        self, group: str, messages: Messages, base: int, forget: Callable[[int], None], forget_run: Callable[[int, int], None]
    ) -> None:
        """`forget` hears of each message that is done here: others may need its options still. `forget_run` hears of those that wait."""
        self.group = group
        self._messages = messages
        self._forget = forget
        self._forget_run = forget_run
        self.done = DoneSet(base)
        self.rows: dict[int, bytes] = {}
        self.failures: dict[int, bytes] = {}  # What went wrong, of messages that are not done.
        self.failures_bytes = 0
        self.burying: dict[int, None] = {}  # In the order in which they failed.
        self.bound: dict[int, bytes] = {}  # Where each of them goes, as far as that is decided (PLACE).
        self.purged_ms = 0  # When it was last purged.
        self.repeats = Repeats()
        self.next_lease = 1  # No lease at or above this was ever given.
        self.leased = 0  # How many are in flight.
        self.finished = 0
        self.dropped = 0
        self.is_paused = False
        self.swept_to = 0  # Messages below were looked at for their age; those in flight are looked at when they come back.
        self.news: dict[int, None] = {}  # What is being buried since this was last asked for.
        self.ready: Ready | None = None

    # Replaying

    def replay_leased(self, record: Leased) -> None:
        ready, wall_ms, deadline_ms, count = self.ready, record.wall_ms, record.deadline_ms, len(record.offsets)
        before = many.lease_rows(self.rows, record)
        self.leased += count - before
        self.next_lease = max(self.next_lease, record.first_lease + count)
        if record.attempt_id:
            self.repeats.note(record.attempt_id, wall_ms, [(each, record.first_lease + at) for at, each in enumerate(record.offsets)])
        if ready is not None:
            ready.all_leased(record.offsets, deadline_ms)
            ready.clean()

    def replay_changed(self, record: Changed) -> None:
        for start, end in record.done:
            if end == start + 1:
                self._finish(start, record.wall_ms)
            else:
                self._finish_run(start, end, record.wall_ms)
            self.dropped += (end - start) * record.is_dropped
        for offset, not_before, place, is_failure, who, reason, is_undone, is_let_go in record.returned:
            row = self._let_go(offset)
            if row is not None:
                if is_failure:
                    self._note_failure(offset, row, record.wall_ms, who, reason)
                attempts, flags = row.attempts - is_undone, LET_GO if is_let_go else 0
                self.rows[offset] = packed(row._replace(state=_READY, attempts=attempts, flags=flags, when=not_before, place=place))
                if self.ready is not None:
                    self.ready.returned(offset, place, not_before, record.wall_ms, held_ms=record.wall_ms - row.taken_ms)
            else:
                self._come_back(offset)
        for offset, deadline_ms in record.extended:
            self._extend(offset, deadline_ms)
        for offset, who, reason in record.buried:
            row = self._let_go(offset)
            if row is not None:
                self._note_failure(offset, row, record.wall_ms, who, reason)
                self.rows[offset] = packed(row._replace(state=_BURYING, when=record.wall_ms))
                self.burying[offset] = self.news[offset] = None
                if self.ready is not None:
                    self.ready.gone(offset, was_leased=True, held_ms=record.wall_ms - row.taken_ms, wall_ms=record.wall_ms)

    def replay_bound(self, record: Bound) -> None:
        place = PLACE.pack(record.topic_id, record.partition, record.is_sent_off)
        for lease, offset in enumerate(record.offsets, record.first_lease):
            if record.is_sent_off:
                self._send_off(offset, lease, record.wall_ms)
            if offset in self.burying:
                self.bound[offset] = place
        if record.is_sent_off:
            self.next_lease = max(self.next_lease, record.first_lease + len(record.offsets))

    def replay_turned(self, record: Turned) -> None:
        """PURGED, REWOUND and STARTED leave no index: it is built anew."""
        match record.what:
            case Turn.PAUSED:
                self.is_paused = True
            case Turn.RESUMED:
                self.is_paused = False
            case Turn.PURGED:
                self.finished += self.done.add_range(self.done.base, record.offset)
                self.purged_ms = record.wall_ms
                self._drop_rows(lambda offset: offset < record.offset)
            case Turn.REWOUND:
                self._rewind(record.offset)
            case Turn.STARTED:
                self.done = DoneSet(record.offset)
                self._drop_rows(lambda _: True)
                self.is_paused = False
            case Turn.FORGOTTEN | Turn.DELAYED:
                pass
            case _:
                assert_never(record.what)

    def skip(self, start: int, end: int) -> None:
        """There are no messages here, only offsets."""
        self.done.add_range(start, end)

    # The index

    def index(self, policy: Policy, wall_ms: int) -> None:
        """Builds it anew from what is recorded and what is known of messages."""
        ready = self.ready = Ready(self._messages, self.rows, self.done, policy)
        self.swept_to = 0
        in_line: list[tuple[int, int]] = []
        for offset, packed_row in self.rows.items():
            state, _, _, when, place, _, _ = ROW.unpack_from(packed_row)
            if state == _LEASED:
                ready.leased(offset, when)
            elif state == _READY and when > wall_ms:
                ready.wait(offset, when)
            elif state == _READY:
                in_line.append((offset, place))
        self._index_unread(ready)
        for offset, place in in_line:
            ready.add(offset, place)

    def _index_unread(self, ready: Ready) -> None:
        """Messages that nobody has had yet."""
        messages, base, end = self._messages, self.done.base, self._messages.learned_end
        special = sorted(offset for offset in messages.kept if base <= offset < end)
        for offset in special:
            if offset not in self.done and offset not in self.rows and offset not in messages.waiting and offset not in messages.duplicates:
                ready.add(offset, offset, messages.written_ms(offset))
        hidden = messages.waiting.copy()  # By the chunk: millions may wait.
        for offset in [*special, *messages.duplicates]:
            hidden.add(offset)
        for number, chunk in self.done.bits.chunks.items():
            hidden.chunks[number] = hidden.chunks.get(number, 0) | chunk
        for start, stop in runs_outside(hidden.chunks, base, end):
            ready.add_run(start, stop)

    # One message

    def _finish(self, offset: int, wall_ms: int) -> None:
        if self.done.add(offset):
            self.finished += 1
            if not self._clear_plain(offset, offset + 1):
                self._clear(offset, wall_ms)

    def _finish_run(self, start: int, end: int, wall_ms: int) -> None:
        """Only those that are more than plain and unread need a look each."""
        messages = self._messages
        for each_start, each_end in list(self.done.gaps(start, end)):
            self.finished += self.done.add_range(each_start, each_end)
            count = each_end - each_start
            if self._clear_plain(each_start, each_end):
                continue
            if len(self.rows) + len(messages.kept) + len(messages.duplicates) < count:
                named = sorted({*self.rows, *messages.kept, *messages.duplicates})
                for offset in named[bisect_left(named, each_start) : bisect_left(named, each_end)]:
                    self._clear(offset, wall_ms)
            else:
                for offset in range(each_start, each_end):
                    self._clear(offset, wall_ms)
            self._forget_run(each_start, each_end)

    def _clear_plain(self, start: int, end: int) -> bool:
        """What nearly all are: messages without options that were given once, to be worked on, in a ledger where no other thing has to be
        known. False: it is not so, and nothing was done."""
        messages, ready, rows = self._messages, self.ready, self.rows
        if messages.kept or messages.duplicates or messages.waiting.count or self.failures or self.burying or end - start > len(rows):
            return False
        if ready is None or ready.groups or ready.retrying.count:
            return False
        self.leased -= many.drop_rows(rows, start, end)
        return True

    def _clear(self, offset: int, wall_ms: int) -> None:
        """It is done: nothing else has to be known of it."""
        packed_row = self.rows.pop(offset, None)
        was_leased, held_ms = False, 0
        if packed_row is not None:
            was_leased = packed_row[0] == _LEASED
            if was_leased:
                self.leased -= 1
                held_ms = wall_ms - ROW.unpack_from(packed_row)[6]
            elif packed_row[0] == _BURYING:
                self._unbury(offset)
            self.failures_bytes -= len(self.failures.pop(offset, b""))
        if self.ready is not None:
            self.ready.gone(offset, was_leased=was_leased, held_ms=held_ms, wall_ms=wall_ms)
        self._forget(offset)

    def _let_go(self, offset: int) -> Row | None:
        """The row of a message that somebody has; now nobody has it. None: nobody had."""
        packed_row = self.rows.get(offset)
        if packed_row is None or packed_row[0] != _LEASED:
            return None
        self.leased -= 1
        return read(packed_row)

    def _send_off(self, offset: int, lease: int, wall_ms: int) -> None:
        packed_row = self.rows.get(offset)
        if packed_row is not None and packed_row[0] != _READY:
            return
        if packed_row is None:
            self.rows[offset] = ROW.pack(_BURYING, 0, lease, wall_ms, offset, 0, 0)
        else:
            self.rows[offset] = packed(read(packed_row)._replace(state=_BURYING, lease=lease, when=wall_ms))
        self.burying[offset] = self.news[offset] = None
        if self.ready is not None:
            self.ready.gone(offset, was_leased=False)

    def _come_back(self, offset: int) -> None:
        """It was sent off, and is not to go. It keeps its row, also where nobody ever had it: a run that has it in line must not count."""
        packed_row = self.rows.get(offset)
        if packed_row is None or packed_row[0] != _BURYING:
            return
        self._unbury(offset)
        row = read(packed_row)
        self.rows[offset] = packed(row._replace(state=_READY, when=0))
        if self.ready is not None:
            self.ready.add(offset, row.place)

    def _unbury(self, offset: int) -> None:
        for some in (self.burying, self.news, self.bound):
            some.pop(offset, None)

    def _extend(self, offset: int, deadline_ms: int) -> None:
        """A lease that had lapsed counts again."""
        packed_row = self.rows.get(offset)
        if packed_row is None or packed_row[0] == _BURYING:
            return
        row = read(packed_row)
        self.rows[offset] = packed(row._replace(state=_LEASED, flags=HEARD, when=deadline_ms))
        if row.state == _READY:
            self.leased += 1
            if self.ready is not None:
                self.ready.leased_again(offset, deadline_ms)
        elif self.ready is not None and deadline_ms < row.when:
            self.ready.leases.add(deadline_ms, offset)

    def _note_failure(self, offset: int, row: Row, wall_ms: int, who: bytes, reason: bytes) -> None:
        before = self.failures.get(offset, b"")
        after = history.appended(before, row.taken_ms, wall_ms, who or row.who, reason)
        if self.failures_bytes + len(after) - len(before) > HISTORY_BYTES_MAX:
            after = history.last(after)
        self.failures[offset] = after
        self.failures_bytes += len(after) - len(before)

    # All of them

    def _rewind(self, to: int) -> None:
        """What is in flight or being buried stays so; all else from `to` on begins anew."""
        kept = {offset: row for offset, row in self.rows.items() if offset < to or row[0] != _READY}
        self.done.rewind(to)
        for offset in [offset for offset in self.failures if offset not in kept]:
            self.failures_bytes -= len(self.failures.pop(offset))
        self.rows = kept
        self.ready = None

    def _drop_rows(self, is_dropped: Callable[[int], bool]) -> None:
        for offset in [offset for offset in self.rows if is_dropped(offset)]:
            row = self.rows.pop(offset)
            self.leased -= row[0] == _LEASED
            self.failures_bytes -= len(self.failures.pop(offset, b""))
            self._unbury(offset)
        self.repeats.taken.clear()
        self.ready = None
