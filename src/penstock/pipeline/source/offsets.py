"""How far a stream has come, as it stands in Spark's checkpoint and in a query's progress.

    {"orders": {"0": 23, "1": 5}, "topic ids": {"orders": "J8b1…"}}

The offsets are written as Spark's Kafka source writes them: a checkpoint of that source can be read on from. Beside them stand the ids
of the topics, under a name that no topic can have: one that was deleted and made again has another id, and old offsets mean nothing in it.
Rules: the order of keys is always the same, since Spark compares offsets as text; what is unknown is left out.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.vocabulary import NO_TOPIC_ID, TopicId, TopicPartition

TOPIC_IDS = "topic ids"  # No topic's name has a space in it.

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
    written: Json = {}
    for where in sorted(offsets.next):
        written.setdefault(where.topic, {})[str(where.partition)] = offsets.next[where]
    ids = {
        topic: urlsafe_b64encode(offsets.topic_ids[topic]).decode().rstrip("=")
        for topic in sorted(offsets.topic_ids)
        if offsets.topic_ids[topic] != NO_TOPIC_ID and topic in written
    }
    if has_topic_ids and ids:
        written[TOPIC_IDS] = ids
    return written


def from_json(given: Mapping[str, Mapping[str, Any]]) -> Offsets:
    following = {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, by_partition in given.items()
        if topic != TOPIC_IDS
        for partition, offset in by_partition.items()
    }
    ids = {topic: TopicId(urlsafe_b64decode(text + "==")) for topic, text in given.get(TOPIC_IDS, {}).items()}
    return Offsets(following, ids)
