"""Offsets of partitions, looked up by time: the earliest, the latest, or the first record not older than a timestamp."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.peers.failures import PeerFailure, check_code
from penstock.peers.patience import Deadline
from penstock.peers.routing import Route, Router
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey

# What ListOffsets takes in the place of a timestamp.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

Wishes = Mapping[TopicPartition, int]


class FoundOffset(NamedTuple):
    offset: int  # -1 where no record is that young.
    timestamp_ms: int
    leader_epoch: int


async def list_offsets(
    router: Router, wishes: Wishes, deadline: Deadline, *, is_committed_only: bool = False
) -> dict[TopicPartition, FoundOffset]:
    """With `is_committed_only` the latest offset is that of the first record whose transaction is still open."""
    found: dict[TopicPartition, FoundOffset] = {}

    async def attempt() -> None:
        failures = []
        for group in await _by_leader(router, wishes, found, deadline):
            failures.append(await _list_at_leader(router, group, found, deadline, is_committed_only=is_committed_only))
        for failure in failures:
            if failure is not None:
                raise failure

    await router.retry("look up offsets", deadline, attempt)
    return {partition: found[partition] for partition in wishes}


_Group = tuple[Route, dict[TopicPartition, int]]


async def _by_leader(router: Router, wishes: Wishes, found: Mapping[TopicPartition, FoundOffset], deadline: Deadline) -> list[_Group]:
    groups: dict[int, _Group] = {}
    for partition, timestamp in wishes.items():
        if partition not in found:
            try:
                route = await router.leader(partition, deadline)
            except PeerFailure:
                router.doubt(partition.topic)  # Whoever led it is not there: another may lead by now.
                raise
            groups.setdefault(route.partition.leader, (route, {}))[1][partition] = timestamp
    return list(groups.values())


async def _list_at_leader(
    router: Router, group: _Group, found: dict[TopicPartition, FoundOffset], deadline: Deadline, *, is_committed_only: bool
) -> PeerFailure | None:
    """Adds to `found`; returns the first thing that went wrong."""
    (route, wishes), failure = group, None
    try:
        timeout_s, at_node_ms = router.timeouts(deadline)
        body = _body(wishes, at_node_ms, is_committed_only)
        answer = await route.connection.call(ApiKey.LIST_OFFSETS, body, timeout_s=timeout_s)
    except PeerFailure as lost:
        for partition in wishes:
            router.doubt(partition.topic)
        return lost
    for topic in answer.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, int(row.partition_index))
            try:
                check_code(row.error_code, f"look up offsets of {partition}")
            except PeerFailure as refusal:
                router.doubt(partition.topic)
                failure = failure or refusal
            else:
                found[partition] = FoundOffset(int(row.offset), int(row.timestamp), int(getattr(row, "leader_epoch", -1)))
    return failure


def _body(wishes: Wishes, at_node_ms: int, is_committed_only: bool) -> dict[str, Any]:
    topics: dict[str, list[dict[str, int]]] = {}
    for partition, timestamp in wishes.items():
        topics.setdefault(partition.topic, []).append({"partition_index": partition.partition, "timestamp": timestamp})
    return {
        "replica_id": -1,
        "isolation_level": int(is_committed_only),
        "timeout_ms": at_node_ms,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
