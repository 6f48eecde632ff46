"""Messages read from the log: the records at a few offsets, whole.

Taken messages mostly lie side by side, and the next take goes on behind them. So more is read than is wanted, where reading goes on at the
place where it stopped, and what was read stays in hand, up to some bytes, until all of it is taken or nobody has wanted any of it for a
while; it counts as replies do. Only the wanted records of a batch are made into objects. A record that is gone (the log starts later,
compaction took it) has no message. Whoever wants many may be given few: reading ends at a number of bytes, and at least one is read.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from penstock.broker.memory import ReplyRoom
from penstock.log.faults import OffsetOutOfRange
from penstock.partition.partition import Partition
from penstock.settings import KIB, MIB
from penstock.vocabulary import Buffer, Offset
from penstock.wire.batches import HEADER_BYTES, BatchHeader, read_header, unpack_batch
from penstock.wire.keyed_records import UNPACKED_BYTES_MAX
from penstock.wire.messages import Headers, pick_records

READ_BYTES_MIN, READ_BYTES_EACH, READ_BYTES_MAX = 4 * KIB, 1 * KIB, 1 * MIB
AHEAD_BYTES = 64 * KIB
KEPT_BYTES_MAX = 1 * MIB
READ_ALL = 1 << 62

_new_tuple = tuple.__new__  # Half the cost of calling a named tuple's class.


class Message(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Unpacked(NamedTuple):
    header: BatchHeader
    payload: Buffer


class Found(NamedTuple):
    messages: dict[int, Message]
    unread: Sequence[int]  # Offsets that were not looked at, because the others are large.


class Window:
    """Whole batches of the log, in order, each taken apart when it is first wanted."""

    __slots__ = ("_batches", "_ends", "_headers", "_unpacked", "end_offset", "size", "start_offset")

    def __init__(self, content: Buffer) -> None:
        view, position = memoryview(content), 0
        self._headers: list[BatchHeader] = []
        self._ends: list[int] = []  # Their end offsets.
        self._batches: list[memoryview] = []
        self._unpacked: dict[int, Unpacked] = {}  # By their places in the lists.
        while position < len(view):
            header = read_header(view, position)
            end = position + header.size
            self._headers.append(header)
            self._ends.append(header.end_offset)
            self._batches.append(view[position:end])
            position = end
        self.start_offset = self._headers[0].base_offset
        self.end_offset = self._ends[-1]
        self.size = len(view)

    def batch_at(self, offset: int) -> Unpacked:
        """The one that holds the offset, or the next one after it. It must be below the end."""
        at = bisect_right(self._ends, offset)
        found = self._unpacked.get(at)
        if found is None:
            header, batch = self._headers[at], self._batches[at]
            packed = header.codec
            found = Unpacked(header, unpack_batch(batch, bytes_max=UNPACKED_BYTES_MAX)[1] if packed else batch[HEADER_BYTES:])
            if not packed or self.size + len(found.payload) <= KEPT_BYTES_MAX:
                self._unpacked[at] = found
                self.size += len(found.payload) if packed else 0
        return found


class Bodies:
    """Of one partition."""

    __slots__ = ("_counted", "_is_closed", "_is_idle", "_partition", "_room", "_window")

    def __init__(self, partition: Partition, room: ReplyRoom) -> None:
        self._partition = partition
        self._room = room
        self._window: Window | None = None
        self._counted = 0  # What of the window counts in the room.
        self._is_idle = self._is_closed = False

    async def read(self, offsets: Sequence[int], *, bytes_max: int = READ_ALL) -> Found:
        """The messages at these offsets, in this order until they have so many bytes. Raises DiskFailed where the log cannot be read."""
        wanted, messages = sorted(offsets), dict[int, Message]()
        at = await self._read(wanted, bytes_max, messages)
        if at == len(wanted) or wanted == list(offsets):
            return Found(messages, wanted[at:])
        messages.clear()  # Those that come first may lie last.
        first = 0
        for end in [at for at in range(1, len(offsets)) if offsets[at] < offsets[at - 1]] + [len(offsets)]:
            leg = offsets[first:end]
            at = await self._read(leg, bytes_max, messages)
            first += at
            if at < len(leg):
                break
        return Found(messages, offsets[first:])

    def close(self) -> None:
        """Nobody reads here any more. Who still waits for the disk keeps nothing either."""
        self._keep(None)
        self._is_closed = True

    def let_go_if_idle(self) -> None:
        """Of what nobody has wanted since this was last asked."""
        if self._is_idle:
            self._keep(None)
        self._is_idle = True

    def at_hand(self, offsets: Sequence[int], *, bytes_max: int) -> dict[int, Message] | None:
        """All of them at once. None: the disk has to be waited for, one of them is gone, or they are larger than that."""
        wanted, found = sorted(offsets), dict[int, Message]()
        at, window, _ = self._go_on(wanted, 0, self._in_hand(), bytes_max, found)
        self._keep_rest(window, wanted)
        return found if at == len(wanted) == len(found) else None

    async def _read(self, wanted: Sequence[int], bytes_max: int, found: dict[int, Message]) -> int:
        """How many of the wanted, which rise, were seen to when there was enough."""
        at, window, is_cold = self._go_on(wanted, 0, self._in_hand(), bytes_max, found)
        while is_cold:
            log, size = self._partition.log, self._read_bytes(window, wanted, at)
            try:
                window = _window(await log.read_later(Offset(wanted[at]), bytes_max=size, end_offset=log.end_offset))
            except OffsetOutOfRange:
                window = None
            at += window is None  # There is nothing any more.
            at, window, is_cold = self._go_on(wanted, at, window, bytes_max, found)
        self._keep_rest(window, wanted)
        return at

    def _go_on(
        self, wanted: Sequence[int], at: int, window: Window | None, bytes_max: int, found: dict[int, Message]
    ) -> tuple[int, Window | None, bool]:
        """Takes the wanted from the one at `at` on, until there is enough: how many are seen to by now, the last window, and whether the
        next one has to be fetched from the disk."""
        size = sum(map(bytes_of, found.values())) if found else 0
        while at < len(wanted) and (not found or size < bytes_max):
            offset = wanted[at]
            if window is None or not window.start_offset <= offset < window.end_offset:
                log = self._partition.log
                try:
                    content = log.read(offset, bytes_max=self._read_bytes(window, wanted, at), end_offset=log.end_offset)
                except OffsetOutOfRange:
                    content = b""
                if content is None:
                    return at, window, True
                window = _window(content)
                if window is None:
                    at += 1
                    continue
            at, grown = _take(window.batch_at(offset), wanted, at, found)
            size += grown
        return at, window, False

    def _read_bytes(self, window: Window | None, wanted: Sequence[int], at: int) -> int:
        """How much is read for the one at `at`: more than is wanted, where reading goes on."""
        is_next = window is None or wanted[at] == window.end_offset
        return min(READ_BYTES_MAX, max(AHEAD_BYTES if is_next else READ_BYTES_MIN, READ_BYTES_EACH * (len(wanted) - at)))

    def _in_hand(self) -> Window | None:
        """What the log has lost is nobody's any more."""
        window, self._is_idle = self._window, False
        return None if window is None or self._partition.log.start_offset > window.start_offset else window

    def _keep_rest(self, window: Window | None, wanted: Sequence[int]) -> None:
        if window is not self._window or (window is not None and window.size != self._counted):
            self._keep(window)
        if window is not None and wanted and wanted[-1] + 1 >= window.end_offset:
            self._keep(None)  # All of it was taken, as far as it is taken in order.

    def _keep(self, window: Window | None) -> None:
        kept = window if window is not None and window.size <= KEPT_BYTES_MAX and not self._is_closed else None
        size = 0 if kept is None else kept.size
        self._room.take(size - self._counted)
        self._window, self._counted = kept, size


def _window(content: Buffer | None) -> Window | None:
    """None: the log has nothing there."""
    return Window(content) if content else None


def _take(batch: Unpacked, wanted: Sequence[int], at: int, found: dict[int, Message]) -> tuple[int, int]:
    """Those of the wanted, from the one at `at` on, that lie in this batch or before it: how many are seen to by now, and their bytes."""
    header, payload = batch
    base, end_offset = header.base_offset, header.end_offset
    while wanted[at] < base:
        at += 1
        if at == len(wanted):
            return at, 0
    end = at
    while end < len(wanted) and wanted[end] < end_offset:
        end += 1
    if end == at or header.is_control:
        return end, 0
    first, last, size = wanted[at] - base, wanted[end - 1] - base, 0
    picked = pick_records(payload, header.record_count, first, last + 1)
    is_whole = len(picked) == end - at  # All that lie there: then none has to be looked for.
    deltas = () if is_whole else {offset - base for offset in wanted[at:end]}
    time_ms, is_stamped = (header.max_timestamp, True) if header.uses_log_append_time else (header.base_timestamp, False)
    for delta, time_delta, key, value, headers in picked:
        if is_whole or delta in deltas:
            offset = base + delta
            message = _new_tuple(Message, (offset, time_ms if is_stamped else time_ms + time_delta, key, value, headers))
            found[offset] = message
            size += bytes_of(message) if headers else len(key or b"") + len(value or b"")  # As `bytes_of`: plain ones are most.
    return end, size


def bytes_of(message: Message) -> int:
    """What it takes, apart from small things."""
    size = len(message[2] or b"") + len(message[3] or b"")
    return size + sum(len(content or b"") for _, content in message[4]) if message[4] else size
