"""What a node does not know yet is not gone, and what it knows by an earlier topic's name is not the next one's.

One broker's metadata lag (its link from the controller is slow) while the other, its clients and their links go on.
"""

from typing import Any

import pytest
from clusters.scene import TOPIC, Scene
from clusters.test_letters import DEAD, JOBS, at, cut_after_the_copy, ledger_of
from clusters.test_moves import reassign

from penstock.broker.groups import CONSUMER_OFFSETS
from penstock.broker.queues.calls import Draft, Order, Redrive, TaskStatus, Verb
from penstock.errors import ErrorCode
from penstock.vocabulary import TopicId, TopicPartition
from penstock.wire.api_keys import ApiKey

pytestmark = pytest.mark.invariant("controller.absent-is-not-deleted")

LAG_S = 2.0
BROKERS = ("controller", "broker", "broker")
SMALL: dict[str, Any] = {"offsets_topic_num_partitions": 1, "offsets_replication_factor": 1}
GROUP, MEMBER = "g", {"group_id": "g", "member_id": "me"}
DAYS_SECONDS = 3 * 24 * 3_600
KEPT = {"queue.enabled": "true", "queue.retention": "keep"}


def create_at(scene: Scene, node: int, topic: str, leader: int, **config: str) -> TopicId:
    """Asks this very node for a topic whose only replica is the leader's."""
    new: dict[str, Any] = {"name": topic, "num_partitions": -1, "replication_factor": -1}
    new["assignments"] = [{"partition_index": 0, "broker_ids": [leader]}]
    new["configs"] = [{"name": name, "value": value} for name, value in config.items()]
    answer = scene.ask_at(node, ApiKey.CREATE_TOPICS, 7, {"topics": [new], "timeout_ms": 5_000})
    assert answer.topics[0].error_code == ErrorCode.NONE
    scene.until(lambda: scene.node(leader).partitions.find(topic, 0) is not None)
    return TopicId(answer.topics[0].topic_id.bytes if hasattr(answer.topics[0].topic_id, "bytes") else answer.topics[0].topic_id)


def connected(scene: Scene) -> None:
    """The two brokers have a link to each other: a slow one to the controller does not slow the making of it."""
    for leader, other in ((2, 3), (3, 2)):
        create_at(scene, leader, f"of-{leader}", leader)
        scene.until(lambda other=other, leader=leader: f"of-{leader}" in scene.node(other).image.topics)
    scene.do(lambda client: client.produce("of-2", 0, scene.batch(b"a"), acks=-1))


def group_coordinator(scene: Scene) -> int:
    find = {"key_type": 0, "coordinator_keys": [GROUP]}
    scene.until(lambda: scene.ask_at(2, ApiKey.FIND_COORDINATOR, 4, find).coordinators[0].error_code == ErrorCode.NONE)
    return scene.leads(CONSUMER_OFFSETS)


def joined(scene: Scene, coordinator: int, *topics: str) -> None:
    answer = scene.ask_at(coordinator, ApiKey.SHARE_GROUP_HEARTBEAT, 1, MEMBER | {"member_epoch": 0, "subscribed_topic_names": [*topics]})
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def share_fetched(scene: Scene, leader: int, topic_id: TopicId, wait_ms: int = 100) -> int:
    """The error code."""
    body = MEMBER | {
        "share_session_epoch": 0, "max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 10, "batch_size": 10,
        "topics": [{"topic_id": topic_id, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}],
    }  # fmt: skip
    answer = scene.ask_at(leader, ApiKey.SHARE_FETCH, 1, body)
    return max([int(answer.error_code), *(int(row.error_code) for topic in answer.responses for row in topic.partitions)])


def begun(scene: Scene) -> int:
    """A share group has a ledger of which its coordinator has not heard. Returns the coordinator."""
    coordinator = group_coordinator(scene)
    leader = 5 - coordinator
    topic_id = create_at(scene, leader, TOPIC, leader)
    connected(scene)
    scene.produce(b"a")
    scene.until(lambda: TOPIC in scene.node(coordinator).image.topics)
    joined(scene, coordinator, TOPIC)
    scene.slow_link(1, coordinator, LAG_S)
    assert share_fetched(scene, leader, topic_id) == ErrorCode.NONE
    assert scene.node(coordinator).image.companion_of(topic_id) is None
    return coordinator


@pytest.mark.invariant("share.accepted-stays-accepted")
def test_a_share_group_that_is_deleted_takes_a_ledger_along_that_its_coordinator_has_not_heard_of() -> None:
    with Scene(BROKERS, **SMALL) as scene:
        coordinator = begun(scene)
        scene.ask_at(coordinator, ApiKey.SHARE_GROUP_HEARTBEAT, 1, MEMBER | {"member_epoch": -1})
        answer = scene.ask_at(coordinator, ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]})
        assert answer.results[0].error_code == ErrorCode.NONE
        assert not ledger_of(scene, TOPIC).state.has(GROUP), "whoever makes the group again begins where the setting says"
        scene.promised.clear()


def test_a_coordinator_tells_of_a_ledger_that_it_has_not_heard_of() -> None:
    with Scene(BROKERS, **SMALL) as scene:
        coordinator = begun(scene)
        asked = {"groups": [{"group_id": GROUP, "topics": [{"topic_name": TOPIC, "partitions": [0]}]}]}
        group = scene.ask_at(coordinator, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, asked).groups[0]
        row = group.topics[0].partitions[0]
        assert (group.error_code, row.error_code, row.start_offset) == (ErrorCode.NONE, ErrorCode.NONE, 1)


def test_a_member_may_fetch_from_a_leader_that_has_not_heard_of_the_first_group() -> None:
    with Scene(BROKERS, **SMALL) as scene:
        connected(scene)
        scene.slow_link(1, 2, LAG_S)
        scene.slow_link(1, 3, LAG_S)
        leader = 3
        topic_id = scene.node(1).image.topics["of-3"].topic_id
        scene.slow_link(1, 2, 0)
        find = {"key_type": 0, "coordinator_keys": [GROUP]}
        scene.until(lambda: scene.ask_at(2, ApiKey.FIND_COORDINATOR, 4, find).coordinators[0].error_code == ErrorCode.NONE)
        if scene.leads(CONSUMER_OFFSETS) == leader:
            leader, topic_id = 2, scene.node(1).image.topics["of-2"].topic_id
        assert scene.leads(CONSUMER_OFFSETS) != leader
        joined(scene, scene.leads(CONSUMER_OFFSETS), f"of-{leader}")
        assert CONSUMER_OFFSETS not in scene.node(leader).image.topics
        assert share_fetched(scene, leader, topic_id, wait_ms=8_000) == ErrorCode.NONE
        assert ledger_of(scene, f"of-{leader}").state.has(GROUP)


@pytest.mark.invariant("queues.message-moved-once")
def test_a_move_from_a_queue_that_the_target_has_not_heard_of_is_remembered() -> None:
    with Scene(BROKERS, **SMALL) as scene:
        connected(scene)
        source, target = 2, 3
        create_at(scene, target, DEAD, target, **KEPT)
        scene.until(lambda: DEAD in scene.node(source).image.topics)
        scene.slow_link(1, target, 3 * LAG_S)
        create_at(scene, source, JOBS, source, **KEPT, **{"queue.dead.letter": DEAD})
        at(scene, source, lambda queues: queues.send(JOBS, [Draft(b"a")]))
        (lent,) = at(scene, source, lambda queues: queues.take(JOBS, 1, wait_s=5.0))
        cut_after_the_copy(scene)
        at(scene, source, lambda queues: queues.settle(JOBS, [Order(lent.handle, Verb.REJECT, reason="never")]))
        state = ledger_of(scene, DEAD).state
        scene.until(lambda: len(state.moves) == 1)
        scene.world.hosts[scene.host(target)].wall.jump(DAYS_SECONDS)
        scene.run_for(LAG_S)
        assert JOBS not in scene.node(target).image.topics
        assert len(state.moves) == 1, "its source may make it again"


@pytest.mark.invariant("queues.message-moved-once")
def test_a_redrive_waits_for_its_runner_to_hear_of_the_target() -> None:
    with Scene(BROKERS, **SMALL) as scene:
        connected(scene)
        asked, runner = 2, 3
        create_at(scene, runner, DEAD, runner, **KEPT)
        scene.until(lambda: DEAD in scene.node(asked).image.topics)
        at(scene, runner, lambda queues: queues.send(DEAD, [Draft(b"a")]))
        scene.slow_link(1, runner, LAG_S)
        create_at(scene, asked, JOBS, asked, **KEPT)
        at(scene, asked, lambda queues: queues.redrive(DEAD, Redrive(target=JOBS)))
        assert JOBS not in scene.node(runner).image.topics

        scene.run_for(2 * LAG_S)
        (task,) = at(scene, asked, lambda queues: queues.tasks(DEAD))
        assert task.status is TaskStatus.COMPLETED, task.failure
        assert [each.body for each in at(scene, asked, lambda queues: queues.peek(JOBS))] == [b"a"]


@pytest.mark.invariant("controller.topic-made-again-is-new")
def test_a_replica_that_was_opened_too_late_takes_nothing_from_the_next_topic_of_its_name() -> None:
    with Scene() as scene:
        scene.create(replicas=2)
        slow = next(node for node in (1, 2, 3) if node not in scene.in_sync())
        old = sorted(scene.in_sync())
        scene.produce(b"a")
        reassign(scene, [*old, slow])
        scene.until(lambda: slow in scene.in_sync())
        scene.slow_disk(slow, 3.0)
        reassign(scene, old)
        scene.until(lambda: scene.node(slow).partitions.find(TOPIC, 0) is None)
        scene.run_for(0.01)  # Its files are on their way out.
        scene.slow_disk(slow, 0)
        reassign(scene, [*old, slow])
        scene.do(lambda client: client.delete_topic(TOPIC))
        topic_id = scene.do(lambda client: client.create_topic(TOPIC, replication_factor=3)).topic_id
        scene.promised.clear()
        scene.run_for(10.0)
        assert scene.node(slow).partitions.find_by_id(TopicId(topic_id), 0) is not None
        assert scene.node(slow).partitions.find(TOPIC, 0) is not None
        scene.produce(b"b")
        scene.check()


@pytest.mark.invariant("controller.topic-made-again-is-new")
def test_offsets_that_could_not_be_forgotten_yet_are_not_told_of_the_next_topic() -> None:
    where = TopicPartition(TOPIC, 0)
    settings = {"offsets_topic_num_partitions": 1, "offsets_replication_factor": 2, "replica_lag_ms": 500}
    with Scene(BROKERS, **settings) as scene:
        coordinator = group_coordinator(scene)
        other = 5 - coordinator
        configure = {"resource_type": 2, "resource_name": CONSUMER_OFFSETS}
        configure["configs"] = [{"name": "min.insync.replicas", "config_operation": 0, "value": "2"}]
        body = {"resources": [configure], "validate_only": False}
        scene.ask_at(coordinator, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)
        create_at(scene, coordinator, TOPIC, coordinator)
        scene.produce(b"a", b"b")
        scene.do(lambda client: client.commit_offsets(GROUP, {where: 2}))
        scene.kill(other)
        scene.until(lambda: scene.in_sync(CONSUMER_OFFSETS) == {coordinator})
        scene.until(lambda: scene.leads(CONSUMER_OFFSETS) == coordinator)
        body = {"topic_names": [TOPIC], "timeout_ms": 5_000}
        assert scene.ask_at(coordinator, ApiKey.DELETE_TOPICS, 5, body).responses[0].error_code == ErrorCode.NONE
        create_at(scene, coordinator, TOPIC, coordinator)
        asked = {"groups": [{"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}], "require_stable": False}
        row = scene.ask_at(coordinator, ApiKey.OFFSET_FETCH, 8, asked).groups[0].topics[0].partitions[0]
        assert (row.error_code, row.committed_offset) == (ErrorCode.NONE, -1)
        asked["groups"] = [{"group_id": GROUP, "topics": None}]
        assert not scene.ask_at(coordinator, ApiKey.OFFSET_FETCH, 8, asked).groups[0].topics
        scene.promised.clear()
        scene.start(other)
        scene.until_available()


def test_a_topic_can_be_deleted_by_name_where_nobody_has_heard_of_it_yet() -> None:
    with Scene(BROKERS) as scene:
        connected(scene)
        scene.slow_link(1, 3, LAG_S)
        create_at(scene, 2, TOPIC, 2)
        assert TOPIC not in scene.node(3).image.topics
        body = {"topic_names": [TOPIC], "timeout_ms": 5_000}
        assert scene.ask_at(3, ApiKey.DELETE_TOPICS, 5, body).responses[0].error_code == ErrorCode.NONE
        assert TOPIC not in scene.node(1).image.topics


@pytest.mark.invariant("controller.topic-made-again-is-new")
def test_a_topic_is_deleted_by_the_name_that_it_has_now() -> None:
    with Scene(BROKERS) as scene:
        connected(scene)
        create_at(scene, 2, TOPIC, 2)
        scene.until(lambda: TOPIC in scene.node(3).image.topics)
        scene.slow_link(1, 3, LAG_S)
        body = {"topic_names": [TOPIC], "timeout_ms": 5_000}
        assert scene.ask_at(2, ApiKey.DELETE_TOPICS, 5, body).responses[0].error_code == ErrorCode.NONE
        topic_id = create_at(scene, 2, TOPIC, 2)
        assert scene.node(3).image.topics[TOPIC].topic_id != topic_id
        answer = scene.ask_at(3, ApiKey.DELETE_TOPICS, 5, body).responses[0]
        assert answer.error_code == ErrorCode.NONE
        assert TOPIC not in scene.node(1).image.topics
