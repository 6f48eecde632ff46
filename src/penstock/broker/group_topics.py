"""The cluster's topics, as groups of the new protocol see them: those that hold now. All coordinators of a node have one view of them."""

from typing import TYPE_CHECKING

from penstock.broker.patience import Patience
from penstock.cluster.topic_names import is_internal
from penstock.groups.consumer.matches import Matches
from penstock.groups.consumer.topics import TopicShape
from penstock.vocabulary import TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node


LOOKED_AT_ONCE = 16  # Names, between looks at the clock: most patterns need a few microseconds for each, the worst two milliseconds.

LOOKS_MAX = 10_000  # Where so many patterns come at once that they push each other out, it ends all the same.


class NodeTopics:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._matches = Matches()
        self._is_stale = True

    def changed(self) -> None:
        """Topics came or went."""
        self._is_stale = True

    def find(self, name: str) -> TopicShape | None:
        topic = self._node.image.topics.get(name)
        return None if topic is None else TopicShape(name, topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: TopicId) -> str | None:
        topic = self._node.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def matching(self, regex: str) -> tuple[str, ...]:
        return self._renewed().found(regex)

    def look(self, regex: str) -> bool:
        """Begins to look for what a pattern stands for. Whether that is known now."""
        return self._renewed().look(regex, LOOKED_AT_ONCE)

    async def look_through(self, regex: str, patience: Patience) -> None:
        """Makes that known without keeping anybody waiting."""
        for _ in range(LOOKS_MAX):
            if self.look(regex):
                return
            await patience.pause_if_over()

    def _renewed(self) -> Matches:
        if self._is_stale:
            self._is_stale = False
            self._matches.renew(name for name in self._node.image.topics if not is_internal(name))
        return self._matches
