"""Metadata, versions 0 to 13 (KIP-516 topic ids, KIP-430 authorized operations).

Unknown topics come back as error rows; where auto-creation is on and the client allows it, a topic that is asked for by name is made.
A topic's bytes are kept per version until something about the topic changes, or a node comes or goes: replicas that are away are told too.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.broker.calls import Call
from penstock.broker.cluster_views import controller_for_clients, leader_error, offline_replicas
from penstock.broker.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from penstock.broker.patience import Patience
from penstock.cluster.commands import CreateTopics, NewTopic
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.topic_names import check_topic_name, is_internal
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NO_TOPIC_ID, Buffer
from penstock.wire.metadata import NO_OPERATIONS, MetadataRequest, TopicWish, encode_topic, read_metadata_request, write_metadata_response

if TYPE_CHECKING:
    from penstock.broker.node import Node


class TopicPieces:
    """The encoded rows of topics, by version; forgotten when a topic changes."""

    def __init__(self) -> None:
        self._pieces: dict[str, dict[tuple[int, bool], bytes]] = {}

    def get(self, image: ClusterImage, topic: Topic, version: int, *, with_operations: bool) -> bytes:
        kept = self._pieces.setdefault(topic.name, {})
        piece = kept.get((version, with_operations))
        if piece is None:
            piece = kept[version, with_operations] = _encode(image, topic, version, with_operations=with_operations)
        return piece

    def forget(self, name: str) -> None:
        self._pieces.pop(name, None)

    def forget_all(self) -> None:
        self._pieces.clear()


async def metadata(node: "Node", call: Call) -> list[Buffer]:
    request = read_metadata_request(call.frame, call.body_at, call.version)
    refused: dict[str, ErrorCode] = {}
    if request.topics and request.allow_auto_creation and node.settings.auto_create_topics_enable:
        refused = await _create_missing(node, request.topics)
    with_cluster_operations = request.with_cluster_operations and call.version >= 8
    return [
        write_metadata_response(
            call.version,
            call.correlation_id,
            brokers=node.endpoints(),
            cluster_id=node.image.cluster_id,
            controller_id=controller_for_clients(node),
            topic_pieces=await _pieces(node, request, call.version, refused),
            cluster_authorized_operations=CLUSTER_OPERATIONS if with_cluster_operations else NO_OPERATIONS,
        )
    ]


async def _pieces(node: "Node", request: MetadataRequest, version: int, refused: Mapping[str, ErrorCode]) -> list[bytes]:
    topics, pieces, patience = node.image.topics, [], Patience(node.env)
    if request.topics is None:
        for known in list(topics.values()):
            await patience.pause_if_over()
            if known.topic_id in node.image.topics_by_id:
                pieces.append(node.topic_pieces.get(node.image, known, version, with_operations=request.with_topic_operations))
        return pieces
    for wish in request.topics:
        await patience.pause_if_over()
        name = _name(wish)
        topic = topics.get(name) if name is not None else node.image.topics_by_id.get(wish.topic_id)
        if topic is None:
            pieces.append(_unknown(wish, version, refused))
        else:
            pieces.append(node.topic_pieces.get(node.image, topic, version, with_operations=request.with_topic_operations))
    return pieces


def _name(wish: TopicWish) -> str | None:
    """None when the topic is asked for by id. An id outranks a name: the Java client sends an empty name beside it, not a null one."""
    return wish.name if wish.topic_id == NO_TOPIC_ID else None


def _unknown(wish: TopicWish, version: int, refused: Mapping[str, ErrorCode]) -> bytes:
    name = _name(wish)
    if name is None:
        return encode_topic(version, name=None, topic_id=wish.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    try:
        check_topic_name(name)
        code = refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except Refusal as refusal:
        code = refusal.code
    return encode_topic(version, name=name, topic_id=NO_TOPIC_ID, error_code=code)


async def _create_missing(node: "Node", wishes: Sequence[TopicWish]) -> dict[str, ErrorCode]:
    """Makes the topics that are not there; returns why some could not be made."""
    names = [_name(wish) for wish in wishes]
    missing = dict.fromkeys(name for name in names if name is not None and name not in node.image.topics)
    if not missing:
        return {}
    topics = tuple(node.groups.new_topic() if name == node.groups.topic else NewTopic(name, node.new_topic_id(), -1) for name in missing)
    try:
        replies = await node.submit(CreateTopics(topics))
    except Refusal as refusal:
        replies = (refusal,) * len(topics)
    refused = {name: reply for name, reply in zip(missing, replies, strict=True) if isinstance(reply, Refusal)}
    for reason in dict.fromkeys(refusal.reason for refusal in refused.values() if refusal.code is not ErrorCode.INVALID_TOPIC_EXCEPTION):
        node.report(f"a client asked for topics that could not be made: {reason}")
    return {name: refusal.code for name, refusal in refused.items()}


def _encode(image: ClusterImage, topic: Topic, version: int, *, with_operations: bool) -> bytes:
    rows = [
        (leader_error(state), index, state.leader, state.leader_epoch, state.replicas, state.in_sync, offline_replicas(image, state))
        for index, state in enumerate(topic.partitions)
    ]
    operations = TOPIC_OPERATIONS if with_operations else NO_OPERATIONS
    return encode_topic(
        version,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=rows,
        authorized_operations=operations,
    )
