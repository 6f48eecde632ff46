"""Keys and values out of whole batches, for logs that are replayed: one walk, no object per record beyond the pair.

Coordinators read millions of records when they start, so the compiled loop takes plain batches apart. Compressed batches, which a
coordinator never writes but compaction could have met, take the long way.
"""

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.batches import decode_records, read_header
from penstock.wire.records import take_pairs

UNPACKED_BYTES_MAX = 128 << 20  # Of one compressed batch.

Pair = tuple[bytes, bytes | None]


def keyed_records(batches: Buffer, offset_min: int) -> tuple[list[Pair], int]:
    """Key and value of each record at or above the offset, in order, and the offset after them all.

    The batches are whole and their checksums were checked.
    """
    pairs: list[Pair] = []
    at, end_offset = take_pairs(batches, 0, offset_min, pairs)
    while at < len(batches):
        header = read_header(batches, at)
        _take_packed(batches[at : at + header.size], offset_min, pairs)
        at, end_offset = at + header.size, header.end_offset
        if at < len(batches):
            at, end_offset = take_pairs(batches, at, end_offset, pairs)
    return pairs, end_offset


def _take_packed(batch: Buffer, offset_min: int, pairs: list[Pair]) -> None:
    for record in decode_records(batch, bytes_max=UNPACKED_BYTES_MAX):
        if record.key is None:
            raise MalformedInput("a keyed record has no key")
        if record.offset >= offset_min:
            pairs.append((record.key, record.value))
