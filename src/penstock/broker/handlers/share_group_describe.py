"""ShareGroupDescribe, version 1 (KIP-932). Share groups only: a group of another kind, as one that isn't there, is GROUP_ID_NOT_FOUND."""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.group_answers import described, member_row, partitions_row
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.share.views import ShareMemberView
from penstock.vocabulary import Buffer

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def share_group_describe(node: "Node", call: Call) -> list[Buffer]:
    return await described(node, call, "share", GroupCoordinator.describe_share, _member)


def _member(node: "Node", view: ShareMemberView) -> dict[str, Any]:
    return member_row(view) | {"assignment": partitions_row(node, view.assigned)}
