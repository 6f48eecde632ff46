"""Keys and values out of whole batches, for logs that are replayed: one walk, no object per record beyond the pair.

Coordinators read millions of records when they start, so the compiled loop takes plain batches apart. Compressed batches, which a
coordinator never writes but compaction could have met, take the long way.
"""

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.batches import decode_records, read_header
from penstock.wire.records import take_latest, take_pairs

UNPACKED_BYTES_MAX = 128 << 20  # Of one compressed batch.

Pair = tuple[bytes, bytes | None]


def keyed_records(batches: Buffer, offset_min: int) -> tuple[list[Pair], int]:
    """Key and value of each record at or above the offset, in order, and the offset after them all.

    The batches are whole and their checksums were checked.
    """
    pairs: list[Pair] = []
    at, end_offset = take_pairs(batches, 0, offset_min, pairs)
    while at < len(batches):
        packed, at, end_offset = _packed_records(batches, at, offset_min)
        pairs += packed
        if at < len(batches):
            at, end_offset = take_pairs(batches, at, end_offset, pairs)
    return pairs, end_offset


def latest_records(batches: Buffer, offset_min: int, latest: dict[bytes, bytes | None]) -> int:
    """The same into a dictionary, which keeps the last value of each key in the order of those last records; the offset after them all."""
    at, end_offset = take_latest(batches, 0, offset_min, latest)
    while at < len(batches):
        packed, at, end_offset = _packed_records(batches, at, offset_min)
        for key, value in packed:
            latest.pop(key, None)
            latest[key] = value
        if at < len(batches):
            at, end_offset = take_latest(batches, at, end_offset, latest)
    return end_offset


def _packed_records(batches: Buffer, at: int, offset_min: int) -> tuple[list[Pair], int, int]:
    """Those of the compressed batch at this position; the positions after it, in bytes and in offsets."""
    header, pairs = read_header(batches, at), list[Pair]()
    for record in decode_records(batches[at : at + header.size], bytes_max=UNPACKED_BYTES_MAX):
        if record.key is None:
            raise MalformedInput("a keyed record has no key")
        if record.offset >= offset_min:
            pairs.append((record.key, record.value))
    return pairs, at + header.size, header.end_offset
