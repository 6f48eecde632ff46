"""One change of the cluster, decided for real or on trial. A trial decides on what holds now and stores nothing."""

from penstock.broker.node import Node
from penstock.cluster.commands import Command
from penstock.cluster.image import Topic
from penstock.cluster.replies import Made
from penstock.errors import ErrorCode, Refusal
from penstock.http.api.schemas import Schema, flag

VALIDATE_ONLY: Schema = flag("Only say whether it could be done.", default=False)


async def decide(node: Node, command: Command, *, is_trial: bool) -> Made:
    """What the controller made of a command with one reply. Raises Refusal."""
    replies = node.controller.decide(command).replies if is_trial else await node.submit(command)
    (reply,) = replies
    if isinstance(reply, Refusal):
        raise reply
    return reply


def topic_called(node: Node, name: str) -> Topic:
    topic = node.image.topics.get(name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic
