"""Producers of one partition: which batch may come next, which one has been here before, and what their transactions are (KIP-98, KIP-360).

Replayed from the log's batch headers and markers, so it survives what the log survives: `decide` looks, `replay` remembers. A producer's
last five batches are kept, because a client may have five in flight. State is one `bytes` per producer, which the garbage collector never
walks; the dictionary is ordered by last use, so the longest silent one stands first. What only transactions need stands beside it
(transactions.py, aborted.py): a producer without them pays a look at one bit.
A marker sets its producer's epoch. Where that is a new one the batches before it are forgotten, and the next sequence is 0.
One with an open transaction is not forgotten, however silent: nobody could end what it began.
Hot path: `decide` and `replay` run once per produced batch; plain structs beat objects here.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from penstock.errors import ErrorCode, require
from penstock.packed import rows_of
from penstock.partition.aborted import AbortedIndex
from penstock.partition.guards import Guard
from penstock.partition.transactions import NO_OFFSET, Ending, OpenTransactions
from penstock.vocabulary import Buffer, Offset, ProducerId
from penstock.wire.batches import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from penstock.wire.markers import NO_COORDINATOR_EPOCH, NO_NUMBER, Marker, decode_marker

WINDOW = 5  # Batches remembered per producer: Kafka's bound on requests in flight of an idempotent producer.
SEQUENCE_MODULUS = 1 << 31

_HEAD = struct.Struct(">hq")  # producer epoch, when it was last heard of (wall clock, ms)
_BATCH = struct.Struct(">iiqq")  # first sequence, last sequence, base offset, timestamp: newest batch first
_LAST_SEQUENCE = struct.Struct(">i")
_LAST_SEQUENCE_AT = _HEAD.size + 4
_STATE_BYTES_MAX = _HEAD.size + WINDOW * _BATCH.size
_SNAPSHOT_ROW = struct.Struct(">qH")  # producer id, length of its state
# A snapshot without transactions is rows of producers and nothing else. No producer id is negative, so this cannot be one of those.
_WITH_TRANSACTIONS = b"\xff\x01"
_SNAPSHOT_ROWS = struct.Struct(">2sI")  # the above, bytes of all rows of producers
_EMPTIED = Marker(is_commit=False, coordinator_epoch=NO_COORDINATOR_EPOCH)


class Duplicate(NamedTuple):
    """This very batch is in the log already."""

    base_offset: Offset
    timestamp: int


class RememberedProducer(NamedTuple):
    """As an operator sees it."""

    producer_id: ProducerId
    epoch: int
    last_sequence: int  # -1 when none is known of this epoch
    last_timestamp_ms: int  # Of its last batch's newest record, or of when it was last heard of.
    coordinator_epoch: int = NO_COORDINATOR_EPOCH  # Of its last marker.
    open_since: int = NO_OFFSET  # Where its open transaction began.


class ProducersRoom:
    """How many producers the partitions of a node may remember together. Short-lived producers come in millions a day."""

    __slots__ = ("producers_max", "taken")

    def __init__(self, producers_max: int) -> None:
        self.producers_max = producers_max
        self.taken = 0


class ProducerStates:
    """Past either bound the partition's longest silent producer is forgotten: its next batch is taken whatever its sequence (KIP-360)."""

    __slots__ = ("_room", "_states", "aborted", "producers_max", "transactions")

    def __init__(self, producers_max: int, room: ProducersRoom | None = None) -> None:
        self.producers_max = producers_max
        self._room = room or ProducersRoom(producers_max)
        self._states: dict[int, bytes] = {}
        self.transactions = OpenTransactions()
        self.aborted = AbortedIndex()

    def __len__(self) -> int:
        return len(self._states)

    def empty_copy(self) -> "ProducerStates":
        """With the same bounds, in the same room."""
        return ProducerStates(self.producers_max, self._room)

    def decide(self, header: BatchHeader, *, is_first_ever: bool) -> ErrorCode | Duplicate:
        """Whether a batch with a producer id may be appended: NONE, a refusal, or where it stands already.

        `is_first_ever`: the partition has never held a record. Then only sequence 0 is taken (KAFKA-15591): with two batches in flight
        to a new topic, the second must not get in before the first.
        """
        state = self._states.get(header.producer_id)
        first = header.base_sequence
        if state is None:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_first_ever and first != 0 else ErrorCode.NONE
        epoch = _HEAD.unpack_from(state)[0]
        if header.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.producer_epoch > epoch:
            return ErrorCode.NONE if first == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        try:
            expected = (_LAST_SEQUENCE.unpack_from(state, _LAST_SEQUENCE_AT)[0] + 1) % SEQUENCE_MODULUS
        except struct.error:
            expected = 0  # A marker began this epoch.
        if first == expected:
            return ErrorCode.NONE
        return _seen_before(state, first, _last_sequence(header)) or ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    # Transactions

    def is_open(self, header: BatchHeader) -> bool:
        """Whether the batch goes on with a transaction that is open here, and of its own epoch."""
        return header.producer_id in self.transactions.by_producer and self.epoch_of(header.producer_id) == header.producer_epoch

    def epoch_of(self, producer_id: int) -> int:
        """The latest that is known here; -1 when the producer is not."""
        state = self._states.get(producer_id)
        return -1 if state is None else int(_HEAD.unpack_from(state)[0])

    def decide_transactional(self, header: BatchHeader, guard: Guard | None) -> ErrorCode:
        """What else must hold of a batch that is neither here already nor of an old epoch, where transactions are in play."""
        if not header.attributes & TRANSACTIONAL_BIT:
            return ErrorCode.INVALID_TXN_STATE if header.producer_id in self.transactions.by_producer else ErrorCode.NONE
        if self.is_open(header):
            return ErrorCode.NONE
        if guard is None or not guard.is_valid or guard.producer_id != header.producer_id:
            return ErrorCode.INVALID_TXN_STATE
        is_after_missing = header.producer_epoch == guard.epoch and header.base_sequence > guard.lowest_sequence
        # By the second version each transaction has an epoch of its own: one that is unknown here begins here, at 0.
        is_late_first = guard.is_v2 and header.base_sequence != 0 and header.producer_id not in self._states
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_after_missing or is_late_first else ErrorCode.NONE

    def decide_marker(self, producer_id: int, epoch: int, marker: Marker, *, is_v2: bool) -> ErrorCode | Ending | None:
        """NONE: it may be appended. An ending: this very marker is here. None: a later transaction of its producer is here already.

        By the first version a marker has the epoch of its transaction, by the second a later one (KAFKA-19446): otherwise it is one that
        was delayed, and the transaction that is open now is not the one that it is about. If none is open, it has come again.
        """
        ending, known = self.transactions.ending_of(producer_id), self.transactions.by_producer.get(producer_id)
        current = self.epoch_of(producer_id)
        if marker.number != NO_NUMBER:
            if marker.number == ending.number:
                return ending
            if marker.number < max(ending.number, NO_NUMBER if known is None else known.number):
                return None
        if epoch < current or (is_v2 and epoch == current and known is not None):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < ending.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def decide_outside_abort(self, producer_id: int, epoch: int, coordinator_epoch: int) -> ErrorCode | Ending | None:
        """An operator's word, not a coordinator's: it ends what is open here in this very epoch, and fences nobody. None: nothing is open.

        The coordinator epoch to write is that of the ending, whatever was said: a higher one would shut out the producer's own coordinator.
        """
        ending = self.transactions.ending_of(producer_id)
        if epoch < 0 or epoch != self.epoch_of(producer_id):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < ending.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ending if producer_id in self.transactions.by_producer else None

    def replay_marker(self, header: BatchHeader, marker: Marker, wall_ms: int) -> None:
        """A marker is in the log."""
        producer_id, transactions = header.producer_id, self.transactions
        old = self._states.pop(producer_id, None)
        if old is None:
            self._make_room_for_one()
        is_same = old is not None and _HEAD.unpack_from(old)[0] == header.producer_epoch
        self._states[producer_id] = _HEAD.pack(header.producer_epoch, wall_ms) + (old[_HEAD.size :] if old is not None and is_same else b"")
        first_offset = transactions.end(producer_id, Ending(marker.coordinator_epoch, marker.number, header.base_offset))
        if first_offset is not None and not marker.is_commit:
            next_open = transactions.first_open
            self.aborted.add(producer_id, first_offset, header.base_offset, header.end_offset if next_open is None else next_open)

    # What is in the log

    def replay(self, header: BatchHeader, wall_ms: int) -> None:
        """A batch with a producer id is in the log. `wall_ms`: by this node's clock; a producer of old events is not itself old."""
        old = self._states.pop(header.producer_id, None)
        head = _HEAD.pack(header.producer_epoch, wall_ms)
        batch = _BATCH.pack(header.base_sequence, _last_sequence(header), header.base_offset, header.max_timestamp)
        if old is not None and _HEAD.unpack_from(old)[0] == header.producer_epoch:
            self._states[header.producer_id] = head + batch + old[_HEAD.size : _STATE_BYTES_MAX - _BATCH.size]
            return
        if old is None:
            self._make_room_for_one()
        self._states[header.producer_id] = head + batch

    def replay_stored(self, header: BatchHeader, batch: Buffer = b"", *, wall_ms: int) -> None:
        """The same for any batch of the log, also one without a producer id; of a control batch all of it is needed."""
        if header.producer_id < 0:
            return
        if not header.attributes & CONTROL_BIT:
            if header.attributes & TRANSACTIONAL_BIT:
                self.transactions.begin(header.producer_id, header.base_offset)
            self.replay(header, wall_ms)
            return
        require(len(batch) == header.size, "a marker is more than its header")
        # Of an emptied marker the records that it was about are gone. Who still has them, fetched before that, need never show them.
        marker = decode_marker(batch) if header.record_count else _EMPTIED
        if marker is not None:
            self.replay_marker(header, marker, wall_ms)

    def forget_silent_since(self, wall_ms: int) -> int:
        """Forgets producers not heard of since then; returns how many."""
        silent = []
        for producer_id, state in self._states.items():
            if _HEAD.unpack_from(state)[1] >= wall_ms:
                break
            if producer_id not in self.transactions.by_producer:
                silent.append(producer_id)
        for producer_id in silent:
            del self._states[producer_id]
            self.transactions.forget(producer_id)
        self._room.taken -= len(silent)
        return len(silent)

    def forget_all(self) -> None:
        self._room.taken -= len(self._states)
        self._states = {}
        self.transactions = OpenTransactions()
        self.aborted = AbortedIndex()

    def producer_ids(self) -> Iterator[ProducerId]:
        return (ProducerId(producer_id) for producer_id in self._states)

    def described(self, producer_id: ProducerId) -> RememberedProducer | None:
        state = self._states.get(producer_id)
        if state is None:
            return None
        (epoch, heard_ms), last_sequence = _HEAD.unpack_from(state), -1
        if len(state) > _HEAD.size:
            _, last_sequence, _, heard_ms = _BATCH.unpack_from(state, _HEAD.size)
        known = self.transactions.by_producer.get(producer_id)
        open_since = NO_OFFSET if known is None else known.first_offset
        return RememberedProducer(
            producer_id, epoch, last_sequence, heard_ms, self.transactions.ending_of(producer_id).coordinator_epoch, open_since
        )

    def last_offsets(self) -> list[int]:
        """Where the last batch of each producer ends: compaction keeps those, so that the log alone can tell their sequences. Of one that
        has none in its epoch it is the marker that began the epoch."""
        ending_of = self.transactions.ending_of
        return [
            _last_offset(state) if len(state) > _HEAD.size else ending_of(producer_id).marker_offset
            for producer_id, state in self._states.items()
        ]

    def snapshot(self) -> bytes:
        rows = b"".join(_SNAPSHOT_ROW.pack(producer_id, len(state)) + state for producer_id, state in self._states.items())
        if not self.transactions and not self.aborted:
            return rows
        return b"".join((_SNAPSHOT_ROWS.pack(_WITH_TRANSACTIONS, len(rows)), rows, *self.transactions.snapshot(), self.aborted.snapshot()))

    def restore(self, snapshot: bytes) -> None:
        """Takes the state of a snapshot in place of its own. The log's checkpoint vouches for the bytes."""
        self.forget_all()
        if not snapshot.startswith(_WITH_TRANSACTIONS):
            self._restore_rows(snapshot)
            return
        _, size = _SNAPSHOT_ROWS.unpack_from(snapshot)
        end = _SNAPSHOT_ROWS.size + size
        self._restore_rows(snapshot[_SNAPSHOT_ROWS.size : end])
        self.aborted.restore(snapshot, self.transactions.restore(snapshot, end))

    def _restore_rows(self, snapshot: bytes) -> None:
        at = 0
        while at < len(snapshot):
            producer_id, length = _SNAPSHOT_ROW.unpack_from(snapshot, at)
            at += _SNAPSHOT_ROW.size
            self._states[producer_id] = snapshot[at : at + length]
            at += length
        self._room.taken += len(self._states)

    def _make_room_for_one(self) -> None:
        room = self._room
        if self._states and (len(self._states) >= self.producers_max or room.taken >= room.producers_max):
            self._forget_one()
        else:
            room.taken += 1

    def _forget_one(self) -> None:
        """The longest silent. One with an open transaction goes to the end instead; if all have one, the bound gives way."""
        for _ in range(min(len(self._states), len(self.transactions.by_producer))):
            producer_id = next(iter(self._states))
            if producer_id not in self.transactions.by_producer:
                break
            self._states[producer_id] = self._states.pop(producer_id)
        producer_id = next(iter(self._states))
        if producer_id in self.transactions.by_producer:
            self._room.taken += 1
            return
        del self._states[producer_id]
        self.transactions.forget(producer_id)


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS


def _last_offset(state: bytes) -> int:
    first, last, base_offset, _ = _BATCH.unpack_from(state, _HEAD.size)
    return int(base_offset + (last - first) % SEQUENCE_MODULUS)


def _seen_before(state: bytes, first: int, last: int) -> Duplicate | None:
    for first_sequence, last_sequence, base_offset, timestamp in rows_of(_BATCH, state[_HEAD.size :]):
        if first_sequence == first and last_sequence == last:
            return Duplicate(Offset(base_offset), timestamp)
    return None
