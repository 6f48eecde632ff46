"""Messages read from the log: the records at a few offsets, whole.

Taken messages mostly lie side by side, so one read gets most of them; only the wanted records of a batch are made into objects. The last
batch that had more than was wanted stays in hand, unpacked, since the next take goes on there. A record that is gone (the log starts later,
compaction took it) has no message. Whoever wants many may be given few: reading ends at a number of bytes, and at least one is read.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.log.faults import OffsetOutOfRange
from penstock.partition.partition import Partition
from penstock.settings import KIB, MIB
from penstock.vocabulary import Buffer, Offset
from penstock.wire.batches import HEADER_BYTES, BatchHeader, read_header, unpack_batch
from penstock.wire.keyed_records import UNPACKED_BYTES_MAX
from penstock.wire.messages import Headers, pick_records

READ_BYTES_MIN, READ_BYTES_EACH, READ_BYTES_MAX = 4 * KIB, 1 * KIB, 1 * MIB
KEPT_BYTES_MAX = 1 * MIB
READ_ALL = 1 << 62


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


class Bodies:
    """Of one partition."""

    __slots__ = ("_kept", "_partition")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._kept: Unpacked | None = None

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

    async def _read(self, wanted: Sequence[int], bytes_max: int, found: dict[int, Message]) -> int:
        """How many of the wanted, which rise, were seen to when there was enough."""
        at, kept = 0, self._kept
        if kept is not None and wanted and wanted[0] >= kept.header.base_offset:
            at = self._take(kept, wanted, 0, found)
        while at < len(wanted) and (not found or sum(map(bytes_of, found.values())) < bytes_max):
            content = await self._read_log(wanted[at], len(wanted) - at)
            if not content:
                at += 1
                continue
            at = self._take_all(content, wanted, at, found)
        return at

    async def _read_log(self, offset: int, count: int) -> Buffer:
        log = self._partition.log
        bytes_max = min(READ_BYTES_MAX, max(READ_BYTES_MIN, READ_BYTES_EACH * count))
        try:
            content = log.read(offset, bytes_max=bytes_max, end_offset=log.end_offset)
            return content if content is not None else await log.read_later(Offset(offset), bytes_max=bytes_max, end_offset=log.end_offset)
        except OffsetOutOfRange:
            return b""

    def _take_all(self, content: Buffer, wanted: Sequence[int], at: int, found: dict[int, Message]) -> int:
        """From whole batches; returns how many of the wanted are seen to: at least one more than before."""
        view, position, before = memoryview(content), 0, at
        while position < len(view) and at < len(wanted):
            header = read_header(view, position)
            if header.end_offset > wanted[at]:
                at = self._take(self._unpack(header, view[position : position + header.size]), wanted, at, found)
            position += header.size
        return max(at, before + 1)

    def _unpack(self, header: BatchHeader, batch: memoryview) -> Unpacked:
        if not header.codec:
            return Unpacked(header, batch[HEADER_BYTES:])
        return Unpacked(header, unpack_batch(batch, bytes_max=UNPACKED_BYTES_MAX)[1])

    def _take(self, batch: Unpacked, wanted: Sequence[int], at: int, found: dict[int, Message]) -> int:
        """Those of the wanted, from the one at `at` on, that lie in this batch or before it."""
        header, base = batch.header, batch.header.base_offset
        while at < len(wanted) and wanted[at] < base:
            at += 1
        end = at
        while end < len(wanted) and wanted[end] < header.end_offset:
            end += 1
        if end == at:
            return at
        deltas = {offset - base for offset in wanted[at:end]}
        first, last = wanted[at] - base, wanted[end - 1] - base
        if not header.is_control:
            for delta, time_delta, key, value, headers in pick_records(batch.payload, header.record_count, first, last + 1):
                if delta in deltas:
                    time_ms = header.max_timestamp if header.uses_log_append_time else header.base_timestamp + time_delta
                    found[base + delta] = Message(base + delta, time_ms, key, value, headers)
        has_more = last < header.last_offset_delta and len(batch.payload) <= KEPT_BYTES_MAX
        self._kept = Unpacked(header, bytes(batch.payload)) if has_more else None
        return end


def bytes_of(message: Message) -> int:
    """What it takes, apart from small things."""
    return len(message.key or b"") + len(message.value or b"") + sum(len(content or b"") for _, content in message.headers)
