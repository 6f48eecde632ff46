"""One Kafka node in KRaft mode with its own start script's JVM settings: 1 GB heap, G1.

Its configuration is the default one, except for what a single node must set, and for how soon the files of deleted topics go.
Its jars bring no logging backend, so it logs nothing.
"""

import shutil
import subprocess
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
    libraries = cache / f"kafka-{VERSION}" / "libs"
    if not shutil.which("java"):
        raise PeerMissing("Apache Kafka needs java (17 or newer) on the PATH")
    if any(libraries.glob(f"kafka_2.13-{VERSION}.jar")):
        return libraries
    if not shutil.which("mvn"):
        raise PeerMissing(f"fetching Apache Kafka {VERSION} needs mvn on the PATH, or its jars in {libraries}")
    fetched = subprocess.run(
        ["mvn", "-q", "-f", str(_POM), "dependency:copy-dependencies", f"-DoutputDirectory={libraries.absolute()}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode:
        raise PeerMissing(f"mvn could not fetch Apache Kafka {VERSION}: {fetched.stdout[-400:].strip()}")
    return libraries


def command(libraries: Path, data_dir: Path) -> Command:
    """Formats a new data directory and says how to start the node on it."""
    data_dir.mkdir(parents=True, exist_ok=True)
    port, controller_port = free_port(), free_port()
    properties = data_dir / "server.properties"
    properties.write_text(_properties(data_dir / "log", port, controller_port))
    java = ["java", *_JVM, "-cp", f"{libraries}/*"]
    subprocess.run(
        ["java", "-cp", f"{libraries}/*", "kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(properties)],
        check=True,
        capture_output=True,
    )
    return Command("Apache Kafka", [*java, "kafka.Kafka", str(properties)], port, data_dir)


def _properties(log_dir: Path, port: int, controller_port: int) -> str:
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={log_dir}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.segment.delete.delay.ms=1000
"""
