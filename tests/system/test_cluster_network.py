"""The wire between nodes breaks: the minority promises nothing, the majority serves, and when it heals there is one log again.

Three machines with addresses of their own; clients reach all of them all the time, so that an old leader is asked too.
"""

import random
from collections.abc import Iterator

import pytest
from system import librdkafka
from system.clusters import Cluster, Member, until
from system.diary import Diary, check, writing
from system.networks import Network
from system.raw import good_batch
from system.replica_logs import check_replicas_agree

from penstock.wire.api_keys import ApiKey

pytestmark = [pytest.mark.paired, pytest.mark.needs("netns")]

PARTITIONS = 3
SAFE = {"replicas": 3, "min_insync_replicas": 2}
SETTINGS = {"broker.session.timeout.ms": 1_000, "broker.heartbeat.interval.ms": 150, "replica.lag.time.max.ms": 2_000}
LEADS_NO_MORE = (6, 7, 19, 20)  # NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS before and after the append.


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(3) as network:
        yield network


@pytest.fixture(scope="module")
def started(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    hosts, prefixes = [network.host(number) for number in (1, 2, 3)], [network.prefix(number) for number in (1, 2, 3)]
    with Cluster(tmp_path_factory.mktemp("cluster"), settings=SETTINGS, hosts=hosts, prefixes=prefixes) as cluster:
        yield cluster
        assert cluster.complaints() == []


def others_than(member: Member) -> tuple[int, ...]:
    return tuple(number for number in (1, 2, 3) if number != member.node_id)


def produce_to(member: Member, topic: str, partition: int, value: bytes, *, timeout_ms: int = 1_000) -> int:
    """Asks this very node with acks=all; the error code of its answer."""
    rows = [{"index": partition, "records": good_batch(value)}]
    answer = member.ask(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=timeout_ms, topic_data=[{"name": topic, "partition_data": rows}])
    return int(answer.responses[0].partition_responses[0].error_code)


def converged(cluster: Cluster, diary: Diary) -> None:
    """Everything is there that was promised, once and in order, and on every disk the same."""
    cluster.wait_until_full(diary.topic)
    assert check(cluster.bootstrap, diary) == diary.sent > 0
    assert check_replicas_agree(diary.topic, cluster.log_directories(diary.topic)) > 0


def test_the_minority_refuses_the_majority_serves_and_healing_converges(cluster: Cluster, network: Network) -> None:
    asked = librdkafka.make_topic(cluster.bootstrap, librdkafka.unique("asked"), PARTITIONS, **SAFE)
    topic = librdkafka.make_topic(cluster.bootstrap, librdkafka.unique("load"), PARTITIONS, **SAFE)
    cluster.wait_until_full(asked, topic)
    alone = cluster.controller()  # It loses the quorum as well as its partitions.
    led = next(index for index, one in alone.view().topics[asked].items() if one.leader == alone.node_id)
    with writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=500) as diary:
        until(lambda: len(diary.acknowledged) > 100, "the load runs")
        assert produce_to(alone, asked, led, b"before") == 0
        with network.parted((alone.node_id,), others_than(alone)):
            assert produce_to(alone, asked, led, b"never promised") in LEADS_NO_MORE
            majority = [cluster.node(number) for number in others_than(alone)]
            until(lambda: all(one.view().topics[asked][led].leader in others_than(alone) for one in majority), "the majority leads")
            leader = cluster.node(majority[0].view().topics[asked][led].leader)
            until(lambda: produce_to(leader, asked, led, b"promised") == 0, "the majority takes records")
            answered = len(diary.acknowledged)
            until(lambda: len(diary.acknowledged) > answered + 200, "the load goes on")
            assert produce_to(alone, asked, led, b"still not") in LEADS_NO_MORE
    converged(cluster, diary)


def test_values_that_were_refused_by_the_minority_are_in_no_log_that_was_promised(cluster: Cluster, network: Network) -> None:
    """What an old leader had appended without a quorum is cut off when it comes back, not merged."""
    topic = librdkafka.make_topic(cluster.bootstrap, librdkafka.unique("asked"), 1, **SAFE)
    cluster.wait_until_full(topic)
    alone = cluster.leader_of(topic)
    assert produce_to(alone, topic, 0, b"first", timeout_ms=30_000) == 0  # A busy disk may take its time.
    with network.parted((alone.node_id,), others_than(alone)):
        assert produce_to(alone, topic, 0, b"lost") in LEADS_NO_MORE
        node = cluster.node(others_than(alone)[0])
        until(lambda: node.view().topics[topic][0].leader in others_than(alone), "the majority leads")
        leader = cluster.node(node.view().topics[topic][0].leader)
        until(lambda: produce_to(leader, topic, 0, b"second") == 0, "the majority takes records")
    cluster.wait_until_full(topic)
    values = librdkafka.values(librdkafka.read_partition(cluster.bootstrap, topic))
    assert b"lost" not in values
    assert (values[0], set(values[1:])) == (b"first", {b"second"})


@pytest.mark.parametrize("deaf", [True, False], ids=["hears nothing", "is not heard"])
def test_a_one_way_cut_ends_in_one_log(cluster: Cluster, network: Network, deaf: bool) -> None:
    topic = librdkafka.make_topic(cluster.bootstrap, librdkafka.unique("load"), PARTITIONS, **SAFE)
    cluster.wait_until_full(topic)
    victim = random.Random(deaf).choice(cluster.members)
    with writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=500) as diary:
        until(lambda: len(diary.acknowledged) > 100, "the load runs")
        for other in others_than(victim):
            network.cut(*((other, victim.node_id) if deaf else (victim.node_id, other)))
        majority = [cluster.node(number) for number in others_than(victim)]
        until(lambda: all(victim.node_id not in one.view().brokers for one in majority), "the majority has fenced it")
        answered = len(diary.acknowledged)
        until(lambda: len(diary.acknowledged) > answered + 200, "the load goes on")
        network.heal()
    converged(cluster, diary)
