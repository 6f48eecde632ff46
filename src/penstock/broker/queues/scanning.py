"""What a stretch of a queue's log holds for its ledger: runs of plain messages, and those with options.

Only whole batches below the last stable offset are looked at, so every transaction in them has ended: records of aborted ones, markers and
offsets that compaction emptied hold no message. A batch without options becomes one run, whatever it holds; neighbouring runs become one.
Hot path: once for each batch that is written to a queue.
"""

from collections.abc import Iterator, Sequence

from penstock.partition.aborted import Aborted
from penstock.queues.headers import PLAIN, PREFIX, parse
from penstock.queues.state import Marked, Run
from penstock.vocabulary import Buffer
from penstock.wire.batches import HEADER_BYTES, BatchHeader, read_header, unpack_batch
from penstock.wire.keyed_records import UNPACKED_BYTES_MAX
from penstock.wire.messages import marked_records, pick_records

_PREFIX = PREFIX.encode()

Entry = Run | Marked


def entries_of(content: Buffer, first_offset: int, aborted: Sequence[Aborted] = ()) -> tuple[list[Entry], int]:
    """The messages at or after the first offset in these whole batches, in order, and where the batches end."""
    view, entries, end_offset = memoryview(content), list[Entry](), first_offset
    passing = _Passing(aborted)
    at = 0
    while at < len(view):
        header = read_header(view, at)
        if not passing.is_aborted(header) and not header.is_control and header.record_count:
            for entry in _entries_of_batch(header, view[at : at + header.size], first_offset):
                _add(entries, entry)
        end_offset = header.end_offset
        at += header.size
    return entries, end_offset


class _Passing:
    """Whom a reader of committed records passes over, from an aborted transaction's first offset on to its marker."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda each: each[1], reverse=True)
        self._now: dict[int, None] = {}

    def is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        while self._coming and self._coming[-1][1] <= header.base_offset:
            self._now[self._coming.pop()[0]] = None
        if header.is_control:
            self._now.pop(header.producer_id, None)
            return True
        return header.producer_id in self._now


def _entries_of_batch(header: BatchHeader, batch: memoryview, first_offset: int) -> Iterator[Entry]:
    payload: Buffer = unpack_batch(batch, bytes_max=UNPACKED_BYTES_MAX)[1] if header.codec else batch[HEADER_BYTES:]
    base, written_ms, start = header.base_offset, header.max_timestamp, max(first_offset, header.base_offset)
    if header.record_count != header.last_offset_delta + 1:
        yield from _entries_between_gaps(header, payload, start)
        return
    for delta, time_delta, headers in marked_records(payload, header.record_count, _PREFIX):
        offset = base + delta
        traits = parse(headers, written_ms if header.uses_log_append_time else header.base_timestamp + time_delta)
        if offset < start or traits._replace(written_ms=0) == PLAIN:
            continue
        if offset > start:
            yield Run(start, offset, written_ms)
        yield Marked(offset, traits)
        start = offset + 1
    if start < header.end_offset:
        yield Run(start, header.end_offset, written_ms)


def _entries_between_gaps(header: BatchHeader, payload: Buffer, start: int) -> Iterator[Entry]:
    """Compaction has been here: each record says where it is."""
    for delta, time_delta, _, _, headers in pick_records(payload, header.record_count, 0, header.last_offset_delta + 1):
        offset = header.base_offset + delta
        written_ms = header.max_timestamp if header.uses_log_append_time else header.base_timestamp + time_delta
        traits = parse([each for each in headers if each[0].startswith(PREFIX)], written_ms)
        if offset >= start:
            yield Run(offset, offset + 1, written_ms) if traits._replace(written_ms=0) == PLAIN else Marked(offset, traits)


def _add(entries: list[Entry], entry: Entry) -> None:
    last = entries[-1] if entries else None
    if isinstance(entry, Run) and isinstance(last, Run) and last.end == entry.start:
        entries[-1] = Run(last.start, entry.end, max(last.written_ms, entry.written_ms))
    else:
        entries.append(entry)
