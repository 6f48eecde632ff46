"""Idempotent producers of one partition: which batch may come next, and which one has been here before (KIP-98, KIP-360).

Replayed from the log's batch headers, so it survives what the log survives: `decide` looks, `replay` remembers. A producer's last five
batches are kept, because a client may have five in flight. State is one `bytes` per producer, which the garbage collector never walks;
the dictionary is ordered by last use, so the longest silent one stands first.
Hot path: `decide` and `replay` run once per produced batch; plain structs beat objects here.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from penstock.errors import ErrorCode
from penstock.vocabulary import Offset, ProducerId
from penstock.wire.batches import BatchHeader

WINDOW = 5  # Batches remembered per producer: Kafka's bound on requests in flight of an idempotent producer.
SEQUENCE_MODULUS = 1 << 31

_HEAD = struct.Struct(">hq")  # producer epoch, when it was last heard of (wall clock, ms)
_BATCH = struct.Struct(">iiqq")  # first sequence, last sequence, base offset, timestamp: newest batch first
_LAST_SEQUENCE = struct.Struct(">i")
_LAST_SEQUENCE_AT = _HEAD.size + 4
_STATE_BYTES_MAX = _HEAD.size + WINDOW * _BATCH.size
_SNAPSHOT_ROW = struct.Struct(">qH")  # producer id, length of its state


class Duplicate(NamedTuple):
    """This very batch is in the log already."""

    base_offset: Offset
    timestamp: int


class RememberedProducer(NamedTuple):
    """As an operator sees it."""

    producer_id: ProducerId
    epoch: int
    last_sequence: int
    last_timestamp_ms: int  # Of its last batch's newest record.


class ProducersRoom:
    """How many producers the partitions of a node may remember together. Short-lived producers come in millions a day."""

    __slots__ = ("producers_max", "taken")

    def __init__(self, producers_max: int) -> None:
        self.producers_max = producers_max
        self.taken = 0


class ProducerStates:
    """Past either bound the partition's longest silent producer is forgotten: its next batch is taken whatever its sequence (KIP-360)."""

    __slots__ = ("_room", "_states", "producers_max")

    def __init__(self, producers_max: int, room: ProducersRoom | None = None) -> None:
        self.producers_max = producers_max
        self._room = room or ProducersRoom(producers_max)
        self._states: dict[int, bytes] = {}

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
        expected = (_LAST_SEQUENCE.unpack_from(state, _LAST_SEQUENCE_AT)[0] + 1) % SEQUENCE_MODULUS
        if first == expected:
            return ErrorCode.NONE
        return _seen_before(state, first, _last_sequence(header)) or ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

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

    def replay_stored(self, header: BatchHeader, *, wall_ms: int) -> None:
        """The same for any batch of the log, also one without a producer id."""
        if header.producer_id >= 0:
            self.replay(header, wall_ms)

    def forget_silent_since(self, wall_ms: int) -> int:
        """Forgets producers not heard of since then; returns how many."""
        silent = []
        for producer_id, state in self._states.items():
            if _HEAD.unpack_from(state)[1] >= wall_ms:
                break
            silent.append(producer_id)
        for producer_id in silent:
            del self._states[producer_id]
        self._room.taken -= len(silent)
        return len(silent)

    def forget_all(self) -> None:
        self._room.taken -= len(self._states)
        self._states = {}

    def producer_ids(self) -> Iterator[ProducerId]:
        return (ProducerId(producer_id) for producer_id in self._states)

    def described(self, producer_id: ProducerId) -> RememberedProducer | None:
        state = self._states.get(producer_id)
        if state is None:
            return None
        (epoch, _), (_, last_sequence, _, timestamp) = _HEAD.unpack_from(state), _BATCH.unpack_from(state, _HEAD.size)
        return RememberedProducer(producer_id, epoch, last_sequence, timestamp)

    def last_offsets(self) -> list[int]:
        """Where the last batch of each producer ends: compaction keeps those, so that the log alone can tell their sequences."""
        return [_last_offset(state) for state in self._states.values()]

    def snapshot(self) -> bytes:
        return b"".join(_SNAPSHOT_ROW.pack(producer_id, len(state)) + state for producer_id, state in self._states.items())

    def restore(self, snapshot: bytes) -> None:
        """Takes the state of a snapshot in place of its own. The log's checkpoint vouches for the bytes."""
        self.forget_all()
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
            del self._states[next(iter(self._states))]
        else:
            room.taken += 1


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS


def _last_offset(state: bytes) -> int:
    first, last, base_offset, _ = _BATCH.unpack_from(state, _HEAD.size)
    return int(base_offset + (last - first) % SEQUENCE_MODULUS)


def _seen_before(state: bytes, first: int, last: int) -> Duplicate | None:
    for first_sequence, last_sequence, base_offset, timestamp in _BATCH.iter_unpack(state[_HEAD.size :]):
        if first_sequence == first and last_sequence == last:
            return Duplicate(Offset(base_offset), timestamp)
    return None
