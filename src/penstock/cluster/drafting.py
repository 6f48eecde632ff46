"""One decision over many partitions, while it is being made: what holds, with what the decision has changed so far.

Nothing of the image is touched. The changes become records at the end, cut so that no record grows without bound, and never between two
partitions that move together: nobody ever reads of one of them under another leader than the other.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.moving import Circumstances, Wish, has_everything_of_all, in_sync_in_all, mirrored, moved
from penstock.cluster.records import PartitionChange, PartitionsChanged
from penstock.settings import TopicConfig
from penstock.vocabulary import NodeId, TopicId

CHANGES_PER_RECORD = 1_000  # About 100 bytes each.

ConfigOf = Callable[[Topic], TopicConfig]


class Draft:
    def __init__(self, image: ClusterImage, config_of: ConfigOf, doubts: Callable[[NodeId], bool] = lambda _: False) -> None:
        self.image = image
        self.doubts = doubts  # Who may be down although the image says that they are up.
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

    def states(self, topic: Topic, index: int) -> list[PartitionState]:
        """The partition and what moves with it; the data first."""
        return [self.state(each, index) for each in self.image.together(topic)]

    def in_sync(self, topic: Topic, index: int) -> tuple[NodeId, ...]:
        """Who may lead while it is up."""
        return in_sync_in_all(self.states(topic, index))

    def have_everything(self, topic: Topic, index: int) -> tuple[NodeId, ...]:
        """Who has every committed record, of all that move together."""
        states = self.states(topic, index)
        candidates = dict.fromkeys(states[0].in_sync + states[0].eligible)
        return tuple(node for node in candidates if has_everything_of_all(node, states))

    def move(self, topic: Topic, index: int, wish: Wish, *, is_unclean_ordered: bool = False) -> PartitionState:
        """The partition's new state. What moves with it has its own, too."""
        together = self.image.together(topic)
        before = [self.state(each, index) for each in together]
        place, wishes = 0, [wish]
        if len(together) > 1:
            place = next(place for place, each in enumerate(together) if each.topic_id == topic.topic_id)
            wishes = [wish if at == place else mirrored(wish, before[place], state) for at, state in enumerate(before)]
        after = moved(before, wishes, self._circumstances(together[0], is_unclean_ordered=is_unclean_ordered))
        for each, old, new in zip(together, before, after, strict=True):
            if new is not old:
                self._changed[each.topic_id, index] = new
        return after[place]

    def _circumstances(self, data: Topic, *, is_unclean_ordered: bool) -> Circumstances:
        config = self._configs.get(data.topic_id)
        if config is None:
            config = self._configs[data.topic_id] = self.config_of(data)
        return Circumstances(self.nodes, config.min_insync_replicas, is_unclean_ordered or config.unclean_leader_election_enable)

    def records(self) -> list[PartitionsChanged]:
        return [PartitionsChanged(tuple(cut)) for cut in self._cuts()]

    def _cuts(self) -> Iterator[list[PartitionChange]]:
        cut: list[PartitionChange] = []
        for (topic_id, index), state in self._changed.items():
            if (self.image.companions_of.get(topic_id), index) in self._changed:
                continue  # It stands with its data.
            cut.append(state.as_change(topic_id, index))
            companion = self.image.companions.get(topic_id)
            if companion is not None and (companion, index) in self._changed:
                cut.append(self._changed[companion, index].as_change(companion, index))
            if len(cut) >= CHANGES_PER_RECORD:
                yield cut
                cut = []
        if cut:
            yield cut
