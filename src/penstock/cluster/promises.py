"""What the nodes' acknowledgements are worth after a power cut: who may have acknowledged a record before it was flushed.

Each node goes by what it was started with, unless every node or the topic was told otherwise. So a node says with its registration what
its own defaults are, and an unclean end of that life is judged by them: not by the controller's, nor by those of the life that follows.
When a stronger promise takes the place of a weaker one, the lives that gave the weaker are noted (FlushPromised): what they acknowledged
until then may still be unflushed, or lost already if they are down. A life is judged by that note until the next one of its node.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from penstock.cluster.drafting import Draft
from penstock.cluster.image import ClusterImage, NodeState, Topic
from penstock.cluster.records import EVERY_NODE, FlushPromised
from penstock.errors import Refusal
from penstock.settings import TOPIC_PREFIX, TopicConfig
from penstock.vocabulary import NodeId, TopicId

FLUSH_SETTINGS = ("flush", "flush.messages")
TOPICS_PER_RECORD = 1_000

Told = Mapping[str, str]
NodeOverrides = Mapping[NodeId, Told]
Life = tuple[NodeId, int]


def flush_defaults(defaults: TopicConfig) -> dict[str, str]:
    """What a node that was started with these says of itself: only what is not the default of all."""
    usual, mine = TopicConfig().as_texts(), defaults.as_texts()
    return {name: mine[name] for name in FLUSH_SETTINGS if mine[name] != usual[name]}


def may_have_acknowledged_early(draft: Draft, topic: Topic, node: NodeState) -> bool:
    """Whether this life of the node may have acknowledged records of the topic that it had not flushed."""
    if node.node_epoch <= draft.image.early.get(topic.topic_id, {}).get(node.node_id, 0):
        return True
    if node.flush_defaults is None:
        return not draft.config_of(topic).acknowledges_after_flush
    return _acknowledges_early(node.flush_defaults, node.node_id, draft.image.node_overrides, topic.overrides)


def topic_promises(image: ClusterImage, own: TopicConfig, topics: Sequence[Topic], overrides: Told) -> Iterator[FlushPromised]:
    """What is to be noted when the overrides of topics that were told the same become these. `own`: the controller's defaults."""
    before, after = _early(image, own, image.node_overrides, topics[0].overrides), _early(image, own, image.node_overrides, overrides)
    if lives := tuple(life for life in before if life not in after):
        yield FlushPromised(tuple(topic.topic_id for topic in topics), lives)


def node_promises(image: ClusterImage, own: TopicConfig, node_overrides: NodeOverrides) -> Iterator[FlushPromised]:
    """The same when the nodes' overrides become these."""
    alike: dict[tuple[str | None, ...], list[TopicId]] = {}
    for topic in image.topics.values():
        alike.setdefault(tuple(topic.overrides.get(name) for name in FLUSH_SETTINGS), []).append(topic.topic_id)
    for topics in alike.values():
        overrides = image.topics_by_id[topics[0]].overrides
        before, after = _early(image, own, image.node_overrides, overrides), _early(image, own, node_overrides, overrides)
        if lives := tuple(life for life in before if life not in after):
            for at in range(0, len(topics), TOPICS_PER_RECORD):
                yield FlushPromised(tuple(topics[at : at + TOPICS_PER_RECORD]), lives)


def _early(image: ClusterImage, own: TopicConfig, node_overrides: NodeOverrides, overrides: Told) -> list[Life]:
    """Who acknowledges early, in a topic with these overrides."""
    unsaid = flush_defaults(own)
    return [
        (node.node_id, node.node_epoch)
        for node in image.nodes.values()
        if node.is_broker
        and _acknowledges_early(
            unsaid if node.flush_defaults is None else node.flush_defaults, node.node_id, node_overrides, overrides
        )
    ]  # fmt: skip


def _acknowledges_early(defaults: Told, node_id: NodeId, node_overrides: NodeOverrides, overrides: Told) -> bool:
    every, one = node_overrides.get(EVERY_NODE, {}), node_overrides.get(node_id, {})
    return _is_early(*[_last(name, defaults, every, one, overrides) for name in FLUSH_SETTINGS])


def _last(name: str, defaults: Told, every: Told, one: Told, overrides: Told) -> str | None:
    for told, known_as in ((overrides, name), (one, TOPIC_PREFIX + name), (every, TOPIC_PREFIX + name)):
        if known_as in told:
            return told[known_as]
    return defaults.get(name)


@cache
def _is_early(*values: str | None) -> bool:
    """A value that only another version of Penstock takes promises nothing."""
    said = {name: value for name, value in zip(FLUSH_SETTINGS, values, strict=True) if value is not None}
    try:
        return not TopicConfig().with_overrides(said).acknowledges_after_flush
    except Refusal:
        return True
