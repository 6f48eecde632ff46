"""Consumer groups: listed, shown with their members, deleted. Their lag stands in lag.py, their offsets in offsets.py."""

from typing import Any

from penstock.broker.group_offsets import delete_group as delete
from penstock.broker.group_views import described, groups_now
from penstock.broker.node import Node
from penstock.groups.views import MemberView
from penstock.http.answers import OK, Answer
from penstock.http.api.paging import NEXT, page_of
from penstock.http.api.requests import ApiRequest
from penstock.http.api.schemas import integer, listing, named, or_null, shape, text
from penstock.wire.consumer_protocol import read_assignment, read_subscription

CONSUMER = "consumer"  # The protocol type whose bytes can be shown.

LISTED_GROUP = shape(
    {
        "group": text("The group's name."),
        "state": text("Empty, PreparingRebalance, CompletingRebalance or Stable."),
        "protocol_type": text("consumer; empty for a group that only commits offsets."),
    }
)
GROUPS = shape({"groups": listing(named("ListedGroup")), "next": NEXT})
MEMBER = shape(
    {
        "member_id": text("The id that the coordinator gave it."),
        "instance_id": or_null(text("The id that it gave itself, where it is a static member.")),
        "client_id": text("What the client calls itself."),
        "client_host": text("Where it came from."),
        "topics": or_null(listing(text("A topic."), "What it wants; null while that is not settled, or not a consumer's.")),
        "partitions": or_null(listing(named("TopicPartitions"), "What it was given.")),
    }
)
TOPIC_PARTITIONS = shape({"topic": text("The topic's name."), "partitions": listing(integer("A partition's number."))})
GROUP = shape(
    {
        "group": text("The group's name."),
        "state": text("Empty, PreparingRebalance, CompletingRebalance or Stable."),
        "generation": integer("Grows with each rebalance."),
        "protocol_type": text("consumer; empty for a group that only commits offsets."),
        "protocol": text("How partitions are assigned; empty unless the group is Stable."),
        "leader": text("The member that assigns."),
        "members": listing(named("Member")),
    }
)


async def list_groups(node: Node, request: ApiRequest) -> Answer:
    listed = {each.group: each for each in await groups_now(node)}
    names, next_name = page_of(listed, request.query)
    rows = [{"group": name, "state": str(listed[name].state), "protocol_type": listed[name].protocol_type} for name in names]
    return Answer(OK, {"groups": rows, "next": next_name}, is_large=True)


async def get_group(node: Node, request: ApiRequest) -> Answer:
    view = await described(node, request.parts["group"])
    is_consumer = view.protocol_type == CONSUMER
    return Answer(
        OK,
        {
            "group": view.group,
            "state": str(view.state),
            "generation": view.generation,
            "protocol_type": view.protocol_type,
            "protocol": view.protocol,
            "leader": view.leader,
            "members": [_member(member, is_consumer=is_consumer) for member in view.members],
        },
    )


async def delete_group(node: Node, request: ApiRequest) -> Answer:
    await delete(node, request.parts["group"])
    return Answer(OK, {"deleted": request.parts["group"]})


def _member(member: MemberView, *, is_consumer: bool) -> dict[str, Any]:
    assignment = read_assignment(member.assignment) if is_consumer else None
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "topics": read_subscription(member.metadata) if is_consumer and member.metadata else None,
        "partitions": None
        if assignment is None
        else [{"topic": topic, "partitions": partitions} for topic, partitions in sorted(assignment.items())],
    }
