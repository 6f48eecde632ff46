"""What is recorded of offsets in open transactions: every pending offset, found by its producer and by its place.

A place is a partition that a group reads. Several producers may have an offset pending for one place, each at most one.
As in the rest of the image only `replay` changes it, in any order of the keys, and it never refuses.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.groups.pending_records import OffsetPending, PendingDropped
from penstock.groups.sizes import GROUP_BYTES, pending_offset_bytes
from penstock.vocabulary import ProducerId, TopicId

_PIECE_RECORDS = 1_000


class Place(NamedTuple):
    group: str
    topic: str
    partition: int


Pending = dict[ProducerId, OffsetPending]  # What is pending for one place, by producer.


class PendingImage:
    def __init__(self) -> None:
        self.groups: dict[str, dict[tuple[str, int], Pending]] = {}  # By group, then topic and partition. Nothing empty is kept.
        self._producers: dict[ProducerId, dict[Place, OffsetPending]] = {}  # The same by producer and place.
        self.next_order = 1  # Greater than that of everything that is pending.
        self.held_bytes = 0  # What all of it takes in memory, about.

    def replay(self, record: OffsetPending | PendingDropped) -> None:
        self._remove(record.group, record.producer_id, record.topic, record.partition)
        if isinstance(record, OffsetPending):
            self.held_bytes += self.growth(record)
            self.groups.setdefault(record.group, {}).setdefault((record.topic, record.partition), {})[record.producer_id] = record
            self._producers.setdefault(record.producer_id, {})[Place(record.group, record.topic, record.partition)] = record
            self.next_order = max(self.next_order, record.order + 1)

    def growth(self, record: OffsetPending) -> int:
        """By how much this image would grow with it."""
        places = self.groups.get(record.group)
        if places is None:
            return GROUP_BYTES + pending_offset_bytes(record)
        held = places.get((record.topic, record.partition), {}).get(record.producer_id)
        return pending_offset_bytes(record) - (0 if held is None else pending_offset_bytes(held))

    def of_producer(self, producer_id: ProducerId) -> Mapping[Place, OffsetPending]:
        return self._producers.get(producer_id, {})

    def at(self, group: str, topic: str, partition: int) -> Mapping[ProducerId, OffsetPending]:
        return self.groups.get(group, {}).get((topic, partition), {})

    def of_group(self, group: str) -> Iterator[OffsetPending]:
        """The group must not change while this goes on."""
        for pending in self.groups.get(group, {}).values():
            yield from pending.values()

    def for_topic(self, topic: str, topic_ids: tuple[TopicId, ...]) -> Iterator[OffsetPending]:
        """What is pending for a topic of this name and one of these ids."""
        for held in self._producers.values():
            for record in held.values():
                if record.topic == topic and record.topic_id in topic_ids:
                    yield record

    def everything(self) -> Iterator[OffsetPending]:
        for held in self._producers.values():
            yield from held.values()

    def producers(self) -> Iterator[Mapping[Place, OffsetPending]]:
        """What each of them has pending, never nothing."""
        yield from self._producers.values()

    def snapshot_pieces(self) -> Iterator[list[OffsetPending]]:
        """In pieces of about a thousand records, between which anything may be replayed."""
        piece: list[OffsetPending] = []
        for producer_id in list(self._producers):
            piece += self._producers.get(producer_id, {}).values()
            if len(piece) >= _PIECE_RECORDS:
                yield piece
                piece = []
        if piece:
            yield piece

    def _remove(self, group: str, producer_id: ProducerId, topic: str, partition: int) -> None:
        held = self._producers.get(producer_id, {})
        record = held.pop(Place(group, topic, partition), None)
        if record is None:
            return
        places = self.groups[group]
        pending = places[topic, partition]
        del pending[producer_id]
        self.held_bytes -= pending_offset_bytes(record)
        if not held:
            del self._producers[producer_id]
        if not pending:
            del places[topic, partition]
        if not places:
            del self.groups[group]
            self.held_bytes -= GROUP_BYTES
