"""What is durable about the groups of one coordinator: the records of its partition, replayed.

Only `replay` changes it, and it never refuses: a record in the log has happened. An offset is one small tuple under its group, topic and
partition, so that a hundred thousand of them load in a blink and cost the collector nothing.
A snapshot is the shortest list of records that replays into the same image. Its pieces may be taken one after the other while new records
are replayed in between: because each key stands alone, the pieces and then every record since the first of them give the same image.
"""

from collections.abc import Iterator

from penstock.groups import records
from penstock.groups.consumer.image import ConsumerImage
from penstock.groups.packing import NOT_A_RECORD
from penstock.groups.pending_image import PendingImage
from penstock.groups.pending_records import OffsetPending, PendingDropped
from penstock.groups.records import NO_TOPIC_ID, OFFSET_KIND
from penstock.groups.share.image import ShareImage
from penstock.groups.share.records import ShareRecord
from penstock.groups.sizes import GROUP_BYTES, TOPIC_BYTES, held_bytes, offset_bytes, text_bytes
from penstock.vocabulary import TopicId

# offset, leader epoch, metadata, committed at (wall), expires at (wall, or BY_RETENTION), topic id
Committed = tuple[int, int, str, int, int, TopicId]

_OFFSET_KEY = OFFSET_KIND.to_bytes(2, "big")
_PIECE_RECORDS = 1_000


class GroupsImage:
    def __init__(self) -> None:
        self.saved: dict[str, records.GroupSaved] = {}
        self.offsets: dict[str, dict[str, dict[int, Committed]]] = {}  # By group, topic and partition. Nothing empty is kept.
        self.pending = PendingImage()  # Of transactions that are not over.
        self.consumers = ConsumerImage()  # Groups of the new protocol. No group is of two kinds.
        self.shares = ShareImage()  # Share groups.
        self.held_bytes = 0  # What all of it takes in memory, about, beside what is pending.
        self._saved_bytes: dict[str, int] = {}  # Of that, each group's record.

    def replay(self, record: records.Record) -> None:
        match record:
            case records.OffsetCommitted():
                self._put(record.group, record.topic, record.partition, record[3:])
            case records.OffsetDeleted():
                self._remove(record.group, record.topic, record.partition)
            case records.GroupSaved():
                self.saved[record.group] = record
                self._count_saved(record.group, held_bytes(record))
            case records.GroupDeleted():
                self.saved.pop(record.group, None)
                self._count_saved(record.group, 0)
            case OffsetPending() | PendingDropped():
                self.pending.replay(record)
            case _ if isinstance(record, ShareRecord):
                self.shares.replay(record)
            case _:
                self.consumers.replay(record)

    def replay_stored(self, key: bytes, value: bytes | None) -> None:
        """Replays a record as it lies in the log, without making an object of an offset: loading is mostly this."""
        if key[:2] != _OFFSET_KEY:
            self.replay(records.decode(key, value))
            return
        try:
            group, topic, partition = records.read_offset_key(key)
            if value is None:
                self._remove(group, topic, partition)
            else:
                self._put(group, topic, partition, records.read_offset(value))
        except NOT_A_RECORD as wrong:
            raise records.unreadable(wrong) from None

    def holds(self, group: str) -> bool:
        kinds = (self.saved, self.consumers.groups, self.offsets, self.pending.groups, self.shares.groups)
        return any(group in groups for groups in kinds)

    def saved_bytes(self, group: str) -> int:
        """What the group's record takes in memory."""
        return self._saved_bytes.get(group, 0)

    def growth(self, group: str, topic: str, partition: int, metadata: str) -> int:
        """By how much this image would grow with such an offset."""
        topics = self.offsets.get(group)
        if topics is None:
            return offset_bytes(metadata) + TOPIC_BYTES + GROUP_BYTES + text_bytes(group)
        partitions = topics.get(topic)
        if partitions is None:
            return offset_bytes(metadata) + TOPIC_BYTES
        held = partitions.get(partition)
        return offset_bytes(metadata) if held is None else text_bytes(metadata) - text_bytes(held[2])

    def committed(self, group: str) -> Iterator[tuple[str, int, Committed]]:
        """What a group has committed: (topic, partition, what). The group must not change while this goes on."""
        for topic, partitions in self.offsets.get(group, {}).items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def committed_for(self, topic: str, topic_id: TopicId) -> Iterator[tuple[str, int]]:
        """(group, partition) of what was committed for this very topic, or for nobody knows which one of its name."""
        for group, topics in self.offsets.items():
            for partition, committed in topics.get(topic, {}).items():
                if committed[5] in (topic_id, NO_TOPIC_ID):
                    yield group, partition

    def committed_topics(self) -> list[tuple[str, TopicId]]:
        """All topics that any group has committed offsets of, each once."""
        return list(
            dict.fromkeys(
                (topic, committed[5])
                for topics in self.offsets.values()
                for topic, partitions in topics.items()
                for committed in partitions.values()
            )
        )

    def snapshot_pieces(self) -> Iterator[list[records.Record]]:
        """The snapshot in pieces of about a thousand records, between which anything may be replayed."""
        piece: list[records.Record] = []
        for name in list(self.saved):
            if saved := self.saved.get(name):
                piece.append(saved)
            if len(piece) >= _PIECE_RECORDS:
                yield piece
                piece = []
        for group in list(self.offsets):
            for topic in list(self.offsets.get(group, ())):
                partitions = self.offsets.get(group, {}).get(topic, {})
                piece += [records.OffsetCommitted(group, topic, partition, *committed) for partition, committed in partitions.items()]
                if len(piece) >= _PIECE_RECORDS:
                    yield piece
                    piece = []
        yield piece
        yield from map(list, self.pending.snapshot_pieces())
        for some in self.consumers.snapshot_pieces():
            yield list(some)
        for shared in self.shares.snapshot_pieces():
            yield list(shared)

    def _put(self, group: str, topic: str, partition: int, committed: Committed) -> None:
        topics = self.offsets.get(group)
        if topics is None:
            topics = self.offsets[group] = {}
            self.held_bytes += GROUP_BYTES + text_bytes(group)
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
            self.held_bytes += TOPIC_BYTES
        held = partitions.get(partition)
        partitions[partition] = committed
        self.held_bytes += offset_bytes(committed[2]) if held is None else text_bytes(committed[2]) - text_bytes(held[2])

    def _remove(self, group: str, topic: str, partition: int) -> None:
        topics = self.offsets.get(group, {})
        partitions = topics.get(topic, {})
        held = partitions.pop(partition, None)
        if held is None:
            return
        self.held_bytes -= offset_bytes(held[2])
        if not partitions:
            del topics[topic]
            self.held_bytes -= TOPIC_BYTES
        if not topics:
            del self.offsets[group]
            self.held_bytes -= GROUP_BYTES + text_bytes(group)

    def _count_saved(self, group: str, size: int) -> None:
        self.held_bytes += size - self._saved_bytes.pop(group, 0)
        if size:
            self._saved_bytes[group] = size
