"""The cluster looked at from outside: its nodes and its quorum, where partitions lie, and which are on their way elsewhere.

Any broker is asked: each has the metadata, and passes on what only the controller knows.
Not here: changing any of it (cluster_changes.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import ErrorCode
from penstock.peers.failures import check_code
from penstock.peers.patience import Deadline
from penstock.peers.routing import Router
from penstock.peers.topics import NO_LEADER
from penstock.vocabulary import Address, TopicId, TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.configs import ResourceType
from penstock.wire.schemas import topic_id_bytes

METADATA_TOPIC = "__cluster_metadata"
PARTITIONS_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class ClusterNode:
    node_id: int
    address: Address
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class DescribedCluster:
    cluster_id: str
    controller: int  # Whom to ask for changes; the quorum's leader where that is a broker.
    nodes: tuple[ClusterNode, ...]


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    node_id: int
    directory_id: bytes
    end_offset: int  # -1 where nobody knows.
    last_heard_ms: int  # Since 1970; -1 where nobody knows.
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class DescribedQuorum:
    leader: int  # NO_LEADER while there is none.
    epoch: int
    committed_end: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    addresses: Mapping[int, Address]  # Where voters listen for other nodes.

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    partition: int
    leader: int  # A node id, or NO_LEADER.
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    eligible: tuple[int, ...]
    last_known_eligible: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: TopicId
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    error_code: int = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Moving:
    """A partition on its way to other replicas."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def describe_nodes(router: Router, deadline: Deadline) -> DescribedCluster:
    body = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": True}
    answer = await _ask_any(router, ApiKey.DESCRIBE_CLUSTER, body, "describe the cluster", deadline)
    nodes = [
        ClusterNode(int(row.broker_id), Address(row.host, int(row.port)), row.rack, bool(getattr(row, "is_fenced", False)))
        for row in answer.brokers
    ]
    return DescribedCluster(answer.cluster_id, int(answer.controller_id), tuple(sorted(nodes, key=lambda node: node.node_id)))


async def describe_quorum(router: Router, deadline: Deadline) -> DescribedQuorum:
    body = {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]}
    what = "describe the quorum"

    async def attempt() -> DescribedQuorum:
        connection = await router.any_node(deadline)
        answer = await connection.call(ApiKey.DESCRIBE_QUORUM, body, timeout_s=router.timeouts(deadline).whole_s)
        check_code(answer.error_code, what, getattr(answer, "error_message", None))
        (row,) = answer.topics[0].partitions
        check_code(row.error_code, what, getattr(row, "error_message", None))
        voters, observers = (tuple(map(_quorum_replica, rows)) for rows in (row.current_voters, row.observers))
        listed = {int(node.node_id): node.listeners for node in getattr(answer, "nodes", ())}
        addresses = {node: Address(rows[0].host, int(rows[0].port)) for node, rows in listed.items() if rows}
        return DescribedQuorum(int(row.leader_id), int(row.leader_epoch), int(row.high_watermark), voters, observers, addresses)

    return await router.retry(what, deadline, attempt)


async def describe_partitions(router: Router, topics: Sequence[str], deadline: Deadline) -> list[TopicDescription]:
    """By name, all where none is named. A topic that is not there comes with its error code."""
    found: dict[str, TopicDescription] = {}
    cursor: dict[str, Any] | None = None
    while True:
        body = {"topics": [{"name": name} for name in topics], "response_partition_limit": PARTITIONS_AT_ONCE, "cursor": cursor}
        answer = await _ask_any(router, ApiKey.DESCRIBE_TOPIC_PARTITIONS, body, "describe topics", deadline)
        for row in answer.topics:
            known = found.get(row.name)
            partitions = (*(known.partitions if known is not None else ()), *map(_partition, row.partitions))
            topic_id = topic_id_bytes(row.topic_id)
            found[row.name] = TopicDescription(row.name, topic_id, bool(row.is_internal), partitions, int(row.error_code))
        if answer.next_cursor is None:
            return list(found.values())
        cursor = {"topic_name": answer.next_cursor.topic_name, "partition_index": answer.next_cursor.partition_index}


async def topic_settings(
    router: Router, topics: Sequence[str], names: Sequence[str] | None, deadline: Deadline
) -> dict[str, dict[str, Any]]:
    """For each topic the named settings, or all, as rows of DescribeConfigs by name. Topics that have gone are left out."""
    wishes = [{"resource_type": ResourceType.TOPIC, "resource_name": topic, "configuration_keys": names} for topic in topics]
    body = {"resources": wishes, "include_synonyms": False, "include_documentation": False}
    answer = await _ask_any(router, ApiKey.DESCRIBE_CONFIGS, body, "describe the settings of topics", deadline)
    told = [row for row in answer.results if row.error_code == ErrorCode.NONE]
    return {row.resource_name: {config.name: config for config in row.configs} for row in told}


async def list_moving(router: Router, deadline: Deadline) -> dict[TopicPartition, Moving]:
    what = "list reassignments"
    body = {"topics": None, "timeout_ms": router.timeouts(deadline).at_node_ms}
    answer = await _ask_any(router, ApiKey.LIST_PARTITION_REASSIGNMENTS, body, what, deadline)
    check_code(answer.error_code, what, answer.error_message)
    return {
        TopicPartition(topic.name, int(row.partition_index)): Moving(
            tuple(map(int, row.replicas)), tuple(map(int, row.adding_replicas)), tuple(map(int, row.removing_replicas))
        )
        for topic in answer.topics
        for row in topic.partitions
    }


async def _ask_any(router: Router, api: ApiKey, body: Mapping[str, Any], what: str, deadline: Deadline) -> Any:
    async def attempt() -> Any:
        connection = await router.any_node(deadline)
        return await connection.call(api, body, timeout_s=router.timeouts(deadline).whole_s)

    return await router.retry(what, deadline, attempt)


def _quorum_replica(row: Any) -> QuorumReplica:
    return QuorumReplica(
        int(row.replica_id),
        topic_id_bytes(getattr(row, "replica_directory_id", None)),
        int(row.log_end_offset),
        int(getattr(row, "last_fetch_timestamp", -1)),
        int(getattr(row, "last_caught_up_timestamp", -1)),
    )


def _partition(row: Any) -> PartitionDescription:
    return PartitionDescription(
        int(row.partition_index),
        int(row.leader_id) if row.error_code != ErrorCode.LEADER_NOT_AVAILABLE else NO_LEADER,
        int(row.leader_epoch),
        tuple(map(int, row.replica_nodes)),
        tuple(map(int, row.isr_nodes)),
        tuple(map(int, row.eligible_leader_replicas or ())),
        tuple(map(int, row.last_known_elr or ())),
        tuple(map(int, row.offline_replicas)),
    )
