"""Where a reader stands in each partition, and what of a fetched row it may hand out.

A position moves over whole batches, by their last offset: compaction and control batches leave offsets without a record. A batch may begin
below the wanted offset, and reach past the end that was seen at the start; records outside are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.errors import MalformedInput
from penstock.peers.aborted import AbortedRecords, AbortedTransaction
from penstock.peers.failures import BadAnswer, PeerFailure
from penstock.peers.fetching import whole_batches
from penstock.vocabulary import Instant, TopicId, TopicPartition
from penstock.wire.batches import BatchHeader, Record, decode_records

NOWHERE = -1  # The node id of a position whose leader must be looked up.


class StartKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: `FROM_EARLIEST`, `FROM_LATEST`, `at_offset(n)`, or `at_timestamp(ms)`: the first record not older, else the end."""

    kind: StartKind
    value: int = 0


FROM_EARLIEST = Start(StartKind.EARLIEST)
FROM_LATEST = Start(StartKind.LATEST)


def at_offset(offset: int) -> Start:
    return Start(StartKind.OFFSET, offset)


def at_timestamp(timestamp_ms: int) -> Start:
    return Start(StartKind.TIMESTAMP, timestamp_ms)


class ReadRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class Position:
    partition: TopicPartition
    topic_id: TopicId
    offset: int  # The next to be handed out.
    end_offset: int | None  # Where reading ends; None to follow for ever.
    moved_at: Instant  # When `offset` moved last, or something failed that may keep it from moving.
    node_id: int = NOWHERE
    leader_epoch: int = -1
    is_out_of_range: bool = False  # The leader does not have `offset`; what it has is to be looked up.
    failing_since: Instant | None = None
    last_failure: PeerFailure | None = None

    @property
    def is_done(self) -> bool:
        return self.end_offset is not None and self.offset >= self.end_offset

    def note_answer(self, now: Instant, *, has_moved: bool) -> None:
        self.failing_since = self.last_failure = None
        if has_moved:
            self.moved_at = now

    def note_failure(self, failure: PeerFailure, now: Instant) -> None:
        self.node_id = NOWHERE
        self.last_failure = failure
        self.moved_at = now
        if self.failing_since is None:
            self.failing_since = now

    def advance(
        self, fetched: bytes, *, unpacked_bytes_max: int, aborted: Sequence[AbortedTransaction] = ()
    ) -> list[ReadRecord]:
        """Takes what was fetched from `offset`, and moves past it. Records of aborted transactions are left out.

        Raises only where it could not move at all: what stands before a bad batch is handed out first, and the bad one met again.
        """
        records: list[ReadRecord] = []
        first, left_out = self.offset, AbortedRecords(aborted)
        try:
            for header, batch in whole_batches(fetched):
                if header.end_offset > self.offset and not self.is_done:
                    records += self._take(header, batch, unpacked_bytes_max, is_left_out=left_out.has(header, batch))
        except MalformedInput as failure:
            if self.offset == first:
                raise BadAnswer(f"what was fetched of {self.partition} at offset {first} is damaged: {failure}") from failure
        except PeerFailure:
            if self.offset == first:
                raise
        if fetched and self.offset == first:
            raise BadAnswer(f"what was fetched of {self.partition} at offset {first} does not reach it")
        return records

    def _take(self, header: BatchHeader, batch: memoryview, unpacked_bytes_max: int, *, is_left_out: bool) -> list[ReadRecord]:
        records = [] if header.is_control or is_left_out else self._decode(header, batch, unpacked_bytes_max)
        first, self.offset = self.offset, header.end_offset
        end = header.end_offset if self.end_offset is None else min(self.end_offset, header.end_offset)
        topic, partition = self.partition
        return [
            ReadRecord(topic, partition, record.offset, record.timestamp_ms, record.key, record.value, record.headers)
            for record in records
            if first <= record.offset < end
        ]

    def _decode(self, header: BatchHeader, batch: memoryview, unpacked_bytes_max: int) -> list[Record]:
        try:
            return decode_records(batch, bytes_max=unpacked_bytes_max)
        except MalformedInput as failure:  # Its checksum is right, so asking again would bring the same.
            raise PeerFailure(
                f"{self.partition}: the batch at offset {header.base_offset} cannot be unpacked: {failure}",
                f"read on from offset {header.end_offset} to leave it out",
            ) from failure
