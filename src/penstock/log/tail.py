"""A bad batch above the checkpoint: was it never wholly written, or has it been damaged since?

A crash leaves the end of a log torn: bytes that were appended and never flushed are missing, or are zeros. Nobody was told that they are
safe, so they are cut off. Damage to flushed bytes looks alike, but cutting there would lose what was acknowledged. So:

- Nothing valid follows: torn. Cut.
- Something valid follows, and at the bad place the disk shows that it was never written (a sector of zeros, a header of zeros, a file that
  ends too early): the flush that would have covered it never ended, so nothing after it was acknowledged either. Cut, and say so.
- Something valid follows and there is no such sign: damage. Never cut.

A batch inside another one's bytes (somebody stores batches as values) is not "something valid": where the bad batch's header is whole and
only its end is missing, what follows counts only if the bad batch's own checksum comes out right there, which shows that its length lies.
"""

from enum import Enum
from struct import Struct
from typing import NamedTuple

from penstock.env import Disk, File
from penstock.wire.batches import HEADER_BYTES, crc_is_right
from penstock.wire.records import crc32c

SECTOR_BYTES = 512  # What a drive writes as a whole.
_WINDOW_BYTES = 1 << 20
_SPAN_MAX = 2**31 - 1  # No two batches of what a crash can leave are further apart than this, in offsets.
_ZEROS_TRUSTED = 8  # The last, partial sector of a file counts if it is at least this long: records often end with a zero or two.
_CHECK_BYTES_FACTOR, _CHECK_BYTES_FREE = 16, 64 << 20  # Bounds the work on bytes that were made to look like batches.

_FRONT = Struct(">qiibIhi")  # base offset, length, leader epoch, magic, crc, attributes, last offset delta
_MAGIC = b"\x02"
_MAGIC_AT = 16
_CRC_FROM = 21
_LENGTH_MIN = HEADER_BYTES - 12
_KNOWN_BYTES = 12  # Offset and length.
_ATTRIBUTES_MAX = 0x7F  # Bits above are not used by anyone.


class Verdict(Enum):
    TORN = "the last write was cut off"
    UNWRITTEN = "a write before the last was never carried out"
    ROTTEN = "bytes that were written have changed"


class Rule(NamedTuple):
    """What a batch must claim to be taken for one of this log."""

    offset_min: int
    epoch_min: int = -1
    epoch_max: int = 2**31 - 1


class Stretch(NamedTuple):
    """A segment's file, or what is left of it to look at."""

    file: File
    position: int
    end: int


async def judge(disk: Disk, bad: Stretch, later: list[Stretch], rule: Rule) -> Verdict:
    """At `bad.position` the batch with offset `rule.offset_min` should begin, and does not, or is not whole. `later`: what comes after."""
    if await _is_whole(disk, bad):
        # Only its offset or its epoch is wrong. A torn write does that in one way: the end of a sector is missing, and the offset with it.
        # No checksum covers the offset, so where one bit is all that is missing of it, that bit may have flipped in what was acknowledged.
        is_torn = await _lacks_its_front(disk, bad, bad.end, rule)
        may_have_flipped = _bits_before_sector_end(bad, rule) == 1 and await _is_followed(disk, bad, later, rule)
        return Verdict.UNWRITTEN if is_torn and not may_have_flipped else Verdict.ROTTEN
    found = await _next_valid(disk, bad, rule)
    if found >= 0:
        return Verdict.UNWRITTEN if await _was_never_written(disk, bad._replace(end=found), bad.end, rule) else Verdict.ROTTEN
    for stretch in later:
        if await find_valid_batch(disk, stretch.file, stretch.position, stretch.end, rule) >= 0:
            is_unwritten = await _ends_too_early(disk, bad, rule) or await _was_never_written(disk, bad, bad.end, rule)
            return Verdict.UNWRITTEN if is_unwritten else Verdict.ROTTEN
    return Verdict.TORN


async def find_valid_batch(disk: Disk, file: File, position: int, end: int, rule: Rule) -> int:
    """Where the first whole batch begins that the rule admits, at any byte; -1 when there is none.

    Bytes made to look like many overlapping batches could make this slow. Past a bound they are taken for one: that never cuts anything.
    """
    checks_left = _CHECK_BYTES_FACTOR * (end - position) + _CHECK_BYTES_FREE
    while position + HEADER_BYTES <= end:
        window = await disk.read_later(file, position, min(_WINDOW_BYTES + HEADER_BYTES, end - position))
        at = _next_candidate(window, 0, rule, end - position)
        while at >= 0:
            size = _FRONT.unpack_from(window, at)[1] + 12
            batch = window[at : at + size] if at + size <= len(window) else await disk.read_later(file, position + at, size)
            checks_left -= size
            if crc_is_right(batch, 0, size) or checks_left < 0:
                return position + at
            at = _next_candidate(window, at + 1, rule, end - position)
        if len(window) < HEADER_BYTES:
            return -1
        position += len(window) - HEADER_BYTES + 1
    return -1


def _next_candidate(window: bytes, at: int, rule: Rule, bytes_left: int) -> int:
    """The next place in the window where a header of this log might stand."""
    while (magic_at := window.find(_MAGIC, at + _MAGIC_AT)) >= 0:
        at = magic_at - _MAGIC_AT
        if at + HEADER_BYTES > len(window):
            return -1
        if _is_plausible(window, at, rule) and _FRONT.unpack_from(window, at)[1] + 12 <= bytes_left - at:
            return at
        at += 1
    return -1


def _is_plausible(content: bytes, at: int, rule: Rule) -> bool:
    base_offset, length, epoch, magic, _, attributes, last_delta = _FRONT.unpack_from(content, at)
    return bool(
        magic == _MAGIC[0]
        and length >= _LENGTH_MIN
        and last_delta >= 0
        and 0 <= attributes <= _ATTRIBUTES_MAX
        and 0 <= base_offset - rule.offset_min <= _SPAN_MAX
        and rule.epoch_min <= epoch <= rule.epoch_max
    )


async def _is_whole(disk: Disk, bad: Stretch) -> bool:
    head = await disk.read_later(bad.file, bad.position, min(HEADER_BYTES, bad.end - bad.position))
    if len(head) < HEADER_BYTES:
        return False
    _, length, _, magic, *_ = _FRONT.unpack_from(head)
    if magic != _MAGIC[0] or not _LENGTH_MIN <= length <= bad.end - bad.position - 12:
        return False
    return crc_is_right(await disk.read_later(bad.file, bad.position, length + 12), 0, length + 12)


async def _next_valid(disk: Disk, bad: Stretch, rule: Rule) -> int:
    """Where the first batch after the bad one begins that proves that the log went on; -1 when none does."""
    head = await disk.read_later(bad.file, bad.position, min(HEADER_BYTES, bad.end - bad.position))
    is_open_ended = _is_cut_off(head, bad, rule)
    checks_left = _CHECK_BYTES_FACTOR * (bad.end - bad.position) + _CHECK_BYTES_FREE
    position = bad.position + 1
    while (position := await find_valid_batch(disk, bad.file, position, bad.end, rule)) >= 0:
        checks_left -= position - bad.position
        if not is_open_ended or checks_left < 0 or await _closes_at(disk, bad, position):
            return position
        position += 1
    return -1


def _is_cut_off(head: bytes, bad: Stretch, rule: Rule) -> bool:
    """Whether the bad batch has a right header and claims to end past its file."""
    if len(head) < HEADER_BYTES or not _is_plausible(head, 0, rule):
        return False
    base_offset, length = _FRONT.unpack_from(head)[:2]
    return bool(base_offset == rule.offset_min and bad.position + length + 12 > bad.end)


async def _closes_at(disk: Disk, bad: Stretch, end: int) -> bool:
    """Whether the bad batch is whole if it ends here, so that nothing but its length is wrong."""
    content = await disk.read_later(bad.file, bad.position, end - bad.position)
    return len(content) >= HEADER_BYTES and crc32c(content, _CRC_FROM, len(content)) == _FRONT.unpack_from(content)[4]


async def _ends_too_early(disk: Disk, bad: Stretch, rule: Rule) -> bool:
    """Whether the file stops inside the bad batch, or before it, and is right up to there."""
    head = await disk.read_later(bad.file, bad.position, min(HEADER_BYTES, bad.end - bad.position))
    if len(head) < HEADER_BYTES:
        return rule.offset_min.to_bytes(8, "big").startswith(head[:8])
    return _is_cut_off(head, bad, rule) and not await _closes_at(disk, bad, bad.end)


async def _lacks_its_front(disk: Disk, bad: Stretch, file_end: int, rule: Rule) -> bool:
    """Whether zeros stand where the bad batch's offset, or its length, should be, which are known not to be zero.

    The sector in which the batch begins may have been lost by itself. Where it holds nothing but the first bytes of the offset, which are
    zeros in any case, it tells nothing. Then all of the header must be zeros, over the sector's end, as a failed flush leaves it under what
    was appended meanwhile: a drive loses sectors as a whole, so one with zeros first and a batch after them was never given the header.
    """
    sector_end = bad.position - bad.position % SECTOR_BYTES + SECTOR_BYTES
    header = await disk.read_later(bad.file, bad.position, min(HEADER_BYTES, file_end - bad.position))
    return any(
        not any(front) and (len(front) >= _KNOWN_BYTES or any(rule.offset_min.to_bytes(8, "big")[: len(front)]))
        for front in (header[: sector_end - bad.position], header)
    )


async def _is_followed(disk: Disk, bad: Stretch, later: list[Stretch], rule: Rule) -> bool:
    for stretch in (bad._replace(position=bad.position + 1), *later):
        if await find_valid_batch(disk, stretch.file, stretch.position, stretch.end, rule) >= 0:
            return True
    return False


def _bits_before_sector_end(bad: Stretch, rule: Rule) -> int:
    """How many bits of the bad batch's offset should be set in the sector in which it begins."""
    bytes_there = min(8, SECTOR_BYTES - bad.position % SECTOR_BYTES)
    return (rule.offset_min >> 8 * (8 - bytes_there)).bit_count()


async def _was_never_written(disk: Disk, bad: Stretch, file_end: int, rule: Rule) -> bool:
    """Whether the disk shows that some of the bytes of the bad stretch were never written."""
    if await _lacks_its_front(disk, bad, file_end, rule):
        return True
    position = bad.position + -bad.position % SECTOR_BYTES
    while position < bad.end:
        window = await disk.read_later(bad.file, position, min(_WINDOW_BYTES, file_end - position))
        for at in range(0, min(len(window), bad.end - position), SECTOR_BYTES):
            sector = window[at : at + SECTOR_BYTES]
            if len(sector) >= _ZEROS_TRUSTED and not sector.strip(b"\0"):
                return True
        position += _WINDOW_BYTES
    return False
