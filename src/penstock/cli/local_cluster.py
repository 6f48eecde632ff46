"""A cluster of node processes on this machine, for trying things out and for tests: what it is made of, and its processes.

Everything lies in one directory: `cluster.json` says what the nodes are (mode 600, as is `cluster.secret`), node n has `node-n/data` and
`node-n/log`. The processes are ordinary `penstock serve` ones, detached: they outlive the command that started them. A process is known by
its id and the time it began, so that a number which the system gave to somebody else since is never signalled.
Not here: what is asked of the running nodes.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.cli.faults import Fault

HOST = "127.0.0.1"
READY_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 60.0
QUOTED_LINES = 12
FORMAT_VERSION = 1

# Below the range from which systems take ports for outgoing connections: a client that calls a stopped node could be given that very port.
OWN_PORTS = range(20_000, 30_000)

BOTH_ROLES, BROKER, CONTROLLER = "broker,controller", "broker", "controller"


@dataclass(frozen=True, slots=True)
class LocalNode:
    node_id: int
    roles: str
    kafka_port: int  # 0 where it is no broker.
    peers_port: int
    http_port: int
    rack: str = ""
    joins: bool = False  # Came to a cluster that was there.
    pid: int = 0
    began: str = ""  # When that process began, as the system counts.

    @property
    def is_broker(self) -> bool:
        return BROKER in self.roles

    @property
    def is_voter(self) -> bool:
        return CONTROLLER in self.roles


@dataclass(slots=True)
class LocalCluster:
    directory: Path
    cluster_id: str
    nodes: dict[int, LocalNode]
    settings: dict[str, str] = field(default_factory=dict)  # For every node, by name.

    # On the disk

    @classmethod
    def found(cls, directory: Path, nodes: dict[int, LocalNode], settings: dict[str, str]) -> "LocalCluster":
        directory.mkdir(parents=True, exist_ok=True)
        cluster = cls(directory.resolve(), secrets.token_hex(11), nodes, settings)
        _write_private(cluster.secret_file, secrets.token_hex(32))
        cluster.save()
        return cluster

    @classmethod
    def load(cls, directory: Path) -> "LocalCluster":
        path = directory / "cluster.json"
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            nodes = {row["node_id"]: LocalNode(**row) for row in told["nodes"]}
            return cls(directory.resolve(), told["cluster_id"], nodes, told["settings"])
        except FileNotFoundError:
            next_step = f"start one: penstock cluster start --nodes 3 --data-dir {directory}"
            raise Fault(f"there is no cluster in {directory}", next_step) from None
        except (OSError, ValueError, KeyError, TypeError) as wrong:
            raise Fault(f"{path} cannot be read: {wrong}", "restore it, or start a cluster in another directory") from None

    @classmethod
    def of_node(cls, data_directory: Path, cluster_id: str) -> "LocalCluster | None":
        """The cluster with this id of which a node has its data there; None where this machine has no directory of such a cluster, or
        not one that may be read."""
        directory = data_directory.parent.parent
        try:
            found = cls.load(directory) if cls.is_in(directory) else None
        except (OSError, Fault):
            return None
        return found if found is not None and found.cluster_id == cluster_id else None

    @staticmethod
    def is_in(directory: Path) -> bool:
        return (directory / "cluster.json").exists()

    def save(self) -> None:
        told = {
            "version": FORMAT_VERSION, "cluster_id": self.cluster_id, "secret_file": str(self.secret_file),
            "bootstrap": self.bootstrap, "settings": self.settings, "nodes": [asdict(node) for node in self.nodes.values()],
        }  # fmt: skip
        _write_private(self.directory / "cluster.json", json.dumps(told, indent=2) + "\n")

    def drop(self, node_id: int) -> None:
        """The node is no longer one of these; its directory stays where it is."""
        self.nodes.pop(node_id, None)
        self.save()

    @property
    def secret_file(self) -> Path:
        return self.directory / "cluster.secret"

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{node.kafka_port}" for node in self.nodes.values() if node.is_broker)

    @property
    def queue_url(self) -> str:
        """Where queues are asked for. Nodes that only vote answer for none."""
        return ",".join(f"http://{HOST}:{node.http_port}" for node in self.nodes.values() if node.is_broker)

    def bootstrap_without(self, node_id: int) -> str:
        """Of the others: what to ask while a node is away."""
        return ",".join(f"{HOST}:{node.kafka_port}" for node in self.nodes.values() if node.is_broker and node.node_id != node_id)

    def node(self, node_id: int) -> LocalNode:
        if node_id not in self.nodes:
            raise Fault(f"the cluster in {self.directory} has no node {node_id}", f"its nodes are {', '.join(map(str, self.nodes))}")
        return self.nodes[node_id]

    def data_of(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}" / "data"

    def log_of(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}" / "log"

    def new_ports(self, count: int) -> list[int]:
        taken = {port for node in self.nodes.values() for port in (node.kafka_port, node.peers_port, node.http_port)}
        return free_ports(count, taken)

    # Processes

    def is_running(self, node_id: int) -> bool:
        node = self.nodes[node_id]
        return node.pid > 0 and _began(node.pid) == node.began

    def spawn(self, node_id: int) -> int:
        """Starts the process of a node and does not wait; where its log goes on."""
        node, log_path = self.nodes[node_id], self.log_of(node_id)
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log:
            said_before = log.tell()
            process = subprocess.Popen(
                self._command(node), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=_environment()
            )
        self.nodes[node_id] = replace(node, pid=process.pid, began=_began(process.pid))
        self.save()
        return said_before

    def wait_until_ready(self, node_id: int, said_before: int) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self._said_ready(node_id, said_before):
            if not self.is_running(node_id):
                raise Fault(f"node {node_id} ended before it was ready", self.last_words(node_id))
            if time.monotonic() > deadline:
                raise Fault(f"node {node_id} is not ready after {READY_SECONDS_MAX:.0f} s", self.last_words(node_id))
            time.sleep(0.05)

    def signal(self, node_id: int, number: signal.Signals) -> bool:
        """Whether there was a process to signal."""
        if not self.is_running(node_id):
            return False
        with suppress(ProcessLookupError):
            os.kill(self.nodes[node_id].pid, number)
        return True

    def wait_until_gone(self, node_id: int) -> None:
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while self.is_running(node_id):
            if time.monotonic() > deadline:
                what = f"node {node_id} (process {self.nodes[node_id].pid}) has not stopped within {STOP_SECONDS_MAX:.0f} s"
                raise Fault(what, self.last_words(node_id))
            time.sleep(0.02)

    def last_words(self, node_id: int) -> str:
        with suppress(OSError):
            lines = self.log_of(node_id).read_text(errors="replace").splitlines()[-QUOTED_LINES:]
            return "\n".join([f"the end of {self.log_of(node_id)}:", *lines])
        return f"look at {self.log_of(node_id)}"

    def _said_ready(self, node_id: int, said_before: int) -> bool:
        with self.log_of(node_id).open("rb") as log:
            log.seek(said_before)
            return any(line.startswith(b"penstock ready ") and line.endswith(b"\n") for line in log.readlines())

    def _command(self, node: LocalNode) -> list[str]:
        voters = ",".join(f"{each.node_id}@{HOST}:{each.peers_port}" for each in self.nodes.values() if each.is_voter)
        places = {
            "--data-dir": str(self.data_of(node.node_id)), "--node-id": str(node.node_id), "--cluster-id": self.cluster_id,
            "--voters": voters, "--roles": node.roles, "--peers": f"{HOST}:{node.peers_port}", "--http": f"{HOST}:{node.http_port}",
            "--cluster-secret-file": str(self.secret_file),
        }  # fmt: skip
        if node.is_broker:
            places["--kafka"] = f"{HOST}:{node.kafka_port}"
        if node.rack:
            places["--rack"] = node.rack
        command = [sys.executable, "-m", "penstock", "serve", *(word for pair in places.items() for word in pair)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command + (["--join"] if node.joins else [])


def replaced(node: LocalNode) -> LocalNode:
    """The same node with an empty disk: it joins the cluster that is there, and has no process yet."""
    return replace(node, joins=True, pid=0, began="")


def free_ports(count: int, taken: set[int]) -> list[int]:
    """Ports of this machine that nobody listens on."""
    found: list[int] = []
    for _ in range(1_000 + 10 * count):
        port = secrets.choice(OWN_PORTS)
        if port not in taken and port not in found and is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise Fault(f"this machine has no {count} free ports between {OWN_PORTS[0]} and {OWN_PORTS[-1]}")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _began(pid: int) -> str:
    """When a process began; empty where there is none, or it has ended and only waits to be noticed."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
    asked = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # No /proc: macOS.
    return asked.stdout.strip()


def _write_private(path: Path, content: str) -> None:
    """Whole or not at all, and never readable for others, not even for a moment."""
    draft = path.with_name(path.name + ".new")
    with suppress(FileNotFoundError):
        draft.unlink()
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
    draft.replace(path)


def _environment() -> dict[str, Any]:
    """A node gets what the cluster says, whatever PENSTOCK_… the shell has set."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
