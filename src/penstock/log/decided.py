"""What compaction knows of transactions: which were aborted, and which markers are still needed.

All of a log that compaction looks at is decided: every transaction that began there has its marker below the watermark. So a transactional
batch that belongs to no aborted transaction is one that was committed, and its records are like any others. Those of aborted ones
go at once, and their keys never count.
A marker stays as long as the second walk, which begins at the log's start, meets a batch of its transaction, be it an empty one; as long as
readers are told of its transaction, since they look for it then; and after that for as long as a tombstone does: who had read the batches
before must come to the marker too.
Where no aborted transaction is near, transactional batches are left to the compiled sieve like plain ones (`spares`).
Used by one walk at a time, away from the loop.
"""

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate
from struct import Struct
from typing import NamedTuple

from penstock.vocabulary import Buffer
from penstock.wire.batches import TRANSACTIONAL_BIT, BatchHeader

_LOOK = Struct(">8xi9xh20xq")  # Of a batch's header: length, attributes, producer.
_PREFIX_BYTES = 12


class Spans(NamedTuple):
    """The aborted transactions of a log, in the order of their markers: packed, so that they can be handed over at once."""

    producers: "array[int]"
    firsts: "array[int]"  # Where each began,
    markers: "array[int]"  # and where its marker stands.


NO_SPANS = Spans(array("q"), array("q"), array("q"))


class Decided:
    __slots__ = ("_by_producer", "_earliest", "_met", "_spans")

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._by_producer: dict[int, tuple[array[int], array[int]]] | None = None  # Firsts and markers of each, ascending.
        self._earliest: array[int] | None = None  # For each span, where the first of it and those that ended later began.
        self._met: set[int] = set()  # Producers of whose transaction a batch was met since their last marker.

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a transactional batch belongs to an aborted transaction."""
        firsts, markers = self._spans_of(header.producer_id)
        row = bisect_right(firsts, header.base_offset) - 1
        return row >= 0 and header.base_offset < markers[row]

    def spares(self, start_offset: int, end_offset: int) -> bool:
        """Whether no aborted transaction overlaps the range."""
        if self._earliest is None:
            self._earliest = array("q", accumulate(reversed(self._spans.firsts), min))
            self._earliest.reverse()
        row = bisect_left(self._spans.markers, start_offset)
        return row == len(self._earliest) or self._earliest[row] >= end_offset

    def meet(self, header: BatchHeader) -> None:
        """The second walk has come to a transactional batch."""
        self._met.add(header.producer_id)

    def meet_all(self, batches: Buffer, start: int, end: int) -> None:
        """The second walk has come past these batches, of which some may be transactional."""
        at = start
        while at < end:
            length, attributes, producer_id = _LOOK.unpack_from(batches, at)
            if attributes & TRANSACTIONAL_BIT:
                self._met.add(producer_id)
            at += length + _PREFIX_BYTES

    def ends_something(self, header: BatchHeader) -> bool:
        """The second walk has come to a marker: whether any batch of its transaction is left, or readers are told of it."""
        is_met = header.producer_id in self._met
        self._met.discard(header.producer_id)
        _, markers = self._spans_of(header.producer_id)
        row = bisect_left(markers, header.base_offset)
        return is_met or (row < len(markers) and markers[row] == header.base_offset)

    def _spans_of(self, producer_id: int) -> "tuple[array[int], array[int]]":
        if self._by_producer is None:
            self._by_producer = {}
            for producer, first, marker in zip(*self._spans, strict=True):
                firsts, markers = self._by_producer.setdefault(producer, (array("q"), array("q")))
                firsts.append(first)
                markers.append(marker)
        return self._by_producer.get(producer_id, NO_SPANS[1:])
