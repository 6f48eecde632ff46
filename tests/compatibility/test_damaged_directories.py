"""What Kafka's clients make of a node that tells of a damaged copy: to them it is a log directory that has failed."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from compatibility.conftest import FEW
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from system import harness
from system.java_clients import kafka_tools
from system.librdkafka import produce_all

from penstock.errors import ErrorCode

LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[harness.Node, Path]]:
    """A node that has lost the files of lost-0, and their directory."""
    with harness.Node(tmp_path_factory.mktemp("node") / "data", settings=FEW) as node:
        with closing(KafkaAdminClient(bootstrap_servers=node.bootstrap)) as admin:
            for name in ("lost", "kept"):
                admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])
                produce_all(node.bootstrap, name, [{"value": name.encode()}])
        assert node.stop() == 0
        (directory,) = (path.parent for path in node.data_directory.glob("topics/*/0/*.log") if path.read_bytes().endswith(b"lost\0"))
        shutil.rmtree(directory)
        yield node.start(), directory.resolve()


def test_kafka_python_tells_of_the_failed_directory(damaged: tuple[harness.Node, Path]) -> None:
    node, directory = damaged
    with closing(KafkaAdminClient(bootstrap_servers=node.bootstrap)) as admin:
        (told,) = admin.describe_log_dirs()
    healthy, failed = told["log_dirs"]
    assert (healthy["error_code"], healthy["log_dir"]) == (0, str(node.data_directory.resolve()))
    assert "kept" in {topic["name"] for topic in healthy["topics"]}
    assert (failed["error_code"], failed["log_dir"], failed["topics"]) == (ErrorCode.KAFKA_STORAGE_ERROR, str(directory), [])


@pytest.mark.needs("java")
@pytest.mark.paired
def test_kafka_log_dirs_prints_the_failed_directory(damaged: tuple[harness.Node, Path]) -> None:
    node, directory = damaged
    with kafka_tools() as tool:
        told = tool(LOG_DIRS, "--bootstrap-server", node.bootstrap, "--describe")
    (broker,) = json.loads(told[told.index("{") :])["brokers"]
    directories = {each["logDir"]: each for each in broker["logDirs"]}
    assert directories.keys() == {str(node.data_directory.resolve()), str(directory)}
    assert directories[str(directory)]["error"] == "org.apache.kafka.common.errors.KafkaStorageException"
    assert directories[str(directory)]["partitions"] == []
    assert directories[str(node.data_directory.resolve())]["error"] is None
