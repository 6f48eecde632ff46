"""One decision over many partitions, while it is being made: what holds, with what the decision has changed so far.

Nothing of the image is touched. The changes become records at the end, cut so that no record grows without bound.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.moving import Circumstances, Wish, moved
from penstock.cluster.records import PartitionChange, PartitionsChanged
from penstock.settings import TopicConfig
from penstock.vocabulary import NodeId, TopicId

CHANGES_PER_RECORD = 1_000  # About 100 bytes each.

ConfigOf = Callable[[Topic], TopicConfig]


class Draft:
    def __init__(self, image: ClusterImage, config_of: ConfigOf, doubts: Callable[[NodeId], bool] = lambda _: False) -> None:
        self.image = image
        self.doubts = doubts  # Of whom the controller has heard nothing since it took office: the image says that they are up.
        self.nodes = dict(image.nodes)  # As they will be.
        self.config_of = config_of
        self._configs: dict[TopicId, TopicConfig] = {}
        self._changed: dict[tuple[TopicId, int], PartitionState] = {}

    def __len__(self) -> int:
        return len(self._changed)

    def change_node(self, node_id: NodeId, **changes: Any) -> None:
        self.nodes[node_id] = replace(self.nodes[node_id], **changes)

    def state(self, topic: Topic, index: int) -> PartitionState:
        return self._changed.get((topic.topic_id, index)) or topic.partitions[index]

    def move(self, topic: Topic, index: int, wish: Wish, *, is_unclean_ordered: bool = False) -> PartitionState:
        """The partition's new state."""
        before = self.state(topic, index)
        config = self._configs.get(topic.topic_id)
        if config is None:
            config = self._configs[topic.topic_id] = self.config_of(topic)
        is_unclean_allowed = is_unclean_ordered or config.unclean_leader_election_enable
        after = moved(before, wish, Circumstances(self.nodes, config.min_insync_replicas, is_unclean_allowed))
        if after is not before:
            self._changed[topic.topic_id, index] = after
        return after

    def records(self) -> list[PartitionsChanged]:
        changes: list[PartitionChange] = [state.as_change(topic_id, index) for (topic_id, index), state in self._changed.items()]
        return [PartitionsChanged(tuple(changes[at : at + CHANGES_PER_RECORD])) for at in range(0, len(changes), CHANGES_PER_RECORD)]
