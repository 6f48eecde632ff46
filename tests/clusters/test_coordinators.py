"""Coordinators in a cluster: what they acknowledge stays, what they cannot keep they refuse in time, and nothing else is taken for true."""

from collections.abc import Coroutine
from typing import Any

from clusters.scene import CLIENT, KAFKA_PORT, TOPIC, Scene

from penstock.cluster.commands import CreateTopics, DeleteTopic, NewTopic
from penstock.errors import ErrorCode
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
