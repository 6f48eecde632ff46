"""Several nodes of one cluster as processes, and the cluster as each of them tells it.

Each node has a disk, three ports and a log of its own, and they share a secret. Ports are chosen once, so that clients and the other nodes
find a restarted one again. What a node believes is asked of that node alone, over a plain connection: a client library asks whom it likes.
With PENSTOCK_PEER_CLUSTER=kafka the processes are Apache Kafka's instead, which must pass the same tests (kafka_members.py).
Not here: what is done to them and when; disks that lose power (lazy_disk.py); networks that part (networks.py).
"""

import os
import random
import secrets
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import waiting
from ports import free_port
from system.harness import Node
from system.raw import Line
from waiting import NEVER_MS

from penstock.wire.api_keys import ApiKey

BOTH, BROKER, CONTROLLER = "broker,controller", "broker", "controller"
THREE = (BOTH, BOTH, BOTH)
POLL_S = 0.03  # Each look asks every node.
METADATA_TOPIC = "__cluster_metadata"
# Of a cluster in which no node is fenced, or replaced as the controller, for being slow. A process that has ended is missed all the same.
CALM = {
    "broker.session.timeout.ms": NEVER_MS, "replica.lag.time.max.ms": NEVER_MS, "controller.quorum.election.timeout.ms": 2_000,
}  # fmt: skip
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class PartitionView:
    leader: int  # -1 where there is none.
    epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def is_full(self) -> bool:
        return self.leader >= 0 and sorted(self.in_sync) == sorted(self.replicas)


@dataclass(frozen=True, slots=True)
class View:
    """The cluster as one node tells it."""

    brokers: tuple[int, ...]
    topics: Mapping[str, Mapping[int, PartitionView]]
    topic_ids: Mapping[str, bytes]


class Member(Node):
    """One node of a cluster."""

    def __init__(
        self, data_directory: Path, node_id: int, *, roles: str = BOTH, peer_port: int = 0, **options: Any
    ) -> None:
        super().__init__(data_directory, **options)
        self.node_id = node_id
        self.roles = roles
        self.peer_port = peer_port or free_port()
        self.joins = False  # Its disk is new in a cluster that is there.
        self.voters = ""
        self.cluster_id = ""
        self.secret_file = Path()
        self.is_paused = False  # By `pause`: it is alive, and answers nobody.

    @property
    def is_broker(self) -> bool:
        return BROKER in self.roles

    @property
    def voter(self) -> str:
        return f"{self.node_id}@{self.host}:{self.peer_port}"

    def command(self) -> list[str]:
        flags = ["--node-id", str(self.node_id), "--cluster-id", self.cluster_id, "--voters", self.voters, "--roles", self.roles]
        flags += ["--peers", f"{self.host}:{self.peer_port}", "--cluster-secret-file", str(self.secret_file)]
        return [*super().command(), *flags, *(["--join"] if self.joins else [])]

    def spawn(self) -> Self:
        self.is_paused = False
        return super().spawn()

    def pause(self) -> None:
        self.is_paused = True
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)
        self.is_paused = False

    def lose_disk(self) -> None:
        """A new, empty disk in place of the old one."""
        assert not self.is_alive(), "it still writes to its disk"
        shutil.rmtree(self.data_directory, ignore_errors=True)
        self.joins = True

    def ask(self, api: ApiKey, version: int, **body: Any) -> Any:
        assert not self.is_paused, "a node that is stopped by a signal never answers"
        with Line((self.host, self.kafka_port)) as line:
            return line.ask(api, version, **body)

    def view(self) -> View:
        answer = self.ask(ApiKey.METADATA, 12, topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
        topics = {
            topic.name: {
                int(row.partition_index): PartitionView(
                    int(row.leader_id), int(row.leader_epoch), tuple(map(int, row.replica_nodes)), tuple(map(int, row.isr_nodes))
                )
                for row in topic.partitions
            }
            for topic in answer.topics
        }
        ids = {topic.name: topic.topic_id.bytes for topic in answer.topics}
        return View(tuple(sorted(int(broker.node_id) for broker in answer.brokers)), topics, ids)

    def log_directory(self, topic: str, topic_id: bytes, partition: int) -> Path:
        return self.data_directory / "topics" / topic_id.hex() / str(partition)

    def quorum_leader(self) -> int:
        wish = {"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
        answer = self.ask(ApiKey.DESCRIBE_QUORUM, 0, topics=[wish])
        return int(answer.topics[0].partitions[0].leader_id)


class Cluster:
    """As a context manager it starts all nodes together, and kills at the end whatever still runs."""

    def __init__(
        self,
        directory: Path,
        shape: Sequence[str] = THREE,
        *,
        settings: Mapping[str, object] | None = None,
        topic_settings: Mapping[str, object] | None = None,
        disks: Sequence[Path] = (),
        hosts: Sequence[str] = (),
        networks: Sequence[Path] = (),
    ) -> None:
        """Node n has the n-th role, the n-th disk (a directory of its own where none is named), host and network."""
        directory.mkdir(parents=True, exist_ok=True)
        kind = _kind_of_member()
        self.members = [
            kind(
                (disks[at] if disks else directory) / f"node-{at + 1}",
                at + 1,
                roles=roles,
                log=directory / f"node-{at + 1}.log",
                settings=settings,
                topic_settings=topic_settings,
                host=hosts[at] if hosts else "127.0.0.1",
                network=networks[at] if networks else None,
            )
            for at, roles in enumerate(shape)
        ]
        secret_file = directory / "secret"
        secret_file.touch(mode=0o600)
        secret_file.write_text(secrets.token_hex(32))
        voters = ",".join(member.voter for member in self.members if CONTROLLER in member.roles)
        cluster_id = f"test-{secrets.token_hex(4)}"
        for member in self.members:
            member.voters, member.cluster_id, member.secret_file = voters, cluster_id, secret_file

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for member in self.members:
            member.__exit__(kind, error, trace)

    # Its life.

    def start(self) -> Self:
        for member in self.members:
            if not member.is_alive():
                member.spawn()
        for member in self.members:
            member.wait_until_ready()
        until(lambda: all(member.view().brokers == self.broker_ids for member in self.brokers()), "every broker knows every other")
        return self

    def bring_back(self) -> Self:
        """Every node up, whatever a test that failed has left behind: the next one is not to fail for it."""
        for member in self.alive():
            member.go_on()
        return self.start()

    def stop(self) -> None:
        """SIGTERM to all at once: the last voters to go have nobody to hand over to, and must not wait for that."""
        for member in self.alive():
            member.signal(signal.SIGTERM)
        for member in self.members:
            if member._process is not None:
                member.wait()

    def kill(self) -> None:
        for member in self.alive():
            member.signal(signal.SIGKILL)
        for member in self.members:
            member.wait()

    # Who is who.

    def node(self, node_id: int) -> Member:
        return self.members[node_id - 1]

    def alive(self) -> list[Member]:
        return [member for member in self.members if member.is_alive()]

    def brokers(self) -> list[Member]:
        """Those that run and can answer."""
        return [member for member in self.members if member.is_broker and member.is_alive() and not member.is_paused]

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(member.node_id for member in self.members if member.is_broker)

    @property
    def bootstrap(self) -> str:
        return ",".join(member.bootstrap for member in self.members if member.is_broker)

    def random_member(self, rng: random.Random) -> Member:
        return rng.choice([member for member in self.members if member.is_broker])

    # What can be seen of it.

    def view(self) -> View:
        """As the first node tells it that answers."""
        for member in self.brokers():
            try:
                return member.view()
            except (OSError, AssertionError):
                continue
        raise AssertionError("no broker answers")

    def leader_of(self, topic: str, partition: int = 0) -> Member:
        return self.node(until(lambda: max(0, self.view().topics[topic][partition].leader), f"{topic}-{partition} has a leader"))

    def controller(self) -> Member:
        """The leader of the quorum."""
        return self.node(until(lambda: max(0, self.brokers()[0].quorum_leader()), "the quorum has a leader"))

    def wait_until_full(self, *topics: str) -> None:
        """Until every running broker tells that all replicas of these topics (of all, where none is named) are in sync."""

        def is_full() -> bool:
            return all(_is_full(member.view(), topics) for member in self.brokers())

        until(is_full, f"the in-sync sets of {topics or 'all topics'} are full", why=lambda: str(self.view()))

    def log_directories(self, topic: str) -> dict[int, list[Path]]:
        """Where the replicas of each partition lie, by partition."""
        view = self.view()
        return {
            partition: [self.node(node_id).log_directory(topic, view.topic_ids[topic], partition) for node_id in one.replicas]
            for partition, one in view.topics[topic].items()
        }

    def complaints(self) -> list[str]:
        return [line for member in self.members for line in member.complaints()]


def _is_full(view: View, topics: Sequence[str]) -> bool:
    wanted = topics or tuple(view.topics)
    return all(name in view.topics and all(one.is_full for one in view.topics[name].values()) for name in wanted)


def drawn(rng: random.Random, kinds: Sequence[str], count: int) -> list[str]:
    """So many of these, in any order, but each of them soon: a few rounds meet every kind."""
    return [kind for _ in range(0, count, len(kinds)) for kind in rng.sample(kinds, len(kinds))][:count]


def until(claim: Callable[[], Value], what: str, *, why: Callable[[], str] = str) -> Value:
    """Returns the first true value; a node that does not answer now may do so later. `why` is told when there is none."""
    last: BaseException | None = None

    def value() -> Value | None:
        nonlocal last
        try:
            return claim()
        except (OSError, AssertionError, KeyError, IndexError, StopIteration) as failure:
            last = failure
            return None

    found = waiting.until(value, lambda: f"{what} {why()} {last or ''}", every_s=POLL_S)
    assert found is not None
    return found


def _kind_of_member() -> type[Member]:
    if os.environ.get("PENSTOCK_PEER_CLUSTER") == "kafka":
        from system.kafka_members import KafkaMember

        return KafkaMember
    return Member
