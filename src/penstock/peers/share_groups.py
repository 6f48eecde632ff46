"""Share groups (KIP-932) from outside: described, and how far they are with each partition. Asked of the group's coordinator."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.errors import ErrorCode
from penstock.peers.connection import Connection
from penstock.peers.coordinators import Coordinates, Coordinator, only
from penstock.peers.described_groups import DescribedGroup, Member, assigned
from penstock.peers.failures import NotSpoken, check_code
from penstock.peers.patience import Deadline
from penstock.peers.routing import Router
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey

SHARE = "share"
_UNKNOWN = -1


class ShareOffset(NamedTuple):
    start_offset: int | None  # Everything below is done. None: nobody has fetched yet.
    lag: int | None  # How many records are not done, where the node tells.


async def describe_share_group(connection: Connection, group: str, coordinator: int, what: str, timeout_s: float) -> DescribedGroup | None:
    """None where it is not a share group, or the node knows of no such kind."""
    try:
        answer = await connection.call(ApiKey.SHARE_GROUP_DESCRIBE, {"group_ids": [group]}, timeout_s=timeout_s)
    except NotSpoken:
        return None
    row = only(answer.groups, what)
    if row.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check_code(row.error_code, what, row.error_message)
    return DescribedGroup(
        group, row.group_state, SHARE, row.assignor_name, tuple(map(_member, row.members)), coordinator,
        protocol=SHARE, epoch=int(row.group_epoch), assignment_epoch=int(row.assignment_epoch),
    )  # fmt: skip


async def share_offsets(router: Router, group: str, deadline: Deadline) -> dict[TopicPartition, ShareOffset]:
    """Of all partitions that the group has ever read, in order."""
    what = f"read the offsets of share group {group!r}"

    async def ask(connection: Connection, coordinator: int) -> dict[TopicPartition, ShareOffset]:
        body = {"groups": [{"group_id": group, "topics": None}]}
        answer = await connection.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, body, timeout_s=router.timeouts(deadline).whole_s)
        told = only(answer.groups, what)
        check_code(told.error_code, what, told.error_message)
        found = {}
        for topic in told.topics:
            for row in topic.partitions:
                where = TopicPartition(str(topic.topic_name), int(row.partition_index))
                check_code(row.error_code, f"{what}: {where}", row.error_message)
                found[where] = ShareOffset(_known(row.start_offset), _known(getattr(row, "lag", _UNKNOWN)))
        return dict(sorted(found.items()))

    return await Coordinator(router, Coordinates.GROUP, group).ask(what, deadline, ask)


async def alter_share_offsets(router: Router, group: str, offsets: Mapping[TopicPartition, int], deadline: Deadline) -> None:
    """Raises `Refused` with the first partition's error; the others may be set then."""
    what = f"set offsets of share group {group!r}"
    topics: dict[str, list[dict[str, int]]] = {}
    for where, offset in offsets.items():
        topics.setdefault(where.topic, []).append({"partition_index": where.partition, "start_offset": offset})
    body = {"group_id": group, "topics": [{"topic_name": name, "partitions": rows} for name, rows in topics.items()]}

    async def ask(connection: Connection, coordinator: int) -> None:
        answer = await connection.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, body, timeout_s=router.timeouts(deadline).whole_s)
        check_code(answer.error_code, what, answer.error_message)
        for topic in answer.responses:
            for row in topic.partitions:
                check_code(row.error_code, f"{what}: {TopicPartition(str(topic.topic_name), int(row.partition_index))}", row.error_message)

    await Coordinator(router, Coordinates.GROUP, group).ask(what, deadline, ask)


def _known(number: Any) -> int | None:
    return None if number == _UNKNOWN else int(number)


def _member(row: Any) -> Member:
    has = assigned(row.assignment)
    return Member(
        row.member_id, None, row.client_id, row.client_host, sorted(map(str, row.subscribed_topic_names)), has,
        epoch=int(row.member_epoch), target=has,
    )  # fmt: skip
