"""What compaction does to the batches of one chunk: checks them, enters their keys, or leaves out what nobody needs.

Plain functions over bytes, run away from the loop. Nearly all of the work is the compiled sieve's (wire/sieve.py), which takes plain
batches. Compressed ones, and those of committed transactions, are made plain, sifted, and packed again as they were if anything changed;
otherwise they stay byte for byte. Batches of aborted transactions are left out, and so are markers that nobody needs (decided.py).
Everything is verified before it is copied, as by every reader: checksums, order, epochs. What is damaged is never copied.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from penstock.errors import MalformedInput
from penstock.log.decided import Decided
from penstock.log.epochs import Epochs
from penstock.log.faults import LogDamaged
from penstock.log.key_map import KeyMap
from penstock.wire.batches import HEADER_BYTES, BatchHeader, read_header
from penstock.wire.records import ScanFault, scan_batches
from penstock.wire.repacking import emptied, packed, unpacked, with_horizon
from penstock.wire.sieve import Sifted, Stop, sift_batches

UNPACKED_BYTES_MAX = 1 << 30  # More than any batch that was ever admitted unpacks to.
_ANY_OFFSET = 2**63 - 1
_END = Struct(">q")  # One of the kept ends.


class Chunk(NamedTuple):
    """Some bytes of a segment, from where a batch begins."""

    path: str
    position: int  # In the file.
    content: bytes
    offset: int  # The first batch has at least this offset.
    is_dense: bool  # No offset is missing.
    epochs: Epochs  # A copy: nobody else touches it.


class Checked(NamedTuple):
    size: int  # Bytes of whole batches.
    end_offset: int


@dataclass(frozen=True, slots=True)
class Sieve:
    keys: KeyMap
    wall_ms: int
    horizon_ms: int  # Until when tombstones, and markers that nobody needs, stay that are met for the first time.
    kept_ends: bytes  # Last offsets of batches that stay even if they are empty; see wire/sieve.py.
    decided: Decided

    def keeps(self, last_offset: int) -> bool:
        low, high = 0, len(self.kept_ends) // _END.size
        while low < high:
            middle = (low + high) // 2
            if _END.unpack_from(self.kept_ends, middle * _END.size)[0] < last_offset:
                low = middle + 1
            else:
                high = middle
        return self.kept_ends[low * _END.size : (low + 1) * _END.size] == _END.pack(last_offset)


@dataclass(slots=True)
class Left:
    """What is left of a chunk."""

    pieces: list[bytes] = field(default_factory=list)
    marks: list[tuple[int, int, int]] = field(default_factory=list)  # For the index: offset, position, highest timestamp.
    size: int = 0
    records_removed: int = 0
    batches_changed: int = 0

    def add(self, content: bytes, marks: list[tuple[int, int, int]]) -> None:
        self.marks += [(offset, self.size + position, newest) for offset, position, newest in marks]
        self.pieces.append(content)
        self.size += len(content)


def check(chunk: Chunk) -> Checked:
    """The whole batches that the chunk begins with, one at least, and each of them what was written."""
    content, at, offset = chunk.content, 0, chunk.offset
    while len(content) - at >= HEADER_BYTES:
        epoch = chunk.epochs.epoch_at(read_header(content, at).base_offset)
        scan = scan_batches(
            content, start=at, first_offset=offset, end_offset_max=_ANY_OFFSET, bytes_max=len(content),
            is_dense=chunk.is_dense, leader_epoch=epoch,
        )  # fmt: skip
        at, offset = at + scan.valid_bytes, scan.end_offset
        is_at_next_epoch = scan.fault == ScanFault.EPOCH and scan.batches
        if scan.fault not in (ScanFault.NONE, ScanFault.TRUNCATED) and not is_at_next_epoch:
            raise LogDamaged(f"{chunk.path}: the batch at position {chunk.position + at} is not what was written")
        if not is_at_next_epoch:
            break
    if not at:
        raise LogDamaged(f"{chunk.path}: the batch at position {chunk.position} is not what was written")
    return Checked(at, offset)


def note(chunk: Chunk, keys: KeyMap, decided: Decided) -> tuple[Checked, bool]:
    """Enters the keys of the chunk's batches; what of it was entered, and whether the map is full."""
    checked = check(chunk)
    is_spared, at = decided.spares(chunk.offset, checked.end_offset), 0
    while at < checked.size:
        at, stop = keys.note(chunk.content, at, checked.size, takes_transactional=is_spared)[::2]
        if stop == Stop.SPECIAL:
            header = read_header(chunk.content, at)
            if not header.is_control and not (header.is_transactional and decided.is_aborted(header)):
                plain = _unpacked(chunk, at, header)
                stop = keys.note(plain, 0, len(plain)).stop
            if stop != Stop.FULL:
                at += header.size
        if stop == Stop.FULL:
            return Checked(at, read_header(chunk.content, at).base_offset), True
        _check_stop(chunk, at, stop)
    return checked, False


def sift(chunk: Chunk, sieve: Sieve, mark_bytes: int) -> tuple[Checked, Left]:
    """Leaves out what nobody needs of the chunk's batches."""
    checked, left, at = check(chunk), Left(), 0
    is_spared, takes_transactional = sieve.decided.spares(chunk.offset, checked.end_offset), False
    while at < checked.size:
        sifted = _sift(chunk.content, at, checked.size, sieve, mark_bytes, takes_transactional=takes_transactional)
        left.add(sifted.content, sifted.marks)
        left.records_removed += sifted.records_removed
        left.batches_changed += sifted.batches_changed
        if takes_transactional:
            sieve.decided.meet_all(chunk.content, at, sifted.position)
        at = sifted.position
        if sifted.stop == Stop.SPECIAL:
            header = read_header(chunk.content, at)
            _sift_special(chunk, at, header, sieve, left)
            at += header.size
            takes_transactional = is_spared  # Not before the first one: where there are none, nobody need look out for them.
        _check_stop(chunk, at, sifted.stop)
    return checked, left


def _sift_special(chunk: Chunk, at: int, header: BatchHeader, sieve: Sieve, left: Left) -> None:
    batch = chunk.content[at : at + header.size]
    if header.is_control:
        _sift_marker(batch, header, sieve, left)
        return
    if header.is_transactional:
        sieve.decided.meet(header)
        if sieve.decided.is_aborted(header):
            _leave_out(batch, header, sieve, left)
            return
    plain = _unpacked(chunk, at, header)
    sifted = _sift(plain, 0, len(plain), sieve, 1)
    _check_stop(chunk, at, sifted.stop)
    left.records_removed += sifted.records_removed
    left.batches_changed += sifted.batches_changed
    if sifted.content:
        left.add(packed(sifted.content, header) if sifted.batches_changed else batch, sifted.marks)


def _sift_marker(batch: bytes, header: BatchHeader, sieve: Sieve, left: Left) -> None:
    is_needed, horizon_ms = sieve.decided.ends_something(header), header.delete_horizon_ms
    is_due = not header.record_count or (not is_needed and horizon_ms is not None and horizon_ms <= sieve.wall_ms)
    if is_due:
        _leave_out(batch, header, sieve, left)
        return
    if not is_needed and horizon_ms is None:
        batch = with_horizon(batch, sieve.horizon_ms)
        left.batches_changed += 1
    left.add(batch, [(header.base_offset, 0, header.newest_timestamp)])


def _leave_out(batch: bytes, header: BatchHeader, sieve: Sieve, left: Left) -> None:
    """All of its records; and the batch itself, unless its producer is known by it."""
    is_kept = sieve.keeps(header.last_offset)
    left.records_removed += header.record_count
    if is_kept and header.record_count:
        batch = emptied(batch)
    if header.record_count or not is_kept:
        left.batches_changed += 1
    if is_kept:
        left.add(batch, [(header.base_offset, 0, -1)])


def _sift(content: bytes, at: int, end: int, sieve: Sieve, mark_bytes: int, *, takes_transactional: bool = False) -> Sifted:
    keys = sieve.keys
    return sift_batches(
        content, at, end, keys.table, seed=keys.seed, map_end=keys.end_offset, wall_ms=sieve.wall_ms, horizon_ms=sieve.horizon_ms,
        kept_ends=sieve.kept_ends, mark_bytes=mark_bytes, takes_transactional=takes_transactional,
    )  # fmt: skip


def _unpacked(chunk: Chunk, at: int, header: BatchHeader) -> bytes:
    try:
        return unpacked(memoryview(chunk.content)[at : at + header.size], bytes_max=UNPACKED_BYTES_MAX)
    except MalformedInput as malformed:
        raise LogDamaged(f"{chunk.path}: the batch at position {chunk.position + at} cannot be unpacked: {malformed}") from None


def _check_stop(chunk: Chunk, at: int, stop: int) -> None:
    if stop == Stop.MALFORMED:
        raise LogDamaged(f"{chunk.path}: the records of the batch at position {chunk.position + at} do not parse")
