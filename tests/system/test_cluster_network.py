"""The wire between nodes breaks: the minority promises nothing, the majority serves, and when it heals there is one log again.

Three machines with addresses of their own; clients reach all of them all the time, so that an old leader is asked too.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import pytest
from system import librdkafka
from system.clusters import Cluster, Member, until
from system.diary import Diary, check, writing
from system.networks import Network
from system.raw import good_batch
from system.replica_logs import check_replicas_agree
from waiting import EXPIRES_MS, PATIENCE_MS

from penstock.wire.api_keys import ApiKey

pytestmark = [pytest.mark.paired, pytest.mark.needs("netns")]

PARTITIONS = 3
SAFE = {"replicas": 3, "min_insync_replicas": 2}
PER_SECOND = 200
SETTINGS = {"offsets.topic.num.partitions": 1}
LEADS_NO_MORE = (6, 7, 19, 20)  # NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS before and after the append.


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(3) as network:
        yield network


@pytest.fixture(scope="module")
def started(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    hosts, files = [network.host(number) for number in (1, 2, 3)], [network.file(number) for number in (1, 2, 3)]
    with Cluster(tmp_path_factory.mktemp("cluster"), settings=SETTINGS, hosts=hosts, networks=files) as cluster:
        yield cluster
        assert cluster.complaints() == []


def others_than(member: Member) -> tuple[int, ...]:
    return tuple(number for number in (1, 2, 3) if number != member.node_id)


def produce_to(member: Member, topic: str, partition: int, value: bytes, *, timeout_ms: int = PATIENCE_MS) -> int:
    """Asks this very node with acks=all; the error code of its answer. A node that waits for others gives up after `timeout_ms`."""
    rows = [{"index": partition, "records": good_batch(value)}]
    answer = member.ask(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=timeout_ms, topic_data=[{"name": topic, "partition_data": rows}])
    return int(answer.responses[0].partition_responses[0].error_code)


def converged(cluster: Cluster, diary: Diary) -> None:
    """Everything is there that was promised, once and in order, and on every disk the same."""
    cluster.wait_until_full(diary.topic)
    assert check(cluster.bootstrap, diary) == diary.sent > 0
    assert check_replicas_agree(diary.topic, cluster.log_directories(diary.topic)) > 0


@dataclass(frozen=True, slots=True)
class Led:
    """A partition, and the node that leads it."""

    leader: Member
    topic: str
    partition: int

    def takes(self, value: bytes) -> bool:
        return produce_to(self.leader, self.topic, self.partition, value) == 0

    def refuses(self, value: bytes) -> bool:
        return produce_to(self.leader, self.topic, self.partition, value, timeout_ms=EXPIRES_MS) in LEADS_NO_MORE


def led_by_controller(cluster: Cluster) -> Led | None:
    """A partition of a new topic that the controller leads, and takes records for; None if it leads none now."""
    topic = librdkafka.make_topic(cluster.bootstrap, librdkafka.unique("asked"), PARTITIONS, **SAFE)
    cluster.wait_until_full(topic)
    controller = cluster.controller()
    for index, one in controller.view().topics[topic].items():
        led = Led(controller, topic, index)
        if one.leader == controller.node_id and led.takes(b"before"):
            return led
    return None


def leader_that_takes(cluster: Cluster, topic: str, value: bytes) -> Led | None:
    led = Led(cluster.leader_of(topic), topic, 0)
    return led if led.takes(value) else None


def is_taken_by_majority(cluster: Cluster, old: Led, value: bytes) -> bool:
    """Whether all others tell that one of them leads the same partition now, and that one takes a record."""
    others = others_than(old.leader)
    first, second = (cluster.node(number).view().topics[old.topic][old.partition].leader for number in others)
    return first == second and first in others and Led(cluster.node(first), old.topic, old.partition).takes(value)


def values_at_last(cluster: Cluster, led: Led) -> list[bytes | None]:
    """What is in the partition's log, which is the same on every disk; a value that was sent again and again is told once."""
    cluster.wait_until_full(led.topic)
    assert check_replicas_agree(led.topic, cluster.log_directories(led.topic)) > 0
    values = librdkafka.values(librdkafka.read_partition(cluster.bootstrap, led.topic, led.partition))
    return [value for value, _ in groupby(values)]


def test_the_minority_refuses_the_majority_serves_and_healing_converges(cluster: Cluster, network: Network) -> None:
    topic = librdkafka.make_topic(cluster.bootstrap, librdkafka.unique("load"), PARTITIONS, **SAFE)
    cluster.wait_until_full(topic)
    with writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND, in_flight=2) as diary:
        diary.wait_for_more(20)
        old = until(lambda: led_by_controller(cluster), "a node is the controller and leads a partition")  # It loses both.
        with network.parted((old.leader.node_id,), others_than(old.leader)):
            assert old.refuses(b"never promised")
            until(lambda: is_taken_by_majority(cluster, old, b"promised"), "the majority takes records")
            diary.wait_for_more(50)
            assert old.refuses(b"still not")
    converged(cluster, diary)
    assert values_at_last(cluster, old) == [b"before", b"promised"]


def test_values_that_were_refused_by_the_minority_are_in_no_log_that_was_promised(cluster: Cluster, network: Network) -> None:
    """What an old leader had appended without a quorum is cut off when it comes back, not merged."""
    topic = librdkafka.make_topic(cluster.bootstrap, librdkafka.unique("asked"), 1, **SAFE)
    cluster.wait_until_full(topic)
    old = until(lambda: leader_that_takes(cluster, topic, b"first"), "a leader takes a record")
    with network.parted((old.leader.node_id,), others_than(old.leader)):
        assert old.refuses(b"lost")
        until(lambda: is_taken_by_majority(cluster, old, b"second"), "the majority takes records")
    assert values_at_last(cluster, old) == [b"first", b"second"]


@pytest.mark.parametrize("deaf", [True, False], ids=["hears nothing", "is not heard"])
def test_a_one_way_cut_ends_in_one_log(cluster: Cluster, network: Network, deaf: bool) -> None:
    topic = librdkafka.make_topic(cluster.bootstrap, librdkafka.unique("load"), PARTITIONS, **SAFE)
    cluster.wait_until_full(topic)
    victim = random.Random(deaf).choice(cluster.members)
    with writing(cluster.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND, in_flight=2) as diary:
        diary.wait_for_more(20)
        for other in others_than(victim):
            network.cut(*((other, victim.node_id) if deaf else (victim.node_id, other)))
        majority = [cluster.node(number) for number in others_than(victim)]
        until(lambda: all(victim.node_id not in one.view().brokers for one in majority), "the majority has fenced it")
        diary.wait_for_more(50)
        network.heal()
    converged(cluster, diary)
