"""Which records of a refused batch are at fault (KIP-467).

The compiled loop stops at the first one. Kafka names all of them, and librdkafka tells senders of the others that theirs were well and
only travelled in bad company. Walked in Python, since batches are rarely refused, and no further than `WALKED_MAX` records, since anybody
may send a bad one; a later fault goes unnamed unless it is the first.
"""

from collections.abc import Iterator

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.records import NO_TIMESTAMP, RecordFault
from penstock.wire.varints import read_varint, read_varlong

WALKED_MAX = 2_000  # A few milliseconds.


def record_faults(
    payload: Buffer, count: int, *, base_timestamp: int, timestamp_min: int, timestamp_max: int, keys_required: bool
) -> list[tuple[int, RecordFault]]:
    """Index and fault of each record without its key or with an impossible time, among those that are looked at."""
    faults = []
    for index, (timestamp_delta, has_key) in enumerate(_fronts(payload, min(count, WALKED_MAX))):
        timestamp = base_timestamp + timestamp_delta
        if keys_required and not has_key:
            faults.append((index, RecordFault.KEY_MISSING))
        elif timestamp != NO_TIMESTAMP and not timestamp_min <= timestamp <= timestamp_max:
            faults.append((index, RecordFault.TIMESTAMP))
    return faults


def _fronts(payload: Buffer, count: int) -> Iterator[tuple[int, bool]]:
    """Timestamp delta and whether there is a key, record by record, until one does not parse. Values and headers are stepped over."""
    at, end = 0, len(payload)
    try:
        for _ in range(count):
            length, at = read_varint(payload, at, end)
            timestamp_delta, key_at = read_varlong(payload, at + 1, end)  # One byte of attributes.
            _, key_at = read_varint(payload, key_at, end)
            key_length, _ = read_varint(payload, key_at, end)
            yield timestamp_delta, key_length >= 0
            if length <= 0:
                return
            at += length
    except MalformedInput:
        return
