"""Kafka nodes in KRaft mode, one or several, with its own start script's JVM settings: 1 GB heap, G1.

Its configuration is the default one, except for where each lives, what a single node must set, and for how soon the files of deleted
topics go. Its jars bring no logging backend, so it logs nothing.
"""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from benchmarks.processes import Command, free_port

VERSION = "4.3.0"
CLUSTER_ID = "cGVuc3RvY2stYmVuY2gtMQ"  # Any 16 bytes in base64.
_POM = Path(__file__).with_name("pom.xml")
_JVM = [
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
]


class PeerMissing(Exception):
    """What this machine lacks to run the peer, as a sentence."""


def install(cache: Path) -> Path:
    """The directory with Kafka's jars, fetched on the first call."""
    return fetched(cache / f"kafka-{VERSION}" / "libs", f"kafka_2.13-{VERSION}.jar", _POM, f"Apache Kafka {VERSION}")


def fetched(libraries: Path, jar: str, pom: Path, name: str) -> Path:
    """The directory with the jars that a POM names; fetched unless that one jar of them is there."""
    if not shutil.which("java"):
        raise PeerMissing(f"{name} needs java (17 or newer) on the PATH")
    if (libraries / jar).exists():
        return libraries
    if not shutil.which("mvn"):
        raise PeerMissing(f"fetching {name} needs mvn on the PATH, or its jars in {libraries}")
    fetching = subprocess.run(
        ["mvn", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={libraries.absolute()}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if fetching.returncode:
        raise PeerMissing(f"mvn could not fetch {name}: {fetching.stdout[-400:].strip()}")
    return libraries


def command(libraries: Path, data_dir: Path) -> Command:
    """Formats a new data directory and says how to start the node on it."""
    port, controller_port = free_port(), free_port()
    alone = _place(data_dir, 1, port=port, voters={1: controller_port}) | _ALONE
    _format(libraries, data_dir, alone)
    return started_by(libraries, data_dir, port)


def cluster_commands(libraries: Path, directory: Path, nodes: int = 3) -> list[Command]:
    """The same for nodes that are brokers and voters at once, in Kafka's own defaults: how to start each."""
    ports = {node: free_port() for node in range(1, nodes + 1)}
    voters = {node: free_port() for node in ports}
    commands = []
    for node, port in ports.items():
        data_dir = directory / f"kafka-{node}"
        _format(libraries, data_dir, _place(data_dir, node, port=port, voters=voters))
        commands.append(started_by(libraries, data_dir, port))
    return commands


def started_by(libraries: Path, data_dir: Path, port: int) -> Command:
    arguments = ["java", *_JVM, "-cp", f"{libraries}/*", "kafka.Kafka", str(data_dir / "server.properties")]
    return Command("Apache Kafka", arguments, port, data_dir)


def _format(libraries: Path, data_dir: Path, properties: Mapping[str, object]) -> None:
    data_dir.mkdir(parents=True, exist_ok=True)
    file = data_dir / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    tool = ["java", "-cp", f"{libraries}/*", "kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(file)]
    subprocess.run(tool, check=True, capture_output=True)


def _place(data_dir: Path, node: int, *, port: int, voters: Mapping[int, int]) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": ",".join(f"{voter}@127.0.0.1:{voter_port}" for voter, voter_port in voters.items()),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{voters[node]}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data_dir / "log",
        "log.segment.delete.delay.ms": 1000,
    }


_ALONE: dict[str, object] = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}
