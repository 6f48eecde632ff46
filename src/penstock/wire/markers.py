"""The markers that end transactions: control batches of one record, as Kafka lays them out (KIP-98).

The key says what happened (version 0, then 0 for abort and 1 for commit), the value which coordinator said so (version 0, its epoch).
Clients read the key alone. Ours also carry, as a header of the record, the number of the transaction that they end, where it is known: so
whoever replays a log knows which transactions have ended there, and a marker that was delayed on its way is told from the next one's.
A marker has the producer's id and epoch and no sequence, and takes one offset. One that compaction has emptied has no record any more.
"""

from struct import Struct, error
from typing import NamedTuple

from penstock.errors import MalformedInput
from penstock.vocabulary import Buffer
from penstock.wire.batches import Record, decode_records, encode_batch

ABORT, COMMIT = 0, 1
NO_NUMBER = -1
NO_COORDINATOR_EPOCH = -1

_KEY = Struct(">hh")  # version, type
_VALUE = Struct(">hi")  # version, coordinator epoch
_NUMBER = Struct(">q")
_NUMBER_HEADER = "penstock.number"
_MARKER_BYTES_MAX = 1 << 16  # More than any marker has: nobody compresses one.


class Marker(NamedTuple):
    is_commit: bool
    coordinator_epoch: int
    number: int = NO_NUMBER  # Of the transaction, as its coordinator counts those of one transactional id.


def encode_marker(marker: Marker, *, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytearray:
    """The control batch, to be stamped with its offset."""
    key = _KEY.pack(0, COMMIT if marker.is_commit else ABORT)
    headers = () if marker.number == NO_NUMBER else ((_NUMBER_HEADER, _NUMBER.pack(marker.number)),)
    record = Record(key, _VALUE.pack(0, marker.coordinator_epoch), headers, timestamp_ms)
    return encode_batch([record], producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True, is_control=True)


def decode_marker(batch: Buffer) -> Marker | None:
    """What a control batch says; None where it ends no transaction: compaction has emptied it, or it is of another kind."""
    for record in decode_records(batch, bytes_max=_MARKER_BYTES_MAX):
        try:
            _, kind = _KEY.unpack_from(record.key or b"")
            if kind not in (ABORT, COMMIT):
                return None
            _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
            numbers = [_NUMBER.unpack(content or b"")[0] for name, content in record.headers if name == _NUMBER_HEADER]
        except error:
            raise MalformedInput("a control batch is not what it should be") from None
        return Marker(kind == COMMIT, coordinator_epoch, numbers[0] if numbers else NO_NUMBER)
    return None
