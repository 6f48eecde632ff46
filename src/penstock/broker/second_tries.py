"""A command that is put to the controller again, because nobody knew whether it was done: which refusals then mean that it was.

The controller looks at what holds, so deciding twice does no harm. But some commands are refused where they find their own work done, and
that must not be told to whoever succeeded. Only these refusals are taken for done, only on a second try, and only where what was asked
for holds in the image. It may be another's work; the asker cannot tell, and need not.
"""

from collections.abc import Sequence

from penstock.cluster import records
from penstock.cluster.commands import AddPartitions, Command, DeleteTopic, MorePartitions, Reassignment, ReassignPartitions, UnregisterNode
from penstock.cluster.image import ClusterImage
from penstock.cluster.replies import Reply
from penstock.errors import ErrorCode, Refusal


def as_if_first(image: ClusterImage, command: Command, replies: Sequence[Reply]) -> tuple[Reply, ...]:
    """`image` has all that the controller knew when it gave these replies."""
    match command:
        case AddPartitions():
            return tuple(_grown(image, wish, reply) for wish, reply in zip(command.topics, replies, strict=True))
        case ReassignPartitions():
            return tuple(_given_up(image, wish, reply) for wish, reply in zip(command.wishes, replies, strict=True))
        case DeleteTopic() if _is_refused(replies[0], ErrorCode.UNKNOWN_TOPIC_ID):
            return (records.TopicDeleted(command.topic_id, image.graveyard.get(command.topic_id, ())),)
        case UnregisterNode() if _is_refused(replies[0], ErrorCode.BROKER_ID_NOT_REGISTERED) and command.node_id in image.retired:
            return (records.NodeUnregistered(command.node_id, image.retired[command.node_id]),)
        case _:
            return tuple(replies)


def _grown(image: ClusterImage, wish: MorePartitions, reply: Reply) -> Reply:
    topic = image.topics.get(wish.topic)
    if topic is None or len(topic.partitions) != wish.partitions or not _is_refused(reply, ErrorCode.INVALID_PARTITIONS):
        return reply
    return records.PartitionsAdded(topic.topic_id, ())


def _given_up(image: ClusterImage, wish: Reassignment, reply: Reply) -> Reply:
    topic = image.topics.get(wish.topic)
    if topic is None or wish.replicas is not None or not _is_refused(reply, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
        return reply
    return topic.partitions[wish.partition].as_change(topic.topic_id, wish.partition)


def _is_refused(reply: Reply, code: ErrorCode) -> bool:
    return isinstance(reply, Refusal) and reply.code is code
