"""How long is nothing acknowledged when a leader dies? Three nodes with default settings, and three of Apache Kafka, one after the other.

A producer (librdkafka, acks=all, its own defaults) sends records at a fixed rate to each of three partitions. A node that leads is killed
with kill -9, in turns the one that is the controller too and another. The gap is from the kill to the first acknowledgement of a record
that was sent after it to the partition that the node led. Over the whole run, kills and restarts included, it is counted in what share of
100 ms slots something was acknowledged, and in what share something of every partition was.
"""

import argparse
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from confluent_kafka import ElectionType, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from benchmarks.clusters import NODES, RunningCluster, penstock_cluster
from benchmarks.kafka import peer
from benchmarks.load.connection import Connection
from benchmarks.load.frames import metadata, read_metadata
from benchmarks.load.topics import Admin
from benchmarks.machine import described, header
from benchmarks.report import working_directory
from benchmarks.subjects import ROOT
from benchmarks.tables import table
from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import read_response, write_request

TOPIC = "failover"
PARTITIONS = 3
TURNS_PER_S = 200.0  # In each turn one record to each partition, so that a gap is known to 5 ms.
SLOT_S = 0.1
PATIENCE_S = 60.0
QUIET_S = 3.0  # Between being whole again and the next kill.
SAFE = {"min.insync.replicas": "2"}
SILENCE = logging.getLogger("librdkafka")  # A broker that is killed on purpose makes it talk without end.
SILENCE.disabled = True


@dataclass(slots=True)
class Stream:
    """Records sent to each partition, and when each was acknowledged."""

    bootstrap: str
    answered: list[list[tuple[float, float]]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])  # When sent, when answered.
    refused: int = 0
    _is_ending: bool = False

    @contextmanager
    def flowing(self) -> Iterator["Stream"]:
        thread = threading.Thread(target=self._send, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._is_ending = True
            thread.join(90)

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True}, logger=SILENCE)
        while not self._is_ending:
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, b"." * 100, partition=partition, on_delivery=self._noting(time.monotonic()))
            producer.poll(1 / TURNS_PER_S)
        producer.flush(60)

    def _noting(self, sent: float) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.answered[message.partition() or 0].append((sent, time.monotonic()))
            else:
                self.refused += 1

        return note

    def gap_after(self, moment: float, partition: int) -> float:
        """Waits for the first acknowledgement of a record that was sent after this moment; how long it took."""
        begin, give_up = len(self.answered[partition]), time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            first = next((answered for sent, answered in self.answered[partition][begin:] if sent > moment), None)
            if first is not None:
                return first - moment
            time.sleep(0.005)
        raise TimeoutError(f"nothing was acknowledged for {PATIENCE_S:.0f} s")

    def shares_of_slots(self, begin: float, end: float) -> tuple[float, float]:
        """In which anything was acknowledged; in which something of every partition was."""
        slots = [{int((at - begin) / SLOT_S) for _, at in answered if begin <= at < end} for answered in self.answered]
        count = max(1, int((end - begin) / SLOT_S))
        return len(set.union(*slots)) / count, len(set.intersection(*slots)) / count


@dataclass(frozen=True, slots=True)
class Outcome:
    gaps: dict[str, list[float]]  # By kind of victim, seconds.
    share_any: float
    share_all: float
    refused: int


def measure(cluster: RunningCluster, rounds: int) -> Outcome:
    admin = Admin("127.0.0.1", cluster.port)
    admin.create_replicated(TOPIC, PARTITIONS, SAFE, replicas=NODES)
    admin.close()
    gaps: dict[str, list[float]] = {"leader": [], "leader and controller": []}
    with Stream(cluster.bootstrap).flowing() as stream:
        time.sleep(QUIET_S)
        begin = time.monotonic()
        for number in range(rounds):
            kind, victim, partition = choose(cluster, wants_controller=number % 2 == 0)
            cluster.node(victim).kill()
            gap = stream.gap_after(time.monotonic(), partition)
            gaps[kind].append(gap)
            print(f"  {cluster.name}: {kind} killed, {gap:.2f} s", file=sys.stderr, flush=True)
            cluster.restart(victim)
            give_leadership_back(cluster)
            time.sleep(QUIET_S)
        shares = stream.shares_of_slots(begin, time.monotonic())
    return Outcome(gaps, *shares, stream.refused)


def choose(cluster: RunningCluster, *, wants_controller: bool) -> tuple[str, int, int]:
    """Whom to kill: what it is, its number, and a partition that it leads. Another than was wanted where no such node leads any."""
    controller, leaders = quorum_leader(cluster), wait_until_whole(cluster)
    ranked = sorted(leaders.items(), key=lambda pair: (pair[1] == controller) != wants_controller)
    partition, victim = ranked[0]
    return "leader and controller" if victim == controller else "leader", victim, partition


def give_leadership_back(cluster: RunningCluster) -> None:
    wait_until_whole(cluster)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap}, logger=SILENCE)  # Kept: an answer dies with its client.
    client.elect_leaders(ElectionType.PREFERRED).result(PATIENCE_S)
    wait_until_whole(cluster)


def wait_until_whole(cluster: RunningCluster) -> dict[int, int]:
    """Until every node says that all replicas are in sync; who leads each partition."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        views = [_leaders_at(broker.port) for broker in cluster.brokers]
        if views[0] is not None and all(view == views[0] for view in views):
            return views[0]
        if time.monotonic() > give_up:
            raise TimeoutError(f"{cluster.name} is not whole after {PATIENCE_S:.0f} s")
        time.sleep(0.1)


def _leaders_at(port: int) -> dict[int, int] | None:
    connection = Connection("127.0.0.1", port, receive_bytes=1 << 20)
    brokers, partitions = read_metadata(connection.ask(metadata(TOPIC)))
    connection.close()
    is_whole = len(partitions) == PARTITIONS and all(
        leader in brokers and in_sync == replicas for leader, replicas, in_sync in partitions.values()
    )
    return {partition: leader for partition, (leader, _, _) in partitions.items()} if is_whole else None


def quorum_leader(cluster: RunningCluster) -> int:
    connection = Connection("127.0.0.1", cluster.port, receive_bytes=1 << 20)
    body = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
    _, answer = read_response(ApiKey.DESCRIBE_QUORUM, 0, bytes(connection.ask(write_request(ApiKey.DESCRIBE_QUORUM, 0, 1, "bench", body))))
    connection.close()
    return int(answer.topics[0].partitions[0].leader_id)


def markdown(outcomes: dict[str, Outcome], run: dict[str, str]) -> str:
    rows = []
    for name, outcome in outcomes.items():
        for kind, gaps in outcome.gaps.items():
            if gaps:
                rows.append([f"{name}, {kind} killed", str(len(gaps)), f"{median(gaps):.2f}", f"{max(gaps):.2f}"])
    shares = [[name, f"{each.share_any:.1%}", f"{each.share_all:.1%}", str(each.refused)] for name, each in outcomes.items()]
    heads = ["over the whole run", "100 ms slots with an acknowledgement", "with one of every partition", "refused"]
    lines = [header("Failover", run)]
    lines += [table(["from kill -9 to the first acknowledgement, s", "times", "median", "worst"], rows), ""]
    return "\n".join([*lines, table(heads, shares)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="kills of each cluster")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--only", choices=["penstock", "kafka"])
    arguments = parser.parse_args()
    outcomes = {}
    with working_directory(arguments.data_dir) as directory:
        run = described(directory, "three nodes on one machine; a node that leads is killed with kill -9 under load")
        if arguments.only != "kafka":
            with RunningCluster("Penstock", penstock_cluster(directory / "ours")) as cluster:
                outcomes["Penstock"] = measure(cluster, arguments.rounds)
        if arguments.only != "penstock":
            commands = peer.cluster_commands(peer.install(ROOT / ".cache"), directory / "theirs")
            with RunningCluster("Apache Kafka", commands) as cluster:
                outcomes[f"Apache Kafka {peer.VERSION}"] = measure(cluster, arguments.rounds)
        told = markdown(outcomes, run)
    print(told)
    if arguments.markdown:
        arguments.markdown.write_text(told)


if __name__ == "__main__":
    main()
