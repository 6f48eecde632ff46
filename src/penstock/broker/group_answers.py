"""What the APIs of the newer group protocols answer alike, for consumer groups (KIP-848) and share groups (KIP-932).

Partitions of topics that are gone by now are left out of descriptions, for they have no name to show.
Not here: what a member of either kind shows of itself (handlers/).
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.broker.calls import Call
from penstock.broker.long_answers import written
from penstock.broker.operations import GROUP_OPERATIONS
from penstock.broker.together import together
from penstock.errors import ErrorCode, Refusal
from penstock.groups.consumer.partitions import Partitions
from penstock.groups.consumer.views import ConsumerGroupView, ConsumerMemberView
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.replies import ConsumerHeartbeatReply
from penstock.groups.share.views import ShareGroupView, ShareMemberView
from penstock.vocabulary import Buffer
from penstock.wire import schemas
from penstock.wire.metadata import NO_OPERATIONS

if TYPE_CHECKING:
    from penstock.broker.node import Node

Row = dict[str, Any]
V = TypeVar("V", ConsumerGroupView, ShareGroupView)
Look = Callable[[GroupCoordinator, str], V | None]
ShowMember = Callable[["Node", Any], Row]


def heartbeat_body(reply: ConsumerHeartbeatReply) -> Row:
    assignment = reply.assignment
    return {
        "error_code": reply.error,
        "error_message": reply.message,
        "member_id": reply.member_id,
        "member_epoch": reply.member_epoch,
        "heartbeat_interval_ms": reply.heartbeat_interval_ms,
        "assignment": None
        if assignment is None
        else {"topic_partitions": [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in assignment.items()]},
    }


async def described(node: "Node", call: Call, kind: str, look: Look[V], show: ShowMember) -> list[Buffer]:
    """A group of another kind, as one that isn't there, is GROUP_ID_NOT_FOUND."""
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NO_OPERATIONS

    async def describe(group: str) -> Row:
        try:
            view = await node.groups.find(group).read(lambda state: look(state, group))
        except Refusal as refusal:
            return _failed(group, refusal.code, refusal.reason)
        if view is None:
            return _failed(group, ErrorCode.GROUP_ID_NOT_FOUND, f"there is no {kind} group {group!r}")
        return _row(node, view, operations, show)

    rows = await together(partial(describe, group) for group in request.group_ids)
    return await written(node, call, {"groups": rows}, sum(1 + len(row["members"]) for row in rows))


def member_row(view: ConsumerMemberView | ShareMemberView) -> Row:
    """What both kinds of member have."""
    member = view.member
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": view.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topics,
    }


def partitions_row(node: "Node", partitions: Partitions) -> Row:
    topics = node.image.topics_by_id
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": topics[topic_id].name, "partitions": numbers}
            for topic_id, numbers in partitions.items()
            if topic_id in topics
        ]
    }


def _failed(group: str, code: ErrorCode, message: str) -> Row:
    return {
        "error_code": code, "error_message": message, "group_id": group, "group_state": "", "group_epoch": 0, "assignment_epoch": 0,
        "assignor_name": "", "members": [], "authorized_operations": NO_OPERATIONS,
    }  # fmt: skip


def _row(node: "Node", view: ConsumerGroupView | ShareGroupView, operations: int, show: ShowMember) -> Row:
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "group_id": view.group,
        "group_state": view.state.value,
        "group_epoch": view.epoch,
        "assignment_epoch": view.assignment_epoch,
        "assignor_name": view.assignor,
        "members": [show(node, member) for member in view.members],
        "authorized_operations": operations,
    }
