"""Apache Kafka's tools for clusters, as operators type them: kafka-metadata-quorum, kafka-reassign-partitions, kafka-leader-election,
kafka-cluster. What kafka-topics prints is compared in system/test_cluster_documents.py."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from system.clusters import Cluster, until
from system.java_clients import Tool, kafka_tools
from system.raw import Line

from penstock.wire.api_keys import ApiKey

pytestmark = [pytest.mark.needs("java"), pytest.mark.paired]

QUORUM, REASSIGN = "org.apache.kafka.tools.MetadataQuorumCommand", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT, CLUSTER = "org.apache.kafka.tools.LeaderElectionCommand", "org.apache.kafka.tools.ClusterTool"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
        assert cluster.complaints() == []


@pytest.fixture
def cluster(started: Cluster) -> Cluster:
    return started.bring_back()


@pytest.fixture(scope="module")
def tool() -> Iterator[Tool]:
    with kafka_tools() as run:
        yield run


def create(cluster: Cluster, topic: str, *replicas: tuple[int, ...]) -> None:
    assignments = [{"partition_index": index, "broker_ids": nodes} for index, nodes in enumerate(replicas)]
    wish = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
    node = cluster.node(1)
    with Line((node.host, node.kafka_port), 30.0) as line:
        answer = line.ask(ApiKey.CREATE_TOPICS, 7, topics=[wish], timeout_ms=20_000)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message
    cluster.wait_until_full(topic)


def test_kafka_metadata_quorum_tells_the_leader_the_voters_and_how_far_they_are(cluster: Cluster, tool: Tool) -> None:
    where = ["--bootstrap-server", cluster.bootstrap, "describe"]
    told = dict(re.split(r":\s+", line, maxsplit=1) for line in tool(QUORUM, *where, "--status").splitlines())
    assert int(told["LeaderId"]) == cluster.controller().node_id
    voters = json.loads(told["CurrentVoters"])
    assert [voter["id"] for voter in voters] == [1, 2, 3]
    assert [voter["endpoints"] for voter in voters] == [[f"PEERS://{node.host}:{node.peer_port}"] for node in map(cluster.node, (1, 2, 3))]
    assert int(told["MaxFollowerLag"]) == 0
    _, *rows = (line.split() for line in tool(QUORUM, *where, "--replication").splitlines())
    assert sorted((int(row[0]), row[-1]) for row in rows) == [
        (node, "Leader" if node == int(told["LeaderId"]) else "Follower") for node in (1, 2, 3)
    ]


def test_kafka_reassign_partitions_moves_a_partition_with_its_throttle(cluster: Cluster, tool: Tool, tmp_path: Path) -> None:
    create(cluster, "moved", (1, 2))
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [2, 3]}]}))
    where = ["--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan)]
    told = tool(REASSIGN, *where, "--execute", "--throttle", "100000000")
    assert "Successfully started partition reassignment for moved-0" in told
    until(lambda: sorted(cluster.view().topics["moved"][0].in_sync) == [2, 3], "the partition is where it shall be")
    told = tool(REASSIGN, *where, "--verify")
    assert "Reassignment of partition moved-0 is completed." in told
    assert "Clearing broker-level throttles on brokers 1,2,3" in told


def test_kafka_leader_election_gives_leadership_back(cluster: Cluster, tool: Tool) -> None:
    create(cluster, "led", (3, 1))
    assert cluster.node(3).stop() == 0
    until(lambda: cluster.node(1).view().topics["led"][0].leader == 1, "another leads")
    cluster.node(3).start()
    cluster.wait_until_full("led")
    named = ["--topic", "led", "--partition", "0"]
    told = tool(ELECT, "--bootstrap-server", cluster.bootstrap, "--election-type", "preferred", *named)
    assert "Successfully completed leader election (PREFERRED) for partitions led-0" in told or "Valid replica already elected" in told
    assert cluster.view().topics["led"][0].leader == 3


def test_kafka_cluster_lists_the_nodes(cluster: Cluster, tool: Tool) -> None:
    told = tool(CLUSTER, "list-endpoints", "--bootstrap-server", cluster.bootstrap)
    rows = [line.split() for line in told.splitlines()[1:]]
    assert [(int(row[0]), int(row[2]), row[4]) for row in rows] == [
        (number, cluster.node(number).kafka_port, "unfenced") for number in (1, 2, 3)
    ]
    assert cluster.node(1).cluster_id in tool(CLUSTER, "cluster-id", "--bootstrap-server", cluster.bootstrap)
