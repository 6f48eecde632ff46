"""What is announced is served: every version of every API, for what there is and for what there is not."""

import struct
from typing import Any

import pytest
from serving import Line, Serving, batch, fetch_body, produce_body
from waiting import PATIENCE_MS

from penstock.broker.apis import API_TABLE
from penstock.errors import ErrorCode
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True

SERVED = [(api.key, version) for api in API_TABLE for version in range(api.version_min, api.version_max + 1)]
NOT_SERVED = [
    (0, 0), (0, 1), (0, 2), (0, 14), (1, 3), (1, 19), (2, 0), (3, 14), (19, 1), (22, 6), (8, 1), (9, 0), (10, 7), (68, 0),
    (999, 0), (-1, 0),
]  # fmt: skip


def bodies(api: ApiKey, version: int, name: str, topic_id: bytes) -> list[dict[str, Any]]:
    """Requests about this topic."""
    match api:
        case ApiKey.PRODUCE:
            topic = topic_id if version >= 13 else name
            return [produce_body({topic: {0: batch(b"value"), 7: batch(b"value")}})]
        case ApiKey.FETCH:
            topic = topic_id if version >= 13 else name
            return [fetch_body({topic: {0: 0, 7: 0}}), fetch_body({topic: 99}, isolation_level=1)]
        case ApiKey.LIST_OFFSETS:
            times = [-1, -2, 0] + [-3] * (version >= 7) + [-4] * (version >= 8) + [-5] * (version >= 9) + [-6] * (version >= 11)
            wishes = [[{"partition_index": index, "timestamp": time} for index in (0, 7)] for time in times]
            return [{"replica_id": -1, "topics": [{"name": name, "partitions": partitions}]} for partitions in wishes]
        case ApiKey.METADATA:
            named = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
            if version < 12:
                return [named, {"topics": []}]
            return [named, {"topics": None}, {"topics": [{"name": None, "topic_id": topic_id}]}]
        case ApiKey.CREATE_TOPICS:
            return [{"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": PATIENCE_MS}]
        case ApiKey.DELETE_TOPICS:
            if version < 6:
                return [{"topic_names": [f"{name}-not"], "timeout_ms": PATIENCE_MS}]
            return [{"topics": [{"name": f"{name}-not"}, {"name": None, "topic_id": bytes(15) + b"\7"}], "timeout_ms": PATIENCE_MS}]
        case ApiKey.INIT_PRODUCER_ID:
            return [{"transactional_id": None, "transaction_timeout_ms": 1}, {"transactional_id": "t", "transaction_timeout_ms": 1}]
        case ApiKey.API_VERSIONS:
            return [{"client_software_name": "test", "client_software_version": "1"}]
        case ApiKey.DESCRIBE_CLUSTER:
            return [{"include_cluster_authorized_operations": True}]
        case ApiKey.DESCRIBE_CONFIGS:
            resources = [(2, name), (4, "1"), (4, ""), (4, "9"), (8, "1"), (99, "x")]
            rows = [{"resource_type": kind, "resource_name": who, "configuration_keys": None} for kind, who in resources]
            return [{"resources": rows, "include_synonyms": True, "include_documentation": True}]
        case ApiKey.ALTER_CONFIGS | ApiKey.INCREMENTAL_ALTER_CONFIGS:
            configs = [{"name": "retention.ms", "value": "5", "config_operation": 0}]
            resources = [{"resource_type": kind, "resource_name": who, "configs": configs} for kind, who in ((2, name), (4, "1"), (8, "1"))]
            return [{"resources": resources, "validate_only": True}]
        case ApiKey.CREATE_PARTITIONS:
            return [{"topics": [{"name": name, "count": 3, "assignments": None}], "timeout_ms": PATIENCE_MS, "validate_only": True}]
        case ApiKey.DELETE_RECORDS:
            return [{"topics": [{"name": name, "partitions": [{"partition_index": 0, "offset": -1}]}], "timeout_ms": PATIENCE_MS}]
        case ApiKey.OFFSET_FOR_LEADER_EPOCH:
            wish = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
            return [{"replica_id": -1, "topics": [{"topic": name, "partitions": [wish]}]}]
        case ApiKey.DESCRIBE_LOG_DIRS:
            return [{"topics": None}, {"topics": [{"topic": name, "partitions": [0, 7]}]}]
        case ApiKey.DESCRIBE_PRODUCERS:
            return [{"topics": [{"name": name, "partition_indexes": [0, 7]}]}]
        case ApiKey.LIST_PARTITION_REASSIGNMENTS:
            return [{"topics": None}, {"topics": [{"name": name, "partition_indexes": [0]}]}]
        case ApiKey.LIST_CONFIG_RESOURCES:
            return [{"resource_types": []}, {"resource_types": [2, 4]}]
        case ApiKey.DESCRIBE_TOPIC_PARTITIONS:
            return [{"topics": []}, {"topics": [{"name": name}], "cursor": {"topic_name": name, "partition_index": 0}}]
        case _:
            return cluster_bodies(api, name) or transaction_bodies(api, name) or group_bodies(api, version, name, topic_id)


def cluster_bodies(api: ApiKey, name: str) -> list[dict[str, Any]]:
    """Requests about nodes, and about who holds and leads what."""
    match api:
        case ApiKey.ELECT_LEADERS:
            topics = [{"topic": name, "partitions": [0, 7]}]
            return [{"election_type": 0, "topic_partitions": each, "timeout_ms": PATIENCE_MS} for each in (topics, [], None)]
        case ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            rows = [{"partition_index": 0, "replicas": [1]}, {"partition_index": 7, "replicas": None}]
            return [{"topics": [{"name": name, "partitions": rows}], "timeout_ms": PATIENCE_MS}, {"topics": [], "timeout_ms": PATIENCE_MS}]
        case ApiKey.UNREGISTER_BROKER:
            return [{"broker_id": 99}]
        case ApiKey.DESCRIBE_QUORUM:
            topics = [{"topic_name": topic, "partitions": [{"partition_index": 0}]} for topic in ("__cluster_metadata", name)]
            return [{"topics": topics}, {"topics": []}]
        case ApiKey.ADD_RAFT_VOTER:
            return [
                {"cluster_id": None, "timeout_ms": PATIENCE_MS, "voter_id": 99, "voter_directory_id": bytes(15) + b"\1", "listeners": []}
            ]
        case ApiKey.REMOVE_RAFT_VOTER:
            return [{"cluster_id": None, "voter_id": 99, "voter_directory_id": bytes(15) + b"\1"}]
        case _:
            return []


def transaction_bodies(api: ApiKey, name: str) -> list[dict[str, Any]]:
    """Requests about a transactional id that nobody has begun with, about this topic."""
    producer = {"transactional_id": "t", "producer_id": 77, "producer_epoch": 3}
    match api:
        case ApiKey.ADD_PARTITIONS_TO_TXN:
            topics = [{"name": name, "partitions": [0, 7]}]
            return [{f"v3_and_below_{field}": value for field, value in {**producer, "topics": topics}.items()}]
        case ApiKey.ADD_OFFSETS_TO_TXN:
            return [producer | {"group_id": name}]
        case ApiKey.END_TXN:
            return [producer | {"committed": committed} for committed in (True, False)]
        case ApiKey.TXN_OFFSET_COMMIT:
            partitions = [{"partition_index": index, "committed_offset": 5, "committed_metadata": None} for index in (0, 7)]
            return [producer | {"group_id": name, "topics": [{"name": name, "partitions": partitions}]}]
        case ApiKey.WRITE_TXN_MARKERS:
            topics = [{"name": name, "partition_indexes": [0, 7]}]
            marker = {"producer_id": 77, "producer_epoch": 3, "topics": topics, "coordinator_epoch": 0}
            return [{"markers": [marker | {"transaction_result": is_commit}]} for is_commit in (True, False)]
        case ApiKey.DESCRIBE_TRANSACTIONS:
            return [{"transactional_ids": ["t", ""]}]
        case ApiKey.LIST_TRANSACTIONS:
            return [{"state_filters": ["Ongoing", "Nonsense"], "producer_id_filters": [77]}]
        case _:
            return []


def group_bodies(api: ApiKey, version: int, name: str, topic_id: bytes) -> list[dict[str, Any]]:
    """Requests about a group, which is called as the topic."""
    member = {"group_id": name, "generation_id": 1, "generation_id_or_member_epoch": -1, "member_id": "nobody", "group_instance_id": None}
    topic = {"topic_id": topic_id} if version >= 10 else {"name": name}
    match api:
        case ApiKey.FIND_COORDINATOR:
            return [{"key": name, "key_type": kind, "coordinator_keys": [name, ""]} for kind in (0, 1)]
        case ApiKey.JOIN_GROUP:
            protocols = [{"name": "range", "metadata": b""}]
            return [
                member | {"session_timeout_ms": PATIENCE_MS, "rebalance_timeout_ms": 1, "protocol_type": "consumer", "protocols": protocols}
            ]
        case ApiKey.SYNC_GROUP:
            return [member | {"assignments": [], "protocol_type": "consumer", "protocol_name": "range"}, member | {"assignments": []}]
        case ApiKey.HEARTBEAT:
            return [member]
        case ApiKey.LEAVE_GROUP:
            return [member | {"members": [{"member_id": "nobody", "group_instance_id": None}]}]
        case ApiKey.OFFSET_COMMIT:
            partitions = [{"partition_index": index, "committed_offset": 5, "committed_metadata": None} for index in (0, 7)]
            return [member | {"retention_time_ms": -1, "topics": [topic | {"partitions": partitions}]}]
        case ApiKey.OFFSET_FETCH:
            wishes = [[topic | {"partition_indexes": [0, 7]}]] + [None] * (version >= 2)
            return [{"group_id": name, "topics": wish, "groups": [{"group_id": name, "topics": wish}]} for wish in wishes]
        case ApiKey.OFFSET_DELETE:
            return [{"group_id": name, "topics": [{"name": name, "partitions": [{"partition_index": 0}]}]}]
        case ApiKey.LIST_GROUPS:
            return [{}]
        case ApiKey.DESCRIBE_GROUPS:
            return [{"groups": [name, ""], "include_authorized_operations": True}]
        case ApiKey.DELETE_GROUPS:
            return [{"groups_names": [name]}]
        case ApiKey.CONSUMER_GROUP_HEARTBEAT:
            joining = {"rebalance_timeout_ms": PATIENCE_MS, "subscribed_topic_names": [name], "topic_partitions": []}
            return [member | {"member_epoch": 3, "topic_partitions": None}, member | {"member_epoch": 0} | joining]
        case ApiKey.CONSUMER_GROUP_DESCRIBE:
            return [{"group_ids": [name, ""], "include_authorized_operations": True}]
        case _:
            return share_bodies(api, name, topic_id)


def share_bodies(api: ApiKey, name: str, topic_id: bytes) -> list[dict[str, Any]]:
    """Requests about a share group, which is called as the topic."""
    member = {"group_id": f"share-{name}", "member_id": "nobody"}
    rows = [{"partition_index": index, "acknowledgement_batches": []} for index in (0, 7)]
    session = member | {"topics": [{"topic_id": topic_id, "partitions": rows}]}
    match api:
        case ApiKey.SHARE_GROUP_HEARTBEAT:
            return [member | {"member_epoch": 3}, member | {"member_epoch": 0, "subscribed_topic_names": [name]}]
        case ApiKey.SHARE_GROUP_DESCRIBE:
            return [{"group_ids": [name, ""], "include_authorized_operations": True}]
        case ApiKey.SHARE_FETCH:
            wish = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1_000, "max_records": 10, "batch_size": 10}
            return [session | wish | {"share_session_epoch": epoch} for epoch in (9, 0, 1, -1)]
        case ApiKey.SHARE_ACKNOWLEDGE:
            return [session | {"share_session_epoch": epoch} for epoch in (0, 1, -1)]
        case ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS:
            topics = [{"topic_name": name, "partitions": [0, 7]}]
            return [{"groups": [{"group_id": name, "topics": wanted} for wanted in (None, topics)]}]
        case ApiKey.ALTER_SHARE_GROUP_OFFSETS:
            return [{"group_id": name, "topics": [{"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 0}]}]}]
        case ApiKey.DELETE_SHARE_GROUP_OFFSETS:
            return [{"group_id": name, "topics": [{"topic_name": name}]}]
        case _:
            raise AssertionError(api)


@pytest.mark.parametrize("api", [api.key for api in API_TABLE], ids=lambda key: key.name)
async def test_every_announced_version_is_answered_about_what_there_is_and_what_there_is_not(serving: Serving, api: ApiKey) -> None:
    await serving.open()
    line = await serving.line()
    topic_id = await line.create("known")
    for version in (version for key, version in SERVED if key == api):
        asked = [*bodies(api, version, "known", topic_id), *bodies(api, version, f"unknown-{version}", bytes(15) + b"\x09")]
        for body in asked:
            line.send(api, version, **body)
        for _ in asked:
            await line.receive()  # Parsed by its schema, down to the last byte.


async def advertised(line: Line, version: int) -> dict[int, tuple[int, int]]:
    answer = await line.ask(ApiKey.API_VERSIONS, version, client_software_name="test", client_software_version="1")
    assert answer.error_code == 0
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


async def test_what_is_announced_is_the_table_with_produce_from_zero(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    for version in range(5):
        rows = await advertised(line, version)
        assert rows.pop(ApiKey.PRODUCE) == (0, 13), "librdkafka before 2025 stops compressing otherwise"
        assert rows == {api.key: (api.version_min, api.version_max) for api in API_TABLE if api.key != ApiKey.PRODUCE}


@pytest.mark.parametrize("version", [5, 6, 32_767, -1])
async def test_an_unknown_version_of_api_versions_is_answered_in_version_0_and_may_be_asked_again(serving: Serving, version: int) -> None:
    await serving.open()
    line = await serving.line()
    line.send_frame(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 77, -1) + b"\0whatever the future brings")
    frame = await line.receive_frame()
    assert frame is not None
    correlation_id, code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, code) == (77, ErrorCode.UNSUPPORTED_VERSION)
    rows = [struct.unpack_from(">hhh", frame, 10 + 6 * row) for row in range(count)]
    assert (ApiKey.API_VERSIONS, 0, 4) in rows
    assert len(frame) == 10 + 6 * count
    assert await advertised(line, 4)


@pytest.mark.parametrize(("api", "version"), NOT_SERVED)
async def test_what_is_not_served_closes_the_connection_and_no_other(serving: Serving, api: int, version: int) -> None:
    node = await serving.open()
    bystander, line = await serving.line(), await serving.line()
    assert await advertised(bystander, 4)
    line.send_frame(struct.pack(">hhih", api, version, 1, -1) + bytes(40))
    assert await line.is_closed()
    assert node.metrics.connections_closed_as_malformed == 1
    assert await advertised(bystander, 4)


@pytest.mark.parametrize("frame", [b"", b"\0\x12", struct.pack(">hhi", 18, 0, 1)[:7]], ids=["empty", "two bytes", "seven bytes"])
async def test_a_frame_too_short_for_a_header_closes_the_connection(serving: Serving, frame: bytes) -> None:
    await serving.open()
    line = await serving.line()
    line.send_frame(frame)
    assert await line.is_closed()


@pytest.mark.parametrize("size", [-1, -(1 << 31), (1 << 31) - 1])
async def test_a_length_that_cannot_be_closes_the_connection_before_anything_is_kept(serving: Serving, size: int) -> None:
    node = await serving.open()
    line = await serving.line()
    line.writer.write(struct.pack(">i", size) + bytes(8))
    assert await line.is_closed()
    assert node.request_room.bytes_taken == 0


async def test_a_request_that_is_cut_off_in_its_body_closes_the_connection(serving: Serving) -> None:
    await serving.open()
    for api, version in SERVED:
        if api in (ApiKey.API_VERSIONS, ApiKey.LIST_GROUPS) and version < 3:
            continue  # Its body is empty.
        line = await serving.line()
        line.send_frame(struct.pack(">hhih", api, version, 1, -1))
        assert await line.is_closed(), f"{api.name} {version}"


async def test_bytes_after_a_request_are_let_go(serving: Serving) -> None:
    """As Kafka does: librdkafka 2.16 puts three too many into Metadata 13."""
    await serving.open()
    line = await serving.line()
    line.send_frame(struct.pack(">hhihi", ApiKey.METADATA, 1, 5, -1, -1) + b"???")
    frame = await line.receive_frame()
    assert frame is not None
    assert struct.unpack_from(">i", frame) == (5,)


async def test_more_connections_than_allowed_are_closed_as_they_come(serving: Serving) -> None:
    node = await serving.open(connections_max=2)
    first, second = await serving.line(), await serving.line()
    assert await advertised(first, 4) and await advertised(second, 4)
    third = await serving.line()
    assert await third.is_closed()
    assert node.metrics.connections_refused == 1
    first.close()
    await first.writer.wait_closed()
    while len(node.connections) == 2:
        await second.ask(ApiKey.API_VERSIONS, 0)
    fourth = await serving.line()
    assert await advertised(fourth, 4)
