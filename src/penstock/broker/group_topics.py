"""The cluster's topics, as groups of the new protocol see them: those that hold now."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.cluster.topic_names import INTERNAL_TOPICS
from penstock.groups.consumer.topics import TopicShape
from penstock.vocabulary import TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node


class NodeTopics:
    def __init__(self, node: "Node") -> None:
        self._node = node

    def find(self, name: str) -> TopicShape | None:
        topic = self._node.image.topics.get(name)
        return None if topic is None else TopicShape(name, topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: TopicId) -> str | None:
        topic = self._node.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return [name for name in self._node.image.topics if name not in INTERNAL_TOPICS]
