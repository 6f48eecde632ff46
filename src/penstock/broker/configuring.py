"""How changed settings take hold in a running node.

A node does what it was started with, unless every node was told otherwise since, unless this very node was: the last word holds. Everybody
who needs a dynamic setting reads it from `node.settings` when it is needed; what was worked out from settings (the topics' configs, the
controller's bounds) is worked out again here. A topic's new config holds for all that is appended, flushed, kept or dropped after it.
Not here: whether a change may be made (cluster/configuring.py), and keeping it, which is the metadata log's.
"""

from typing import TYPE_CHECKING

from penstock.broker.partitions import log_config
from penstock.broker.patience import Patience
from penstock.cluster.image import PartitionState, Topic
from penstock.cluster.records import EVERY_NODE
from penstock.errors import Refusal
from penstock.partition.leader import MinInSyncChanged
from penstock.partition.partition import Partition
from penstock.settings import NodeSettings, TopicConfig
from penstock.vocabulary import NodeId

if TYPE_CHECKING:
    from penstock.broker.node import Node


def settings_now(node: "Node") -> NodeSettings:
    """What holds for this node by all that was said so far."""
    settings = node.started_with
    for node_id in (EVERY_NODE, NodeId(settings.node_id)):
        for name, value in node.image.node_overrides.get(node_id, {}).items():
            try:
                settings = settings.with_changes({name: value})
            except Refusal as refusal:  # Written by another version of Penstock.
                node.report(f"{name} = {value} was set while the node ran and is not followed: {refusal.reason}")
    return settings


def follow_settings(node: "Node") -> None:
    """What was set while it, or another node, ran holds from here on."""
    node.settings = settings = settings_now(node)
    node.partitions.defaults = settings.default_topic_config()
    node.controller.follow(settings)
    node.groups.settings_changed()
    node.transactions.settings_changed()
    node.look_at_disk_room()


async def adopt_settings(node: "Node") -> None:
    """The node's own settings have changed. Thousands of topics may start from another config now, so others get their turn meanwhile."""
    follow_settings(node)
    node.look_for_old_segments_soon()
    patience = Patience(node.env)
    for topic in node.image.topics.values():
        adopt_topic_config(node, topic)
        await patience.pause_if_over()


def least_in_sync(config: TopicConfig, state: PartitionState) -> int:
    """How many replicas must vouch for what is committed. While the controller counts on replicas outside of the set to have everything
    (KIP-966), more than the set has: whatever this node was started with, nothing is committed that those lack."""
    return max(config.min_insync_replicas, len(state.in_sync) + 1 if state.eligible else 0)


def adopt_topic_config(node: "Node", topic: Topic) -> None:
    config = node.partitions.config_of(topic)
    for partition in node.partitions.by_id.get(topic.topic_id, {}).values():
        if partition.config != config:
            _adopt(node, partition, config)


def _adopt(node: "Node", partition: Partition, config: TopicConfig) -> None:
    partition.config = config
    partition.log.config = log_config(config, node.settings.checkpoint_bytes)
    state = node.image.partition(partition.topic_id, partition.index)
    if partition.leader is not None and state is not None:
        node.carry_out(partition, partition.leader.step(MinInSyncChanged(least_in_sync(config, state)), node.env.now()))
    if config.acknowledges_after_flush or config.flush_interval_ms is not None:
        node.flusher.request(partition)  # What came under a weaker promise is owed the stronger one from now on.
    node.ledgers.configured(partition)
    node.look_for_old_segments_soon()
