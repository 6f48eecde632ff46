"""Whether a transaction was committed or aborted, asked of the log itself.

A coordinator remembers the last transaction of an id. When the id has been used since, or was forgotten, only the partitions still know:
the first marker of the producer after one of its records is how that transaction ended, in every partition alike.
"""

from enum import Enum

from penstock.errors import ErrorCode, MalformedInput
from penstock.peers.client import Client
from penstock.peers.failures import Refused
from penstock.peers.fetching import FetchLimits, whole_batches
from penstock.wire.batches import BatchHeader
from penstock.wire.markers import decode_marker

_FETCH = FetchLimits(wait_ms=100, bytes_max=16 << 20)
_GONE = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Fate(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "not to be told any more"  # Its records, or its marker, were deleted since.


async def fate_of(client: Client, producer_id: int, topic: str, partition: int, offset: int) -> Fate:
    """`offset` is that of a record of the transaction."""
    if offset < 0:
        return Fate.UNKNOWN
    at = offset
    while True:
        try:
            fetched = await client.fetch(topic, partition, at, limits=_FETCH)
        except Refused as refusal:
            if refusal.code in _GONE:
                return Fate.UNKNOWN
            raise
        if fetched.log_start_offset > offset:
            return Fate.UNKNOWN
        for header, batch in whole_batches(fetched.records):
            if header.producer_id == producer_id and header.is_control and header.base_offset >= offset:
                return _told_by(header, batch)
            at = max(at, header.end_offset)
        if at >= fetched.high_watermark:
            return Fate.OPEN


def _told_by(header: BatchHeader, batch: memoryview) -> Fate:
    try:
        marker = decode_marker(batch)
    except MalformedInput:
        marker = None
    if marker is None:
        return Fate.UNKNOWN
    return Fate.COMMITTED if marker.is_commit else Fate.ABORTED
