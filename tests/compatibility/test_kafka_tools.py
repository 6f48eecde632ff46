"""Apache Kafka's command-line tools, as operators type them, on a node and on a cluster. What kafka-topics prints of a cluster is compared
in system/test_cluster_documents.py."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from system.clusters import Cluster, until
from system.conftest import Broker
from system.java_clients import Tool, kafka_tools
from system.librdkafka import produce_all, unique, watermarks
from system.raw import Line
from waiting import PATIENCE_MS

from penstock.wire.api_keys import ApiKey

pytestmark = [pytest.mark.needs("java"), pytest.mark.paired]

TOPICS, CONFIGS = "org.apache.kafka.tools.TopicCommand", "kafka.admin.ConfigCommand"
DELETE_RECORDS, LOG_DIRS = "org.apache.kafka.tools.DeleteRecordsCommand", "org.apache.kafka.tools.LogDirsCommand"
QUORUM, REASSIGN = "org.apache.kafka.tools.MetadataQuorumCommand", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT, CLUSTER = "org.apache.kafka.tools.LeaderElectionCommand", "org.apache.kafka.tools.ClusterTool"


@pytest.fixture(scope="module")
def tools() -> Iterator[Tool]:
    """One process runs them all: starting it costs more than they do."""
    with kafka_tools() as run:
        yield run


# On one node: kafka-topics, kafka-configs, kafka-delete-records, kafka-log-dirs.


@pytest.fixture
def tool(broker: Broker, tools: Tool) -> Tool:
    return lambda program, *arguments: tools(program, "--bootstrap-server", broker.bootstrap, *arguments)


def test_kafka_topics_makes_widens_and_describes_a_topic(tool: Tool) -> None:
    topic = unique("tools")
    tool(TOPICS, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=60000")
    tool(TOPICS, "--alter", "--topic", topic, "--partitions", "3")
    told = tool(TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs:" in told
    assert "retention.ms=60000" in told
    assert told.count("Leader: 1\tReplicas: 1\tIsr: 1") == 3


def test_kafka_configs_shows_and_changes_what_holds_for_topics_and_nodes(tool: Tool, broker: Broker) -> None:
    topic = unique("tools")
    tool(TOPICS, "--create", "--topic", topic)
    whose = ["--entity-type", "topics", "--entity-name", topic]
    tool(CONFIGS, "--alter", *whose, "--add-config", "segment.ms=5000,cleanup.policy=[compact,delete]")
    told = tool(CONFIGS, "--describe", *whose)
    assert "segment.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=5000" in told
    assert "cleanup.policy=compact,delete" in told
    tool(CONFIGS, "--alter", *whose, "--delete-config", "segment.ms")
    assert "segment.ms" not in tool(CONFIGS, "--describe", *whose)
    everyone = ["--entity-type", "brokers", "--entity-default"]
    tool(CONFIGS, "--alter", *everyone, "--add-config", "producer.id.expiration.ms=70000000")
    assert "producer.id.expiration.ms=70000000" in tool(CONFIGS, "--describe", *everyone)
    assert "node.id=1" in tool(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
    tool(CONFIGS, "--alter", *everyone, "--delete-config", "producer.id.expiration.ms")


def test_kafka_delete_records_and_kafka_log_dirs(tool: Tool, broker: Broker, tmp_path: Path) -> None:
    topic = unique("tools")
    tool(TOPICS, "--create", "--topic", topic)
    produce_all(broker.bootstrap, topic, [{"value": b"%d" % number} for number in range(5)])
    wish = tmp_path / "wish.json"
    wish.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 3}]}))
    assert "low_watermark: 3" in tool(DELETE_RECORDS, "--offset-json-file", str(wish))
    assert watermarks(broker.bootstrap, topic) == (3, 5)
    told = tool(LOG_DIRS, "--describe", "--topic-list", topic)
    (node,) = json.loads(told[told.index("{") :])["brokers"]
    (partition,) = node["logDirs"][0]["partitions"]
    assert (partition["partition"], partition["size"] > 0) == (f"{topic}-0", True)


# On three: kafka-metadata-quorum, kafka-reassign-partitions, kafka-leader-election, kafka-cluster.


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
        assert cluster.complaints() == []


@pytest.fixture
def cluster(started: Cluster) -> Cluster:
    return started.bring_back()


def create(cluster: Cluster, topic: str, *replicas: tuple[int, ...]) -> None:
    assignments = [{"partition_index": index, "broker_ids": nodes} for index, nodes in enumerate(replicas)]
    wish = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
    node = cluster.node(1)
    with Line((node.host, node.kafka_port)) as line:
        answer = line.ask(ApiKey.CREATE_TOPICS, 7, topics=[wish], timeout_ms=PATIENCE_MS)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message
    cluster.wait_until_full(topic)


def test_kafka_metadata_quorum_tells_the_leader_the_voters_and_how_far_they_are(cluster: Cluster, tools: Tool) -> None:
    where = ["--bootstrap-server", cluster.bootstrap, "describe"]

    def is_told() -> bool:
        """Which one leads may change between two questions."""
        told = dict(re.split(r":\s+", line, maxsplit=1) for line in tools(QUORUM, *where, "--status").splitlines())
        assert int(told["LeaderId"]) == cluster.controller().node_id
        voters = json.loads(told["CurrentVoters"])
        assert [voter["id"] for voter in voters] == [1, 2, 3]
        assert [voter["endpoints"] for voter in voters] == [
            [f"PEERS://{node.host}:{node.peer_port}"] for node in map(cluster.node, (1, 2, 3))
        ]
        assert int(told["MaxFollowerLag"]) == 0
        _, *rows = (line.split() for line in tools(QUORUM, *where, "--replication").splitlines())
        assert sorted((int(row[0]), row[-1]) for row in rows) == [
            (node, "Leader" if node == int(told["LeaderId"]) else "Follower") for node in (1, 2, 3)
        ]
        return True

    until(is_told, "the tool and the cluster say the same")


def test_kafka_reassign_partitions_moves_a_partition_with_its_throttle(cluster: Cluster, tools: Tool, tmp_path: Path) -> None:
    create(cluster, "moved", (1, 2))
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [2, 3]}]}))
    where = ["--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan)]
    told = tools(REASSIGN, *where, "--execute", "--throttle", "100000000")
    assert "Successfully started partition reassignment for moved-0" in told
    until(lambda: sorted(cluster.view().topics["moved"][0].in_sync) == [2, 3], "the partition is where it shall be")
    done = "Reassignment of partition moved-0 is completed."
    told = until(lambda: told if done in (told := tools(REASSIGN, *where, "--verify")) else "", "each node has heard of it")
    assert "Clearing broker-level throttles on brokers 1,2,3" in told


def test_kafka_leader_election_gives_leadership_back(cluster: Cluster, tools: Tool) -> None:
    create(cluster, "led", (3, 1))
    assert cluster.node(3).stop() == 0
    until(lambda: cluster.node(1).view().topics["led"][0].leader == 1, "another leads")
    cluster.node(3).start()
    cluster.wait_until_full("led")
    named = ["--topic", "led", "--partition", "0"]
    told = tools(ELECT, "--bootstrap-server", cluster.bootstrap, "--election-type", "preferred", *named)
    assert "Successfully completed leader election (PREFERRED) for partitions led-0" in told or "Valid replica already elected" in told
    until(lambda: cluster.view().topics["led"][0].leader == 3, "the preferred one leads")


def test_kafka_cluster_lists_the_nodes(cluster: Cluster, tools: Tool) -> None:
    def listed() -> list[tuple[int, int, str]]:
        rows = [line.split() for line in tools(CLUSTER, "list-endpoints", "--bootstrap-server", cluster.bootstrap).splitlines()[1:]]
        return [(int(row[0]), int(row[2]), row[4]) for row in rows]

    until(
        lambda: listed() == [(number, cluster.node(number).kafka_port, "unfenced") for number in (1, 2, 3)],
        "every node is listed",
        why=lambda: str(listed()),
    )
    assert cluster.node(1).cluster_id in tools(CLUSTER, "cluster-id", "--bootstrap-server", cluster.bootstrap)
