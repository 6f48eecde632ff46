"""Consumer groups from outside: listed, described, their committed offsets read and set, deleted.

Whatever concerns one group is asked of the node that coordinates it; a coordinator that moved, or is still loading, is looked for again.
A group speaks the classic protocol, the new one (KIP-848), or is a share group (KIP-932), and each kind has a question of its own to
describe it: the new one is asked first.
Setting offsets works only while the group has no members: they commit for themselves.
Every part of it may be asked twice without harm; a deletion whose first answer was lost counts as done when the group is gone.
Not here: being a member.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from penstock.errors import ErrorCode
from penstock.peers.connection import Connection
from penstock.peers.coordinators import Ask, Coordinates, Coordinator, only
from penstock.peers.described_groups import CLASSIC, CONSUMER, DescribedGroup, ListedGroup, Member, assigned
from penstock.peers.failures import NotSpoken, Refused, check_code
from penstock.peers.patience import Deadline
from penstock.peers.routing import Router
from penstock.peers.share_groups import describe_share_group
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.consumer_protocol import read_assignment, read_subscription

T = TypeVar("T")

NO_OFFSET = -1  # What is answered for a partition without a committed offset.
DEAD = "Dead"

_GENERATION_OF_NOBODY = -1


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


async def list_groups(router: Router, deadline: Deadline) -> list[ListedGroup]:
    """Of every node, by name."""

    async def attempt() -> list[ListedGroup]:
        found: dict[str, ListedGroup] = {}
        for node in (await router.refresh((), deadline)).nodes:
            connection = await router.switchboard.to_node(node.node_id, deadline)
            answer = await connection.call(ApiKey.LIST_GROUPS, {}, timeout_s=router.timeouts(deadline).whole_s)
            check_code(answer.error_code, f"list the groups of node {node.node_id}")
            for row in answer.groups:
                protocol = getattr(row, "group_type", "").lower() or CLASSIC
                listed = ListedGroup(str(row.group_id), getattr(row, "group_state", ""), row.protocol_type, node.node_id, protocol)
                found[listed.group] = listed
        return [found[group] for group in sorted(found)]

    return await router.retry("list the groups", deadline, attempt)


async def describe_group(router: Router, group: str, deadline: Deadline) -> DescribedGroup:
    """Raises `Refused` with GROUP_ID_NOT_FOUND where there is none, as newer nodes say it; older ones call it dead."""
    what = f"describe group {group!r}"

    async def ask(connection: Connection, coordinator: int) -> DescribedGroup:
        timeout_s = router.timeouts(deadline).whole_s
        described = await _describe_by_new_protocol(connection, group, coordinator, what, timeout_s)
        described = described or await describe_share_group(connection, group, coordinator, what, timeout_s)
        return described or await _describe_by_classic_protocol(connection, group, coordinator, what, timeout_s)

    return await _at_coordinator(router, group, what, deadline, ask)


async def _describe_by_new_protocol(
    connection: Connection, group: str, coordinator: int, what: str, timeout_s: float
) -> DescribedGroup | None:
    """None where it is not a group of that kind, or the node knows of no such kind."""
    try:
        answer = await connection.call(ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [group]}, timeout_s=timeout_s)
    except NotSpoken:
        return None
    row = only(answer.groups, what)
    if row.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check_code(row.error_code, what, row.error_message)
    members = tuple(map(_consumer_member, row.members))
    return DescribedGroup(
        group, row.group_state, CONSUMER, row.assignor_name, members, coordinator,
        protocol=CONSUMER, epoch=int(row.group_epoch), assignment_epoch=int(row.assignment_epoch),
    )  # fmt: skip


async def _describe_by_classic_protocol(
    connection: Connection, group: str, coordinator: int, what: str, timeout_s: float
) -> DescribedGroup:
    answer = await connection.call(ApiKey.DESCRIBE_GROUPS, {"groups": [group]}, timeout_s=timeout_s)
    row = only(answer.groups, what)
    check_code(row.error_code, what, getattr(row, "error_message", None))
    if row.group_state == DEAD:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, what)
    members = tuple(_member(member, row.protocol_type) for member in row.members)
    return DescribedGroup(group, row.group_state, row.protocol_type, row.protocol_data, members, coordinator)


async def committed_offsets(router: Router, group: str, deadline: Deadline) -> dict[TopicPartition, Committed]:
    """All of the group's, in order, as they are now, whatever an open transaction will make of them. A group that nobody knows has none."""
    what = f"read the offsets of group {group!r}"
    body = {"group_id": group, "topics": None, "groups": [{"group_id": group, "topics": None}], "require_stable": False}

    async def ask(connection: Connection, coordinator: int) -> dict[TopicPartition, Committed]:
        answer = await connection.call(ApiKey.OFFSET_FETCH, body, timeout_s=router.timeouts(deadline).whole_s)
        told = only(answer.groups, what) if hasattr(answer, "groups") else answer
        check_code(told.error_code, what)
        found = {}
        for topic in told.topics:
            for row in topic.partitions:
                where = TopicPartition(str(topic.name), int(row.partition_index))
                check_code(row.error_code, f"{what}: {where}")
                if row.committed_offset != NO_OFFSET:
                    epoch = int(getattr(row, "committed_leader_epoch", -1))
                    found[where] = Committed(int(row.committed_offset), epoch, row.metadata or "")
        return dict(sorted(found.items()))

    return await _at_coordinator(router, group, what, deadline, ask)


async def commit_offsets(router: Router, group: str, offsets: Mapping[TopicPartition, int], deadline: Deadline) -> None:
    """As nobody's member. Raises `Refused` with the first partition's error; the others may be committed then."""
    what = f"set offsets of group {group!r}"
    topics: dict[str, list[dict[str, Any]]] = {}
    for where, offset in offsets.items():
        row = {"partition_index": where.partition, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
        topics.setdefault(where.topic, []).append(row)
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": _GENERATION_OF_NOBODY,
        "member_id": "",
        "retention_time_ms": -1,
        "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
    }

    async def ask(connection: Connection, coordinator: int) -> None:
        answer = await connection.call(ApiKey.OFFSET_COMMIT, body, timeout_s=router.timeouts(deadline).whole_s)
        for topic in answer.topics:
            for row in topic.partitions:
                check_code(row.error_code, f"{what}: {TopicPartition(str(topic.name), int(row.partition_index))}")

    await _at_coordinator(router, group, what, deadline, ask)


async def delete_group(router: Router, group: str, deadline: Deadline) -> None:
    what = f"delete group {group!r}"

    async def ask(connection: Connection, coordinator: int) -> None:
        answer = await connection.call(ApiKey.DELETE_GROUPS, {"groups_names": [group]}, timeout_s=router.timeouts(deadline).whole_s)
        check_code(only(answer.results, what).error_code, what)

    try:
        await _at_coordinator(router, group, what, deadline, ask)
    except Refused as refused:
        if refused.code != ErrorCode.GROUP_ID_NOT_FOUND or not refused.may_have_happened:
            raise


async def _at_coordinator(router: Router, group: str, what: str, deadline: Deadline, ask: Ask[T]) -> T:
    return await Coordinator(router, Coordinates.GROUP, group).ask(what, deadline, ask)


def _member(row: Any, protocol_type: str) -> Member:
    is_consumer = protocol_type == CONSUMER
    return Member(
        row.member_id,
        getattr(row, "group_instance_id", None),
        row.client_id,
        row.client_host,
        read_subscription(row.member_metadata) if is_consumer else None,
        read_assignment(row.member_assignment) if is_consumer else None,
    )


def _consumer_member(row: Any) -> Member:
    return Member(
        row.member_id, row.instance_id, row.client_id, row.client_host, sorted(map(str, row.subscribed_topic_names)),
        assigned(row.assignment), epoch=int(row.member_epoch), target=assigned(row.target_assignment),
        topics_regex=row.subscribed_topic_regex or None,
    )  # fmt: skip
