"""Two brokers and a third voter without data: a topic of three partitions, described before and after one broker is stopped.

Our own command prints what Kafka's kafka-topics prints, to the letter; and the guide shows what both print.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.running import succeed
from system.clusters import BOTH, CALM, CONTROLLER, Cluster, until
from system.harness import ROOT
from system.java_clients import kafka_tools

pytestmark = pytest.mark.paired

GUIDE = ROOT / "docs" / "guide" / "durability.md"
KAFKA_TOPICS = "org.apache.kafka.tools.TopicCommand"
BEFORE = [
    "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: \tLastKnownElr: ",
    "\tTopic: orders\tPartition: 1\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: \tLastKnownElr: ",
    "\tTopic: orders\tPartition: 2\tLeader: 2\tReplicas: 2,1\tIsr: 2,1\tElr: \tLastKnownElr: ",
]
AFTER = [
    "\tTopic: orders\tPartition: 0\tLeader: 2\tReplicas: 1,2\tIsr: 2\tElr: \tLastKnownElr: ",
    "\tTopic: orders\tPartition: 1\tLeader: 2\tReplicas: 1,2\tIsr: 2\tElr: \tLastKnownElr: ",
    "\tTopic: orders\tPartition: 2\tLeader: 2\tReplicas: 2,1\tIsr: 2\tElr: \tLastKnownElr: ",
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, (BOTH, BOTH, CONTROLLER), settings=CALM) as cluster:
        yield cluster
        assert cluster.complaints() == []


def penstock(cluster: Cluster, *arguments: str) -> str:
    return succeed(*arguments, "--bootstrap", cluster.bootstrap)


def make_orders(cluster: Cluster) -> None:
    penstock(cluster, "topics", "create", "orders", "--replica-assignment", "1:2,1:2,2:1")
    cluster.wait_until_full("orders")


def stop_the_first(cluster: Cluster) -> None:
    assert cluster.node(1).stop() == 0
    second = cluster.node(2)
    until(lambda: all((one.leader, one.in_sync) == (2, (2,)) for one in second.view().topics["orders"].values()), "the second is alone")


def test_our_command_describes_a_topic_before_and_after_a_broker_is_stopped(cluster: Cluster) -> None:
    make_orders(cluster)
    before = penstock(cluster, "topics", "describe", "orders")
    assert before.splitlines()[1:] == BEFORE
    assert re.match(r"Topic: orders\tTopicId: [\w-]{22}\tPartitionCount: 3\tReplicationFactor: 2\tConfigs: ", before)
    stop_the_first(cluster)
    assert penstock(cluster, "topics", "describe", "orders").splitlines()[1:] == AFTER


@pytest.mark.needs("java")
def test_kafka_topics_prints_the_same_before_and_after(cluster: Cluster) -> None:
    asked = (KAFKA_TOPICS, "--bootstrap-server", cluster.bootstrap, "--describe", "--topic", "orders")
    make_orders(cluster)
    with kafka_tools() as tool:
        told = tool(*asked)
        assert told.splitlines()[1:] == BEFORE
        assert told == penstock(cluster, "topics", "describe", "orders")
        stop_the_first(cluster)
        told = tool(*asked)
        assert told.splitlines()[1:] == AFTER
        assert told == penstock(cluster, "topics", "describe", "orders")


def test_the_guide_shows_what_is_printed() -> None:
    shown = GUIDE.read_text()
    for line in (*BEFORE, *AFTER):
        assert " ".join(line.split()) in " ".join(shown.split()), f"the guide does not show: {line.strip()}"
