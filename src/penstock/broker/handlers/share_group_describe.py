"""ShareGroupDescribe, version 1 (KIP-932).

Share groups only: a group of another kind, as one that isn't there, is GROUP_ID_NOT_FOUND. Partitions of topics that are gone by now are
left out, for they have no name to show.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.long_answers import written
from penstock.broker.operations import GROUP_OPERATIONS
from penstock.broker.together import together
from penstock.errors import ErrorCode, Refusal
from penstock.groups.share.views import ASSIGNOR, ShareGroupView, ShareMemberView
from penstock.vocabulary import Buffer
from penstock.wire import schemas
from penstock.wire.metadata import NO_OPERATIONS

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def share_group_describe(node: "Node", call: Call) -> list[Buffer]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NO_OPERATIONS
    rows = await together(partial(_describe, node, group, operations) for group in request.group_ids)
    return await written(node, call, {"groups": rows}, sum(1 + len(row["members"]) for row in rows))


async def _describe(node: "Node", group: str, operations: int) -> dict[str, Any]:
    try:
        view = await node.groups.find(group).read(lambda state: state.describe_share(group))
    except Refusal as refusal:
        return _failed(group, refusal.code, refusal.reason)
    if view is None:
        return _failed(group, ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group!r}")
    return _row(node, view, operations)


def _failed(group: str, code: ErrorCode, message: str) -> dict[str, Any]:
    return {
        "error_code": code, "error_message": message, "group_id": group, "group_state": "", "group_epoch": 0, "assignment_epoch": 0,
        "assignor_name": "", "members": [], "authorized_operations": NO_OPERATIONS,
    }  # fmt: skip


def _row(node: "Node", view: ShareGroupView, operations: int) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "group_id": view.group,
        "group_state": view.state.value,
        "group_epoch": view.epoch,
        "assignment_epoch": view.assignment_epoch,
        "assignor_name": ASSIGNOR,
        "members": [_member(node, member) for member in view.members],
        "authorized_operations": operations,
    }


def _member(node: "Node", view: ShareMemberView) -> dict[str, Any]:
    member, topics = view.member, node.image.topics_by_id
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": view.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topics,
        "assignment": {
            "topic_partitions": [
                {"topic_id": topic_id, "topic_name": topics[topic_id].name, "partitions": numbers}
                for topic_id, numbers in view.assigned.items()
                if topic_id in topics
            ]
        },
    }
