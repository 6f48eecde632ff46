"""DescribeCluster, DescribeQuorum, ElectLeaders, reassignments, UnregisterBroker and voters, over several nodes.

Whichever node is asked: what only the controller can do is carried there, and what any node knows is what it has replayed.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from serving import Line, Serving
from serving_cluster import ServingCluster, create
from waiting import PATIENCE_MS, until_async

from penstock.broker.node import Node
from penstock.errors import ErrorCode
from penstock.vocabulary import NO_NODE, NodeId
from penstock.wire.api_keys import ApiKey

UVLOOP_TOO = True

METADATA = "__cluster_metadata"


@asynccontextmanager
async def opened(*roles: str, **changes: Any) -> AsyncIterator[ServingCluster]:
    cluster = ServingCluster(*([roles] if roles else []), **changes)
    try:
        await cluster.open()
        yield cluster
    finally:
        await cluster.close()


async def described(line: Line, topic: str) -> list[Any]:
    answer = await line.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, topics=[{"name": topic}])
    return list(answer.topics[0].partitions)


async def quorum(line: Line, version: int = 2) -> Any:
    answer = await line.ask(ApiKey.DESCRIBE_QUORUM, version, topics=[{"topic_name": METADATA, "partitions": [{"partition_index": 0}]}])
    assert answer.error_code == 0
    return answer


async def elect(line: Line, kind: int, topics: dict[str, list[int]] | None) -> dict[tuple[str, int], tuple[int, str | None]]:
    wanted = None if topics is None else [{"topic": name, "partitions": indexes} for name, indexes in topics.items()]
    answer = await line.ask(ApiKey.ELECT_LEADERS, election_type=kind, topic_partitions=wanted, timeout_ms=PATIENCE_MS)
    assert answer.error_code == 0
    return {
        (topic.topic, row.partition_id): (row.error_code, row.error_message)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }


async def reassign(line: Line, topic: str, rows: dict[int, list[int] | None], **more: Any) -> dict[int, int]:
    partitions = [{"partition_index": index, "replicas": replicas} for index, replicas in rows.items()]
    body = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": PATIENCE_MS} | more
    answer = await line.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, **body)
    assert answer.error_code == 0
    return {row.partition_index: row.error_code for row in answer.responses[0].partitions}


def all_in_sync(topic: str) -> Any:
    def holds(node: Node) -> bool:
        known = node.image.topics.get(topic)
        return known is not None and all(sorted(state.in_sync) == sorted(state.replicas) for state in known.partitions)

    return holds


# What there is


async def test_every_node_tells_the_same_nodes_racks_and_controller() -> None:
    async with opened() as cluster:
        for node_id in cluster.nodes:
            answer = await (await cluster.line(node_id)).ask(ApiKey.DESCRIBE_CLUSTER, include_fenced_brokers=True)
            assert answer.cluster_id == "served"
            assert answer.controller_id == await cluster.controller()
            told = [(row.broker_id, row.rack, row.is_fenced) for row in answer.brokers]
            assert told == [(each, f"rack-{each}", False) for each in (1, 2, 3)]


async def test_a_node_that_is_away_is_fenced_and_its_replicas_are_offline() -> None:
    async with opened() as cluster:
        line = await cluster.line(1)
        await create(line, "a", (1, 2), (3, 1), min_insync_replicas="1")
        await cluster.stop(3)
        await cluster.until(lambda node: node.image.nodes[NodeId(3)].is_fenced)
        answer = await line.ask(ApiKey.DESCRIBE_CLUSTER, include_fenced_brokers=True)
        assert sorted((row.broker_id, row.is_fenced) for row in answer.brokers) == [(1, False), (2, False), (3, True)]
        answer = await line.ask(ApiKey.DESCRIBE_CLUSTER, include_fenced_brokers=False)
        assert sorted(row.broker_id for row in answer.brokers) == [1, 2]
        answer = await line.ask(ApiKey.METADATA, topics=[{"name": "a"}])
        assert sorted(row.node_id for row in answer.brokers) == [1, 2]
        rows = answer.topics[0].partitions
        assert [(row.leader_id, row.replica_nodes, row.isr_nodes, row.offline_replicas) for row in rows] == [
            (1, (1, 2), (1, 2), ()), (1, (3, 1), (1,), (3,)),
        ]  # fmt: skip
        assert [(row.leader_id, row.offline_replicas) for row in await described(line, "a")] == [(1, ()), (1, (3,))]


async def test_a_partition_without_a_leader_is_told_so_with_who_may_lead() -> None:
    async with opened() as cluster:
        line = await cluster.line(1)
        await create(line, "a", (3,))
        await cluster.stop(3)
        await cluster.until(lambda node: node.image.topics["a"].partitions[0].leader == -1)
        (row,) = await described(line, "a")
        assert (row.error_code, row.leader_id, row.isr_nodes) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, ())
        assert (row.eligible_leader_replicas, row.last_known_elr, row.offline_replicas) == ((3,), (), (3,))
        (row,) = (await line.ask(ApiKey.METADATA, topics=[{"name": "a"}])).topics[0].partitions
        assert (row.error_code, row.leader_id, row.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, (3,))
        await cluster.start(3)
        await cluster.until(lambda node: node.image.topics["a"].partitions[0].leader == 3)
        (row,) = (await line.ask(ApiKey.METADATA, topics=[{"name": "a"}])).topics[0].partitions
        assert (row.error_code, row.leader_id, row.offline_replicas) == (0, 3, ())


async def test_a_controller_that_serves_no_clients_is_never_named_to_them() -> None:
    async with opened("broker", "broker", "controller") as cluster:
        assert await cluster.controller() == 3
        for node_id in (1, 2):
            line = await cluster.line(node_id)
            answer = await line.ask(ApiKey.METADATA, topics=None)
            assert (answer.controller_id, sorted(row.node_id for row in answer.brokers)) == (node_id, [1, 2])
            assert (await line.ask(ApiKey.DESCRIBE_CLUSTER)).controller_id == node_id
            await create(line, f"from-{node_id}", (1, 2))
        assert list(cluster.nodes[3].image.topics) == ["from-1", "from-2"]


async def test_a_follower_tells_how_large_its_copy_is() -> None:
    async with opened() as cluster:
        line = await cluster.line(1)
        await create(line, "a", (1, 2))
        await line.produce("a", bytes(1_000))
        follower, stranger = await cluster.line(2), await cluster.line(3)
        answer = await follower.ask(ApiKey.DESCRIBE_LOG_DIRS, topics=None)
        ((topic,),) = [directory.topics for directory in answer.results]
        assert (topic.name, topic.partitions[0].partition_size > 1_000) == ("a", True), "acks=all: it has the record"
        assert (await stranger.ask(ApiKey.DESCRIBE_LOG_DIRS, topics=None)).results[0].topics == ()


# The quorum


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_quorum_is_told_by_every_node_as_its_leader_knows_it(version: int) -> None:
    async with opened("broker,controller", "broker,controller", "broker,controller", "broker") as cluster:
        controller = await cluster.controller()
        for node_id in cluster.nodes:
            answer = await quorum(await cluster.line(node_id), version)
            (row,) = answer.topics[0].partitions
            assert (row.error_code, row.leader_id) == (0, controller)
            assert row.leader_epoch == cluster.nodes[controller].quorum.term
            assert [each.replica_id for each in row.current_voters] == [1, 2, 3]
            assert [each.replica_id for each in row.observers] == [4]
            assert all(each.log_end_offset >= 0 for each in row.current_voters)
            if version >= 1:
                assert all(each.last_fetch_timestamp > 0 for each in row.current_voters)
            if version >= 2:
                assert len({each.replica_directory_id for each in row.current_voters}) == 3
                assert [each.node_id for each in answer.nodes] == [1, 2, 3]
                assert {each.listeners[0].name for each in answer.nodes} == {"PEERS"}


async def test_there_is_no_other_topic_of_the_quorum(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    wishes = [{"topic_name": name, "partitions": [{"partition_index": index}]} for name, index in ((METADATA, 1), ("a", 0))]
    answer = await line.ask(ApiKey.DESCRIBE_QUORUM, topics=wishes)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


async def test_a_node_alone_is_a_quorum_of_one(serving: Serving) -> None:
    await serving.open(node_id=5)
    (row,) = (await quorum(await serving.line())).topics[0].partitions
    assert (row.leader_id, [each.replica_id for each in row.current_voters], row.observers) == (5, [5], ())
    assert row.current_voters[0].log_end_offset >= row.high_watermark > 0


async def test_a_vote_is_taken_and_given_through_any_node() -> None:
    async with opened() as cluster:
        controller = await cluster.controller()
        other = next(node_id for node_id in (1, 2, 3) if node_id != controller)
        line = await cluster.line(other)
        (row,) = (await quorum(line)).topics[0].partitions
        directories = {each.replica_id: each.replica_directory_id.bytes for each in row.current_voters}
        voter = next(node_id for node_id in (1, 2, 3) if node_id not in (controller, other))
        named = {"cluster_id": "served", "voter_id": voter, "voter_directory_id": directories[voter]}
        adding = named | {"listeners": [], "timeout_ms": PATIENCE_MS}
        assert (await line.ask(ApiKey.ADD_RAFT_VOTER, **adding)).error_code == ErrorCode.DUPLICATE_VOTER
        assert (await line.ask(ApiKey.REMOVE_RAFT_VOTER, **named)).error_code == 0
        assert (await line.ask(ApiKey.REMOVE_RAFT_VOTER, **named)).error_code == ErrorCode.VOTER_NOT_FOUND
        await _until_followed(line, voter)
        assert (await line.ask(ApiKey.ADD_RAFT_VOTER, **adding)).error_code == 0
        (row,) = (await quorum(line)).topics[0].partitions
        assert [each.replica_id for each in row.current_voters] == [1, 2, 3]


async def test_voters_that_cannot_be_are_refused() -> None:
    async with opened("broker,controller", "broker") as cluster:
        line = await cluster.line(2)
        (row,) = (await quorum(line)).topics[0].partitions
        broker = {"cluster_id": None, "voter_id": 2, "voter_directory_id": row.observers[0].replica_directory_id.bytes}
        adding = {"listeners": [], "timeout_ms": PATIENCE_MS}
        refused = await line.ask(ApiKey.ADD_RAFT_VOTER, **broker, **adding)
        assert (refused.error_code, "role controller" in refused.error_message) == (ErrorCode.INVALID_REQUEST, True)
        elsewhere = await line.ask(ApiKey.ADD_RAFT_VOTER, **(broker | {"cluster_id": "other"}), **adding)
        assert elsewhere.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        nameless = await line.ask(ApiKey.REMOVE_RAFT_VOTER, cluster_id=None, voter_id=1, voter_directory_id=bytes(16))
        assert nameless.error_code == ErrorCode.INVALID_REQUEST
        last = {"cluster_id": None, "voter_id": 1, "voter_directory_id": row.current_voters[0].replica_directory_id.bytes}
        assert (await line.ask(ApiKey.REMOVE_RAFT_VOTER, **last)).error_code == ErrorCode.INVALID_REQUEST


async def _until_followed(line: Line, node_id: int) -> None:
    async def follows() -> bool:
        (row,) = (await quorum(line)).topics[0].partitions
        return any(each.replica_id == node_id and each.log_end_offset >= row.high_watermark for each in row.observers)

    await until_async(follows, f"node {node_id} follows")


# Elections


async def test_leadership_goes_back_to_the_first_replica() -> None:
    async with opened(auto_leader_rebalance=False) as cluster:
        line = await cluster.line(1)
        await create(line, "a", (3, 1), (1, 3))
        await cluster.stop(3)
        await cluster.until(lambda node: node.image.topics["a"].partitions[0].leader == 1)
        assert (await elect(line, 0, {"a": [0]}))["a", 0][0] == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        await cluster.start(3)
        await cluster.until(all_in_sync("a"))
        outcomes = await elect(line, 0, {"a": [0, 1, 7], "none": [0]})
        assert outcomes["a", 0] == (0, None)
        assert outcomes["a", 1][0] == ErrorCode.ELECTION_NOT_NEEDED
        assert outcomes["a", 7][0] == outcomes["none", 0][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [row.leader_id for row in await described(line, "a")] == [3, 1]
        assert await elect(line, 0, None) == {}, "of all, only those that moved or could not"
        refused = await line.ask(ApiKey.ELECT_LEADERS, election_type=9, topic_partitions=None, timeout_ms=PATIENCE_MS)
        assert refused.error_code == ErrorCode.INVALID_REQUEST


async def test_an_unclean_election_says_what_may_be_lost() -> None:
    async with opened() as cluster:
        line = await cluster.line(1)
        await create(line, "a", (3, 1))
        await cluster.stop(1)
        await cluster.until(lambda node: node.image.topics["a"].partitions[0].in_sync == (3,))
        await cluster.stop(3)
        await cluster.start(1)
        await cluster.until(lambda node: node.image.topics["a"].partitions[0].leader == NO_NODE)
        line = await cluster.line(1)
        assert (await elect(line, 0, {"a": [0]}))["a", 0][0] == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        code, said = (await elect(line, 1, {"a": [0]}))["a", 0]
        assert (code, said is not None and "only node 3 had" in said) == (0, True)
        assert [row.leader_id for row in await described(line, "a")] == [1]


# Reassignments

SLOW = {"replication_throttle": 1, "replica_fetch_bytes": 1, "replica_response_bytes": 1}  # A batch, then a rest of a quarter of an hour.


async def hurry(line: Line) -> None:
    change = {"name": "replication.throttled.rate", "value": "0", "config_operation": 0}
    wish = {"resource_type": 4, "resource_name": "", "configs": [change]}
    assert (await line.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[wish], validate_only=False)).responses[0].error_code == 0


async def test_a_partition_moves_to_other_nodes_and_is_told_of_on_its_way() -> None:
    async with opened(**SLOW) as cluster:
        line = await cluster.line(1)
        await create(line, "a", (1, 2), (2, 1))
        for _ in range(3):
            await line.produce("a", bytes(1_000))
        assert await reassign(line, "a", {0: [3, 2]}) == {0: 0}
        under_way = await line.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=None, timeout_ms=PATIENCE_MS)
        ((row,),) = [topic.partitions for topic in under_way.topics]
        assert (row.partition_index, row.adding_replicas, row.removing_replicas) == (0, (3,), (1,))
        assert sorted(row.replicas) == [1, 2, 3]
        for wanted, found in (([0], ["a"]), ([1], [])):
            wish = {"topics": [{"name": "a", "partition_indexes": wanted}], "timeout_ms": PATIENCE_MS}
            assert [topic.name for topic in (await line.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, **wish)).topics] == found
        await hurry(line)
        await cluster.until(lambda node: node.image.topics["a"].partitions[0].replicas == (3, 2))
        await cluster.until(all_in_sync("a"))
        assert (await line.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=None, timeout_ms=PATIENCE_MS)).topics == ()
        (row, _) = await described(line, "a")
        leader = await cluster.line(row.leader_id)
        assert await leader.latest("a") == 3


async def test_a_move_is_taken_back_and_others_are_refused() -> None:
    async with opened(**SLOW) as cluster:
        line = await cluster.line(1)
        await create(line, "a", (1, 2))
        for _ in range(3):
            await line.produce("a", bytes(1_000))
        assert await reassign(line, "a", {0: None}) == {0: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
        assert await reassign(line, "a", {0: [3]}) == {0: 0}
        assert await reassign(line, "a", {0: None}) == {0: 0}
        assert [row.replica_nodes for row in await described(line, "a")] == [(1, 2)]
        assert await reassign(line, "a", {0: [1]}, allow_replication_factor_change=False) == {0: ErrorCode.INVALID_REPLICATION_FACTOR}
        for replicas in ([], [1, 1], [9]):
            assert await reassign(line, "a", {0: replicas}) == {0: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
        twice = [{"name": "a", "partitions": [{"partition_index": 0, "replicas": [node]} for node in (1, 2)]}]
        answer = await line.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=twice, timeout_ms=PATIENCE_MS)
        assert [row.error_code for row in answer.responses[0].partitions] == [ErrorCode.INVALID_REQUEST]


# Farewell


async def test_a_node_that_is_gone_is_forgotten_and_one_that_is_there_or_holds_something_is_not() -> None:
    async with opened("broker,controller", "broker,controller", "broker,controller", "broker", "broker") as cluster:
        line = await cluster.line(1)
        await cluster.stop(4)
        await cluster.until(lambda node: node.image.nodes[NodeId(4)].is_fenced)
        assert (await line.ask(ApiKey.UNREGISTER_BROKER, broker_id=4)).error_code == 0
        answer = await line.ask(ApiKey.DESCRIBE_CLUSTER, include_fenced_brokers=True)
        assert sorted(row.broker_id for row in answer.brokers) == [1, 2, 3, 5]
        assert (await line.ask(ApiKey.UNREGISTER_BROKER, broker_id=4)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
