"""Coordinators in a cluster: what they acknowledge stays, what they cannot keep they refuse in time, and nothing else is taken for true."""

from collections.abc import Coroutine
from typing import Any

from clusters.scene import CLIENT, KAFKA_PORT, TOPIC, Scene

from penstock.broker import coordinator_snapshots
from penstock.broker.groups import CONSUMER_OFFSETS
from penstock.cluster.commands import CreateTopics, DeleteTopic, NewTopic
from penstock.errors import ErrorCode
from penstock.peers.configs import Configured
from penstock.peers.connection import Address
from penstock.simulator.workloads.line import Line
from penstock.vocabulary import TopicId
from penstock.wire.api_keys import ApiKey

AGAIN = TopicId(b"made once again!")


async def ask_at(scene: Scene, node: int, key: ApiKey, version: int, body: dict[str, Any], *, patience: float = 30.0) -> Any:
    """Of this very node, whoever coordinates."""
    line = await Line.open(scene.notebook, CLIENT, timeout_seconds=patience, address=Address(scene.host(node), KAFKA_PORT))
    try:
        return await line.ask(key, version, body)
    finally:
        line.close()


def find(scene: Scene, group: str = "g") -> int:
    """The node that coordinates the group, once it does."""
    scene.do(lambda client: client.committed_offsets(group))
    scene.until_available()
    return int(scene.do(lambda client: ask_at(scene, 1, ApiKey.FIND_COORDINATOR, 3, {"key": group, "key_type": 0})).node_id)


def committing(scene: Scene, node: int, offset: int, *, group: str = "g", patience: float = 30.0) -> Coroutine[Any, Any, ErrorCode]:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    body = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}

    async def commit() -> ErrorCode:
        topics = [{"name": TOPIC, "partitions": [partition]}]
        answer = await ask_at(scene, node, ApiKey.OFFSET_COMMIT, 8, {**body, "topics": topics}, patience=patience)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    return commit()


def commit(scene: Scene, node: int, offset: int, group: str = "g") -> ErrorCode:
    return scene.do(lambda client: committing(scene, node, offset, group=group))


def committed(scene: Scene, node: int, group: str = "g") -> int:
    body = {"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": [0]}], "require_stable": False}
    answer = scene.do(lambda client: ask_at(scene, node, ApiKey.OFFSET_FETCH, 7, body))
    assert answer.error_code == ErrorCode.NONE
    return int(answer.topics[0].partitions[0].committed_offset)


async def fetching(scene: Scene, node: int) -> ErrorCode:
    return ErrorCode((await ask_at(scene, node, ApiKey.OFFSET_FETCH, 7, {"group_id": "g", "topics": None})).error_code)


async def joining(scene: Scene, node: int) -> str:
    """The id of the only member of the group."""
    protocols = [{"name": "range", "metadata": b""}]
    times = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}
    joined = await ask_at(
        scene, node, ApiKey.JOIN_GROUP, 3, {"group_id": "g", **times, "member_id": "", "protocol_type": "consumer", "protocols": protocols}
    )
    assert joined.error_code == ErrorCode.NONE
    assignments = [{"member_id": joined.member_id, "assignment": b"all"}]
    body = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id, "group_instance_id": None, "assignments": assignments}
    assert (await ask_at(scene, node, ApiKey.SYNC_GROUP, 3, body)).error_code == ErrorCode.NONE
    return str(joined.member_id)


async def beating(scene: Scene, node: int, member: str) -> ErrorCode:
    body = {"group_id": "g", "generation_id": 1, "member_id": member, "group_instance_id": None}
    return ErrorCode((await ask_at(scene, node, ApiKey.HEARTBEAT, 3, body)).error_code)


def make_again(scene: Scene, topic_id: bytes) -> None:
    """The topic is deleted, and another one is made under its name, as soon as the controller can."""
    controller = scene.controller()
    node, made = scene.node(controller), []

    async def go() -> None:
        await node.submit(DeleteTopic(TopicId(topic_id)))
        made.extend(await node.submit(CreateTopics((NewTopic(TOPIC, AGAIN, 1, 3),))))

    process = scene.world.hosts[scene.host(controller)].process
    assert process is not None
    scene.world.loop.call_soon(lambda: node.spawn(go()), context=process.context.copy())
    scene.until(lambda: made)


# A topic that is made again


def test_what_is_acknowledged_for_a_topic_made_again_is_not_forgotten_with_the_old_one():
    """The coordinator hears late that the old one was deleted. Until then it cannot tell the two apart."""
    with Scene() as cluster:
        old = cluster.create(min_insync_replicas=2)
        groups = [f"g{number}" for number in range(20)]
        group, coordinator = next((group, at) for group in groups if (at := find(cluster, group)) != cluster.controller())
        cluster.slow_disk(coordinator, 1.5)
        make_again(cluster, old)
        assert TopicId(old) in cluster.node(coordinator).image.topics_by_id
        assert commit(cluster, coordinator, 5, group) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        cluster.until(lambda: AGAIN in cluster.node(coordinator).image.topics_by_id)
        assert commit(cluster, coordinator, 6, group) is ErrorCode.NONE
        cluster.slow_disk(coordinator, 0)
        cluster.run_for(10)
        assert committed(cluster, coordinator, group) == 6
        cluster.check()


def test_what_was_committed_for_a_topic_that_was_deleted_while_nobody_coordinated_is_not_the_next_ones():
    with Scene(offsets_replication_factor=1) as cluster:
        old = cluster.create(min_insync_replicas=2)
        groups = [f"g{number}" for number in range(20)]
        group, coordinator = next((group, at) for group in groups if (at := find(cluster, group)) != cluster.controller())
        assert commit(cluster, coordinator, 5, group) is ErrorCode.NONE
        cluster.kill(coordinator)
        make_again(cluster, old)
        cluster.start(coordinator)
        cluster.until_available()
        assert committed(cluster, coordinator, group) == -1
        cluster.check()


# Groups that cannot be kept


def test_a_commit_that_is_not_durable_in_time_is_refused_and_those_after_it_change_nothing():
    """Two of three nodes are gone: nobody can take them out of the in-sync set either."""
    with Scene() as cluster:
        cluster.create(min_insync_replicas=2)
        coordinator = find(cluster)
        others = [node for node in (1, 2, 3) if node != coordinator]
        assert commit(cluster, coordinator, 5) is ErrorCode.NONE
        cluster.kill(*others)
        assert commit(cluster, coordinator, 6) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        log = cluster.node(coordinator).groups.find("g").partition
        end_offset = log.log.end_offset
        for offset in range(7, 27):
            assert commit(cluster, coordinator, offset) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert cluster.do(lambda client: fetching(cluster, coordinator)) is ErrorCode.NOT_COORDINATOR
        assert log.log.end_offset == end_offset
        assert log.leader is not None and log.leader.parked_count == 1
        cluster.start(*others)
        cluster.until_available()
        coordinator = find(cluster)
        assert commit(cluster, coordinator, 30) is ErrorCode.NONE
        assert committed(cluster, coordinator) == 30
        cluster.check()


def test_while_too_few_replicas_are_in_sync_nothing_is_appended_and_members_stay_members():
    with Scene(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0) as cluster:
        cluster.create()
        coordinator = find(cluster)
        cluster.do(lambda client: client.change_settings(Configured.topic(CONSUMER_OFFSETS), {"min.insync.replicas": "3"}))
        member = cluster.do(lambda client: joining(cluster, coordinator))
        assert cluster.do(lambda client: beating(cluster, coordinator, member)) is ErrorCode.NONE
        dead = next(node for node in (1, 2, 3) if node not in (coordinator, cluster.controller()))
        cluster.kill(dead)
        partition = cluster.node(coordinator).groups.find("g").partition
        cluster.until(lambda: len(cluster.in_sync(partition.topic, partition.index)) == 2)
        cluster.run_for(1)
        end_offset, began = partition.log.end_offset, cluster.world.loop.time()
        assert commit(cluster, coordinator, 5, "another") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert cluster.do(lambda client: beating(cluster, coordinator, member)) is ErrorCode.NONE
        assert cluster.world.loop.time() - began < 1, "nobody waited for anything"
        assert partition.log.end_offset == end_offset
        cluster.start(dead)
        cluster.until_available()
        assert commit(cluster, find(cluster, "another"), 6, "another") is ErrorCode.NONE
        cluster.check()


# Snapshots


def save(scene: Scene, node: int) -> None:
    """Has the node begin a snapshot of everything that it coordinates."""
    groups, process = scene.node(node).groups, scene.world.hosts[scene.host(node)].process
    assert process is not None
    for coordinator in groups:
        scene.world.loop.create_task(groups._save(coordinator), context=process.context.copy())


def has_snapshot(scene: Scene, node: int, directory: str) -> bool:
    return coordinator_snapshots.NAME in scene.world.hosts[scene.host(node)].disk.list(directory)


def test_a_snapshot_waits_until_all_that_it_holds_is_committed():
    with Scene(offsets_topic_num_partitions=1) as cluster:
        cluster.create()
        coordinator = find(cluster)
        directory = cluster.node(coordinator).groups.find("g").partition.log.directory
        assert commit(cluster, coordinator, 5) is ErrorCode.NONE
        others = [node for node in (1, 2, 3) if node != coordinator]
        for node in others:
            cluster.slow_disk(node, 1.5)
        waiting = cluster.begin(lambda client: committing(cluster, coordinator, 6))
        cluster.run_for(0.2)
        save(cluster, coordinator)
        cluster.run_for(0.8)
        assert not has_snapshot(cluster, coordinator, directory)
        for node in others:
            cluster.slow_disk(node, 0)
        cluster.until(waiting.done)
        assert waiting.result() is ErrorCode.NONE
        cluster.until(lambda: has_snapshot(cluster, coordinator, directory))
        cluster.check()


def test_a_snapshot_of_what_another_leader_cuts_off_is_thrown_away():
    with Scene(offsets_topic_num_partitions=1) as cluster:
        cluster.create()
        coordinator = find(cluster)
        directory = cluster.node(coordinator).groups.find("g").partition.log.directory
        assert commit(cluster, coordinator, 5) is ErrorCode.NONE
        cluster.cut(coordinator)
        waiting = cluster.begin(lambda client: committing(cluster, coordinator, 6))
        cluster.run_for(0.2)
        save(cluster, coordinator)
        cluster.until(lambda: cluster.leader(CONSUMER_OFFSETS) not in (None, coordinator))
        cluster.heal()
        cluster.until(waiting.done)
        assert waiting.result() in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
        cluster.until_available()
        assert not has_snapshot(cluster, coordinator, directory)
        assert committed(cluster, find(cluster)) == 5
        cluster.check()
