"""DescribeGroups, versions 0 to 6 (KIP-345 instance ids from 4, KIP-430 authorized operations from 3, KIP-1043 not found from 6).

A group that isn't there, or is one of the new protocol, is told as Dead, from version 6 on with GROUP_ID_NOT_FOUND. Subscriptions and the
protocol are shown while the group is Stable: in a rebalance they are about to change.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.long_answers import written
from penstock.broker.operations import GROUP_OPERATIONS
from penstock.broker.together import together
from penstock.errors import ErrorCode, Refusal
from penstock.groups.states import GroupState
from penstock.groups.views import CLASSIC, GroupView
from penstock.vocabulary import Buffer
from penstock.wire import schemas
from penstock.wire.metadata import NO_OPERATIONS

if TYPE_CHECKING:
    from penstock.broker.node import Node

_NOT_FOUND_FROM = 6


async def describe_groups(node: "Node", call: Call) -> list[Buffer]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    operations = GROUP_OPERATIONS if getattr(request, "include_authorized_operations", False) else NO_OPERATIONS
    rows = await together(partial(_describe, node, call.version, group, operations) for group in request.groups)
    return await written(node, call, {"groups": rows}, sum(1 + len(row["members"]) for row in rows))


async def _describe(node: "Node", version: int, group: str, operations: int) -> dict[str, Any]:
    try:
        view = await node.groups.find(group).read(lambda state: state.describe(group))
    except Refusal as refusal:
        return _failed(group, refusal.code, "", refusal.reason)
    if view.kind != CLASSIC:
        view = GroupView(group, GroupState.DEAD)
    if view.state is GroupState.DEAD and version >= _NOT_FOUND_FROM:
        return _failed(group, ErrorCode.GROUP_ID_NOT_FOUND, view.state.value, f"there is no classic group {group!r}")
    return _row(view, operations)


def _failed(group: str, code: ErrorCode, state: str, message: str) -> dict[str, Any]:
    return {
        "error_code": code, "error_message": message, "group_id": group, "group_state": state,
        "protocol_type": "", "protocol_data": "", "members": [], "authorized_operations": NO_OPERATIONS,
    }  # fmt: skip


def _row(view: GroupView, operations: int) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "group_id": view.group,
        "group_state": view.state.value,
        "protocol_type": view.protocol_type,
        "protocol_data": view.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in view.members
        ],
        "authorized_operations": operations,
    }
