"""What a reader that wants only what is committed leaves out of a fetched row.

The node sends no record of a transaction that is still open, but all of those that have ended, and beside them which of these were aborted:
by whom, and from which offset on. An aborted transaction reaches from there to its producer's next abort marker (KIP-98).
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.wire.batches import BatchHeader, decode_records

_ABORT = 0  # The type of an abort marker; a commit is 1.
_TYPE_AT = 2  # In a marker's key, after its version.
_MARKER_BYTES_MAX = 1 << 10


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class AbortedRecords:
    """Walks along one fetched row, batch by batch, and knows which belong to aborted transactions."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._ahead = sorted(aborted, key=lambda one: -one.first_offset)  # The next to begin comes last.
        self._begun: set[int] = set()  # Producers whose transaction here was aborted, and whose marker is still to come.

    def has(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether the next batch is part of one. Each batch of the row is shown once, in order."""
        while self._ahead and self._ahead[-1].first_offset <= header.last_offset:
            self._begun.add(self._ahead.pop().producer_id)
        if header.is_control:
            if _is_abort(batch):
                self._begun.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._begun


def _is_abort(batch: memoryview) -> bool:
    """Raises `MalformedInput`."""
    records = decode_records(batch, bytes_max=_MARKER_BYTES_MAX)
    key = records[0].key if records else None
    return key is not None and len(key) >= 4 and int.from_bytes(key[_TYPE_AT:4], "big") == _ABORT
