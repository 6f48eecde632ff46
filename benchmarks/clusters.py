"""Who is measured as a cluster: three nodes of one kind on this machine, with the topics under which they are measured.

One Penstock cluster, or one Kafka cluster, serves all of its replication factors and flush modes, since they are settings of a topic.
"""

import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load import frames
from benchmarks.load.connection import Connection
from benchmarks.load.topics import Admin
from benchmarks.processes import Broker, Command, free_port, settle
from benchmarks.subjects import run_generator

NODES = 3
FOUND_S_MAX = 60.0


class RunningCluster:
    """As a context: all nodes are started together, and stopped together."""

    def __init__(self, name: str, commands: Sequence[Command]) -> None:
        self.name = name
        self._commands = commands
        self.brokers: list[Broker] = []

    def __enter__(self) -> "RunningCluster":
        self.brokers = [Broker(command, waits=False) for command in self._commands]
        for broker in self.brokers:
            broker.wait_for_first_reply()
        self.wait_until_whole()
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers:
            broker.stop()

    @property
    def port(self) -> int:
        return self.brokers[0].port

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self.brokers]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    def node(self, node_id: int) -> Broker:
        return self.brokers[node_id - 1]

    def restart(self, node_id: int) -> None:
        self.brokers[node_id - 1] = Broker(self._commands[node_id - 1])

    def wait_until_whole(self) -> None:
        """Until each node knows all of them."""
        give_up = time.monotonic() + FOUND_S_MAX
        while any(len(_brokers_known_at(broker.port)) < len(self.brokers) for broker in self.brokers):
            if time.monotonic() > give_up:
                raise RuntimeError(f"{self.name} did not become a cluster in {FOUND_S_MAX:.0f} s; see {self.brokers[0].log_path}")
            time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class ClusterSubject:
    name: str
    cluster: RunningCluster
    replicas: int = NODES
    topic_configs: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        """Made for one step, and gone after it."""
        topic = f"bench-{time.monotonic_ns()}"
        admin = Admin("127.0.0.1", self.cluster.port)
        admin.create_replicated(topic, partitions, self.topic_configs, replicas=self.replicas)
        admin.close()
        settle()
        try:
            yield topic
        finally:
            admin = Admin("127.0.0.1", self.cluster.port)  # A connection that is idle for ten minutes is closed.
            admin.delete(topic)
            admin.close()

    def load(self, kind: str, topic: str, **options: float) -> dict[str, float]:
        flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        flags += ["--topic", topic, "--port", str(self.cluster.port), "--to-leaders", "1"]
        flags += [part for pid in self.cluster.pids for part in ("--broker-pid", str(pid))]
        return run_generator(self.name, "benchmarks.load", [kind, *flags])

    def through_librdkafka(self, kind: str, topic: str, **options: float) -> dict[str, float]:
        flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        flags += ["--bootstrap", self.cluster.bootstrap, "--topic", topic]
        return run_generator(self.name, "benchmarks.load.through_librdkafka", [kind, *flags])


def penstock_cluster(directory: Path, nodes: int = NODES) -> list[Command]:
    directory.mkdir(parents=True, exist_ok=True)
    secret = directory / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    ports = {node: (free_port(), free_port(), free_port()) for node in range(1, nodes + 1)}
    voters = ",".join(f"{node}@127.0.0.1:{peer_port}" for node, (_, _, peer_port) in ports.items())
    commands = []
    for node, (port, http_port, _) in ports.items():
        data_dir = directory / f"penstock-{node}"
        flags = ["--data-dir", str(data_dir), "--kafka", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{http_port}", "--node-id", str(node)]
        flags += ["--cluster-id", "bench", "--voters", voters, "--cluster-secret-file", str(secret)]
        commands.append(Command("Penstock", [sys.executable, "-m", "penstock", "serve", *flags], port, data_dir))
    return commands


def _brokers_known_at(port: int) -> Mapping[int, tuple[str, int]]:
    connection = Connection("127.0.0.1", port, receive_bytes=1 << 20)
    try:
        return frames.read_metadata(connection.ask(frames.metadata("nobody")))[0]
    finally:
        connection.close()
