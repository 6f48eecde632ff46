"""ConsumerGroupDescribe, versions 0 and 1 (KIP-848; which protocol a member speaks from 1, KIP-1099).

Groups of the new protocol only: a classic group, as one that isn't there, is GROUP_ID_NOT_FOUND, upon which tools ask DescribeGroups.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.group_answers import described, member_row, partitions_row
from penstock.groups.consumer.views import ConsumerMemberView
from penstock.groups.coordinator import GroupCoordinator
from penstock.vocabulary import Buffer

if TYPE_CHECKING:
    from penstock.broker.node import Node

_CLASSIC, _CONSUMER = 0, 1


async def consumer_group_describe(node: "Node", call: Call) -> list[Buffer]:
    return await described(node, call, "consumer", GroupCoordinator.describe_consumer, _member)


def _member(node: "Node", view: ConsumerMemberView) -> dict[str, Any]:
    member = view.member
    return member_row(view) | {
        "instance_id": member.instance_id,
        "subscribed_topic_regex": member.regex or None,
        "assignment": partitions_row(node, view.assigned),
        "target_assignment": partitions_row(node, view.target),
        "member_type": _CONSUMER if member.classic is None else _CLASSIC,
    }
