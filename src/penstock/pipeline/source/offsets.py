"""How far a stream has come, as it stands in Spark's checkpoint and in a query's progress.

    {"orders": {"0": 23, "1": 5}, "topic ids": {"orders": "J8b1…"}, "first batch": {"orders": {"0": 20, "1": 5}}}

The offsets are written as Spark's Kafka source writes them: a checkpoint of that source can be read on from. Beside them stand the ids
of the topics, under a name that no topic can have: one that was deleted and made again has another id, and old offsets mean nothing in it.
Where a query's first batch begins is written down with its end. Spark keeps ends only, and asks for the beginning anew when the query was
stopped in that batch: after "latest" it would be another one, and the rows in between would never be read.
Rules: the order of keys is always the same, since Spark compares offsets as text; what is unknown is left out.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.vocabulary import NO_TOPIC_ID, TopicId, TopicPartition

TOPIC_IDS = "topic ids"  # No topic's name has a space in it.
FIRST_BATCH = "first batch"
BESIDE_OFFSETS = (TOPIC_IDS, FIRST_BATCH)

Json = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Offsets:
    """For each partition the offset that is read next, and for each topic who it is."""

    next: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)

    def is_same_topic(self, other: "Offsets", topic: str) -> bool:
        """False only where both know the topic, and it is not the same."""
        mine, theirs = self.topic_ids.get(topic, NO_TOPIC_ID), other.topic_ids.get(topic, NO_TOPIC_ID)
        return NO_TOPIC_ID in (mine, theirs) or mine == theirs

    def is_same_place(self, other: "Offsets") -> bool:
        return dict(self.next) == dict(other.next) and all(self.is_same_topic(other, topic) for topic in self.topic_ids)


def to_json(offsets: Offsets, *, has_topic_ids: bool = True) -> Json:
    written = _written(offsets)
    ids = {
        topic: urlsafe_b64encode(offsets.topic_ids[topic]).decode().rstrip("=")
        for topic in sorted(offsets.topic_ids)
        if offsets.topic_ids[topic] != NO_TOPIC_ID and topic in written
    }
    if has_topic_ids and ids:
        written[TOPIC_IDS] = ids
    return written


def with_beginning(ended: Json, begun: Offsets) -> Json:
    """The end of a query's first batch, and where that began."""
    return ended | {FIRST_BATCH: _written(begun)}


def beginning_of(ended: Json) -> Offsets | None:
    """Where the batch began, if it was the first one of its query."""
    return from_json(ended[FIRST_BATCH] | ({TOPIC_IDS: ended[TOPIC_IDS]} if TOPIC_IDS in ended else {})) if FIRST_BATCH in ended else None


def from_json(given: Mapping[str, Mapping[str, Any]]) -> Offsets:
    following = {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, by_partition in given.items()
        if topic not in BESIDE_OFFSETS
        for partition, offset in by_partition.items()
    }
    ids = {topic: TopicId(urlsafe_b64decode(text + "==")) for topic, text in given.get(TOPIC_IDS, {}).items()}
    return Offsets(following, ids)


def _written(offsets: Offsets) -> Json:
    written: Json = {}
    for where in sorted(offsets.next):
        written.setdefault(where.topic, {})[str(where.partition)] = offsets.next[where]
    return written
