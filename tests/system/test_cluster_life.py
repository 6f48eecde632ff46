"""What a cluster goes on doing while parts of it are away: its quorum, a slow follower, each node in its turn, a group's coordinator."""

from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from compatibility.workers import Worker
from system import librdkafka
from system.clusters import BROKER, CONTROLLER, Cluster, Member, until
from system.diary import Diary, check, writing
from waiting import NEVER_MS, PATIENCE_MS

from penstock.cluster.topic_names import COMPANION_PREFIX
from penstock.wire.api_keys import ApiKey

pytestmark = pytest.mark.paired

PARTITIONS = 6
OFFSETS_TOPIC = "__consumer_offsets"
SAFE = {"replicas": 3, "min_insync_replicas": 2}
# A node that stands still is not fenced, and does not lag, before the tests end; one that dies is noticed by its connection.
SETTINGS = {
    "replica.lag.time.max.ms": NEVER_MS, "broker.session.timeout.ms": NEVER_MS,
    "group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3,
}  # fmt: skip
PER_SECOND = 200
SECONDS_WITHOUT_QUORUM = 3.0  # Longer than a session and an election with default settings.


def test_nodes_that_are_restarted_in_turn_cost_no_client_an_error(cluster: Cluster) -> None:
    topic = librdkafka.make_topic(cluster.bootstrap, librdkafka.unique("rolling"), PARTITIONS, **SAFE)
    with writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND) as diary:
        for member in cluster.members:
            assert member.stop() == 0
            member.start()
            cluster.wait_until_full(topic)
    assert check(cluster.bootstrap, diary) == diary.sent == len(diary.answered_at)
    print(f"the longest time without an acknowledgement was {longest_gap_s(diary):.2f} s")


def longest_gap_s(diary: Diary) -> float:
    return max(later - sooner for sooner, later in pairwise(diary.answered_at))


def test_a_group_outlives_the_node_of_its_coordinator(cluster: Cluster) -> None:
    topic, group = librdkafka.make_topic(cluster.bootstrap, librdkafka.unique("grouped"), PARTITIONS, **SAFE), librdkafka.unique("group")
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker("confluent", cluster.bootstrap, group, topic, session_ms=NEVER_MS)) for _ in range(2)]
        with writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND) as diary:
            until(lambda: all(worker.told("committed") for worker in workers), "both members have committed")
            coordinator = until(lambda: coordinator_of(cluster, group), "the group has a coordinator")
            before = committed(cluster, group)
            cluster.wait_until_full(OFFSETS_TOPIC)
            coordinator.kill()
            others = [member for member in cluster.members if member is not coordinator]
            until(
                lambda: coordinator_of(cluster, group) in others,
                "another node coordinates the group",
                why=lambda: str(cluster.view().topics[OFFSETS_TOPIC]),
            )
            told = [len(worker.told("committed")) for worker in workers]
            until(lambda: all(len(worker.told("committed")) > was for worker, was in zip(workers, told, strict=True)), "they commit again")
            after = committed(cluster, group)
            assert all(after[partition] >= offset for partition, offset in before.items()), "committed offsets went back"
        coordinator.start()
        ends = {partition: librdkafka.watermarks(cluster.bootstrap, topic, partition)[1] for partition in range(PARTITIONS)}
        until(lambda: committed(cluster, group) == ends, f"everything is committed: {ends}")
        for worker in workers:
            worker.stop()
        read = set().union(*(worker.places() for worker in workers))
        assert set(diary.acknowledged) <= read, "acknowledged records were never read"
        assert all(not worker.told("failed") for worker in workers)


@pytest.mark.invariant("controller.queue-ledger-same-leader")
def test_a_queue_and_its_ledger_get_one_new_leader(cluster: Cluster) -> None:
    topic = librdkafka.make_topic(cluster.bootstrap, librdkafka.unique("queue"), 2, **SAFE, queue_enabled="true")
    ledger = COMPANION_PREFIX + cluster.view().topic_ids[topic].hex()
    cluster.wait_until_full(topic, ledger)
    leader = cluster.leader_of(topic)
    with writing(cluster.bootstrap, topic, 2, writer="w", is_idempotent=True, per_second=PER_SECOND) as diary:
        leader.kill()

        def is_led_by_another() -> bool:
            view = cluster.view().topics
            leaders = [(view[topic][index].leader, view[ledger][index].leader) for index in range(2)]
            return all(one == other and one not in (-1, leader.node_id) for one, other in leaders)

        until(is_led_by_another, "one other node leads each partition and its ledger")
        diary.wait_for_more(1)
        leader.start()
        cluster.wait_until_full(topic, ledger)
    assert check(cluster.bootstrap, diary) == diary.sent


def coordinator_of(cluster: Cluster, group: str) -> Member:
    answer = cluster.brokers()[0].ask(ApiKey.FIND_COORDINATOR, 2, key=group, key_type=0)
    assert answer.error_code == 0, f"error {answer.error_code}"
    return cluster.node(int(answer.node_id))


def committed(cluster: Cluster, group: str) -> dict[int, int]:
    """As the coordinator itself tells it. An admin client that knew the killed one may wait for it as long as it is allowed to, and never
    asks who took its place (librdkafka issue 5511): that would be taken for a coordinator that does not answer."""
    found: dict[int, int] = {}

    def is_told() -> bool:
        answer = coordinator_of(cluster, group).ask(ApiKey.OFFSET_FETCH, 5, group_id=group, topics=None)
        assert answer.error_code == 0, f"error {answer.error_code}"
        found.update({int(one.partition_index): int(one.committed_offset) for topic in answer.topics for one in topic.partitions})
        return True

    until(is_told, "the coordinator tells what is committed")
    return found


def test_a_follower_that_stands_still_leaves_the_set_and_lets_producers_go_on(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=SETTINGS | {"replica.lag.time.max.ms": 1_000}) as cluster:
        topic = librdkafka.make_topic(cluster.bootstrap, "slow", 1, **SAFE)
        cluster.wait_until_full(topic)
        leader = cluster.leader_of(topic)
        busy = {leader.node_id, cluster.controller().node_id}
        slow = next(member for member in cluster.members if member.node_id not in busy)
        # None is sent again: the requests that wait for the follower must be answered because it left.
        patient = {"per_second": PER_SECOND, "answer_ms": 2 * PATIENCE_MS}
        with writing(cluster.bootstrap, topic, 1, writer="w", is_idempotent=True, **patient) as diary:
            diary.wait_for_more(50)
            slow.pause()
            until(lambda: slow.node_id not in leader.view().topics[topic][0].in_sync, "it left the set")
            diary.wait_for_more(100)  # Producers go on without it: it still stands.
            assert slow.node_id in leader.view().brokers, "it was fenced: nothing was shown of its lag"
            slow.go_on()
            cluster.wait_until_full(topic)
        print(f"the longest time without an acknowledgement was {longest_gap_s(diary):.2f} s")
        assert check(cluster.bootstrap, diary) == diary.sent
        assert cluster.complaints() == []


def test_without_any_quorum_what_is_led_is_still_written_and_read(tmp_path: Path) -> None:
    shape = (CONTROLLER, CONTROLLER, CONTROLLER, BROKER, BROKER)
    with Cluster(tmp_path, shape, settings={"offsets.topic.num.partitions": 1}) as cluster:
        topic = librdkafka.make_topic(cluster.bootstrap, "load", PARTITIONS, 2, min_insync_replicas=2)
        cluster.wait_until_full(topic)
        with writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND) as diary:
            diary.wait_for_more(50)
            librdkafka.read_partition(cluster.bootstrap, topic)  # Has the groups' own topic made, which later nobody could decide.
            cluster.wait_until_full(topic)
            for member in cluster.members[:3]:
                member.kill()
            # It is never written faster than this, so that at least so long has passed.
            diary.wait_for_more(int(SECONDS_WITHOUT_QUORUM * PER_SECOND))
            promised = sum(partition == 0 for partition, _ in list(diary.acknowledged))
            assert len(librdkafka.read_partition(cluster.bootstrap, topic)) >= promised > 0, "reading goes on"
            for member in cluster.members[:3]:
                member.spawn()
            for member in cluster.members[:3]:
                member.wait_until_ready()
            cluster.controller()
            librdkafka.make_topic(cluster.bootstrap, "made-again", 1, 2)
        assert check(cluster.bootstrap, diary) == diary.sent
        assert cluster.complaints() == []
