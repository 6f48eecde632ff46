"""How many replicas must vouch for what is committed, as the controller and this node's own settings have it."""

from penstock.broker.configuring import least_in_sync
from penstock.cluster.image import PartitionState
from penstock.settings import TopicConfig
from penstock.vocabulary import LeaderEpoch, NodeId


def state(in_sync: tuple[int, ...], eligible: tuple[int, ...] = ()) -> PartitionState:
    nodes = tuple(map(NodeId, (1, 2, 3)))
    return PartitionState(nodes, tuple(map(NodeId, in_sync)), NodeId(1), LeaderEpoch(1), eligible=tuple(map(NodeId, eligible)))


def test_the_topic_says_how_many() -> None:
    assert least_in_sync(TopicConfig(min_insync_replicas=2), state((1,))) == 2


def test_while_others_are_counted_on_to_have_everything_the_set_alone_commits_nothing() -> None:
    """Also where this node was started to ask for less than the controller does."""
    assert least_in_sync(TopicConfig(min_insync_replicas=1), state((1,), eligible=(2,))) == 2
    assert least_in_sync(TopicConfig(min_insync_replicas=1), state((1, 3), eligible=(2,))) == 3
