"""What a seed chooses for a run of a whole cluster: its nodes and their settings, the topics with their replicas, and the clients.

Time-outs, batches, segments and snapshots are drawn small now and then: with the usual ones a story of some seconds would see no election,
no in-sync set that shrinks and no snapshot. Settings are the same on every node of a run, as an operator would have it.
"""

import math
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from penstock.settings import NodeSettings
from penstock.simulator.knobs import Turned, draw_compaction_knobs, draw_group_knobs, draw_knobs
from penstock.simulator.menu import CODECS, DISK_ROOMS, ClientPlan, TopicPlan, draw_topic

KAFKA_PORT = 9092
PEER_PORT = 9093
CLUSTER_ID = "simulated-cluster-id00"
OFFSETS_TOPIC = "__consumer_offsets"

_COMPACTED, _GROUPED, _CHURNED = 0.25, 0.5, 0.3  # In how many seeds there is such a topic.


@dataclass(frozen=True, slots=True)
class NodePlan:
    node_id: int
    host: str
    settings: NodeSettings

    @property
    def is_broker(self) -> bool:
        return "broker" in self.settings.process_roles

    @property
    def is_voter(self) -> bool:
        return "controller" in self.settings.process_roles


@dataclass(frozen=True, slots=True)
class Lag:
    """A time in which some node replays no metadata."""

    at: float  # Seconds after the trouble begins.
    seconds: float


@dataclass(frozen=True, slots=True)
class ClusterMenu:
    seed: int
    seconds: float
    nodes: tuple[NodePlan, ...]
    topics: tuple[TopicPlan, ...]
    clients: tuple[ClientPlan, ...]
    offsets_topic: TopicPlan | None
    knobs: Turned
    may_lose_a_disk: bool
    last_ending: str  # How all nodes' last lives before the reckoning end.
    queues: tuple[TopicPlan, ...] = ()
    lags: tuple[Lag, ...] = ()
    is_quiet: bool = False  # There is no trouble beside the lags.
    rots: bool = False  # Flushed bytes of replicas change at rest.
    clocks: tuple[tuple[str, float], ...] = ()  # By how much the nodes' wall clocks are wrong from the beginning.
    later: tuple[NodePlan, ...] = ()  # Nodes that join while the clients work.

    @property
    def brokers(self) -> tuple[NodePlan, ...]:
        return tuple(node for node in self.nodes if node.is_broker)


def draw_cluster(seed: int) -> ClusterMenu:
    rng = Random(f"{seed}/cluster")
    nodes = _draw_nodes(rng)
    brokers = sum(node.is_broker for node in nodes)
    topics = [_draw_topic(rng, f"topic-{number}", brokers) for number in range(rng.choice((1, 1, 2)))]
    clients: list[ClientPlan] = []
    for topic in topics:
        _add_producers(rng, topic, clients)
        _add_readers(rng, topic, clients)
    knobs = dict(draw_knobs(rng)) if rng.random() < 0.5 else {}
    if rng.random() < _COMPACTED:
        topics.append(_add_compacted(rng, brokers, clients))
        knobs |= draw_compaction_knobs(rng)
    offsets_topic = None
    if rng.random() < _GROUPED:
        topics.append(_add_group(rng, brokers, clients))
        offsets_topic = _draw_offsets_topic(rng, brokers)
        knobs |= draw_group_knobs(rng)
    if rng.random() < _CHURNED:
        churned = replace(_draw_topic(rng, "churned", brokers), partitions=rng.choice((1, 2)), is_churned=True)
        clients.append(ClientPlan("churn", "churn", churned.name, {"pause": _between(rng, 0.02, 0.2), "plan": churned}))
    return ClusterMenu(
        seed=seed,
        seconds=rng.uniform(5.0, 11.0),
        nodes=nodes,
        topics=tuple(topics),
        clients=tuple(clients),
        offsets_topic=offsets_topic,
        knobs=knobs,
        may_lose_a_disk=brokers > 1 and rng.random() < 0.3,
        last_ending=rng.choice(("none", "power cut", "power cut", "kill", "clean stop")),
    )


# Nodes.


def _draw_nodes(rng: Random) -> tuple[NodePlan, ...]:
    shape = rng.choice(("three", "three", "three", "three", "five", "four", "apart", "lean", "one"))
    match shape:
        case "one":
            roles = ["broker,controller"]
        case "three":
            roles = ["broker,controller"] * 3
        case "four":  # One that doesn't vote.
            roles = ["broker,controller"] * 3 + ["broker"]
        case "five":
            roles = ["broker,controller"] * 5
        case "apart":  # Three that only vote, and two or three that only hold data.
            roles = ["controller"] * 3 + ["broker"] * rng.choice((2, 3))
        case _:  # Two with data and a third vote.
            roles = ["broker,controller"] * 2 + ["controller"]
    settings, racks = _draw_settings(rng), rng.choice((0, 0, 2))
    voters = ",".join(f"{number}@node-{number}:{PEER_PORT}" for number, role in enumerate(roles, 1) if "controller" in role)
    if shape == "one" and rng.random() < 0.5:
        voters = ""
    return tuple(
        NodePlan(
            number,
            f"node-{number}",
            replace(
                settings, node_id=number, process_roles=role, quorum_voters=voters, cluster_id=CLUSTER_ID if voters else "",
                rack=f"r{number % racks}" if racks else "", advertised_host=f"node-{number}", advertised_port=KAFKA_PORT,
            ),
        )
        for number, role in enumerate(roles, 1)
    )  # fmt: skip


def _draw_settings(rng: Random) -> NodeSettings:
    election_ms = rng.choice((150, 300, 800))
    session_ms = rng.choice((300, 700, 2_000))
    return NodeSettings(
        checkpoint_bytes=rng.choice((64 << 20, 1024, 4096, 30_000)),
        open_files_max=rng.choice((4_000, 4_000, 16)),
        retention_check_ms=rng.choice((300, 1_000, 300_000)),
        cleaner_backoff_ms=rng.choice((50, 500)),
        **rng.choice(DISK_ROOMS),
        fetch_sessions_max=rng.choice((1_000, 0, 1)),
        requests_in_flight_max=rng.choice((64, 64, 3)),
        fetch_max_bytes=rng.choice((55 << 20, 1024, 20_000)),
        group_initial_rebalance_delay_ms=rng.choice((0, 0, 100)),
        group_min_session_timeout_ms=100,
        heartbeat_interval_ms=session_ms // rng.choice((3, 6)),
        session_timeout_ms=session_ms,
        election_timeout_ms=election_ms,
        quorum_heartbeat_ms=election_ms // 5,
        replica_lag_ms=rng.choice((300, 1_000, 10_000)),
        replica_fetch_bytes=rng.choice((1 << 20, 1 << 20, 1, 2_000)),
        replica_response_bytes=rng.choice((8 << 20, 8 << 20, 1, 5_000)),
        replica_wait_ms=rng.choice((500, 50, 5)),
        auto_leader_rebalance=rng.random() < 0.6,
        leader_imbalance_seconds=rng.choice((1, 1, 3)),
        auto_create_topics_enable=False,
    )


# Topics.


def _draw_topic(rng: Random, name: str, brokers: int) -> TopicPlan:
    factor = min(brokers, rng.choice((1, 2, 3, 3, 3, 3)))
    config = dict(draw_topic(rng, name).config)
    if rng.random() < 0.6:
        config["min.insync.replicas"] = str(min(factor, rng.choice((1, 2, 2))))
    return TopicPlan(name, rng.choice((1, 1, 2, 3)), config, replication_factor=factor)


def _add_compacted(rng: Random, brokers: int, clients: list[ClientPlan]) -> TopicPlan:
    config = {
        "cleanup.policy": "compact", "segment.bytes": str(rng.choice((1024, 2048, 8192))),
        "min.cleanable.dirty.ratio": str(rng.choice((0.0, 0.3))), "delete.retention.ms": str(rng.choice((300, 60_000))),
        "min.insync.replicas": str(min(brokers, rng.choice((1, 2)))),
    }  # fmt: skip
    topic = TopicPlan("kept", rng.choice((1, 2)), config, replication_factor=min(brokers, rng.choice((2, 3))))
    options = {"pause": _between(rng, 0.01, 0.1), "keys": rng.choice((2, 5, 12)), "size": rng.choice((10, 60, 200))}
    clients += [ClientPlan("keep", "keep", topic.name, options | {"codec": rng.choice(CODECS)})]
    clients.append(ClientPlan("keep-reader", rng.choice(("follow", "reread", "fetch")), topic.name, _reading(rng)))
    return topic


def _add_group(rng: Random, brokers: int, clients: list[ClientPlan]) -> TopicPlan:
    config = {"segment.bytes": str(rng.choice((1024, 8192))), "min.insync.replicas": str(min(brokers, rng.choice((1, 2))))}
    topic = TopicPlan("grouped", rng.choice((1, 2, 4)), config, replication_factor=min(brokers, rng.choice((2, 3))))
    producing = _producing(rng) | {"acks": -1, "is_idempotent": True, "keys": 0, "size": 40, "burst": rng.choice((1, 5))}
    clients.append(ClientPlan("grouped-producer", "produce", topic.name, producing))
    joining = {
        "pause": _between(rng, 0.01, 0.08), "group": "g", "session_ms": rng.choice((500, 1_500)), "rebalance_ms": rng.choice((300, 1_500)),
    }  # fmt: skip
    clients += [ClientPlan(f"member-{number}", "join", topic.name, joining) for number in range(rng.randint(1, 3))]
    return topic


def _draw_offsets_topic(rng: Random, brokers: int) -> TopicPlan:
    config = {
        "cleanup.policy": "compact", "segment.bytes": str(rng.choice((1024, 4096, 65536))),
        "min.cleanable.dirty.ratio": str(rng.choice((0.0, 0.5))), "delete.retention.ms": str(rng.choice((500, 60_000))),
    }  # fmt: skip
    return TopicPlan(OFFSETS_TOPIC, rng.choice((1, 2)), config, replication_factor=min(brokers, rng.choice((2, 3, 3))))


# Clients.


def _add_producers(rng: Random, topic: TopicPlan, clients: list[ClientPlan]) -> None:
    options = _producing(rng)
    if not topic.is_weak and rng.random() < 0.6:
        more = {"version": rng.choice((7, 9, 13)), "records": rng.choice((1, 1, 3, 12)), "has_giants": False, "is_grouped": False}
        partition = rng.randrange(topic.partitions)
        plan = {**options, "codec": rng.choice(CODECS), **more, "partition": partition}
        clients.append(ClientPlan(f"pipeline-{len(clients)}", "pipeline", topic.name, plan))
    for acks, is_idempotent in rng.sample([(-1, True), (-1, True), (-1, False), (1, False), (0, False)], rng.choice((1, 1, 2))):
        plan = {**options, "acks": acks, "is_idempotent": is_idempotent}
        clients.append(ClientPlan(f"produce-{len(clients)}", "produce", topic.name, plan))


def _producing(rng: Random) -> dict[str, Any]:
    return {
        "pause": _between(rng, 0.01, 0.2), "codec": rng.choice(CODECS), "size": rng.choice((10, 40, 200, 3_000)),
        "keys": rng.choice((0, 3, 20)), "linger": rng.choice((0.0, 0.005)), "batch_bytes": rng.choice((200, 1_000, 65_536)),
        "burst": rng.choice((1, 1, 5)),
    }  # fmt: skip


def _add_readers(rng: Random, topic: TopicPlan, clients: list[ClientPlan]) -> None:
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.choice(("follow", "reread", "fetch", "fetch"))
        clients.append(ClientPlan(f"{kind}-{len(clients)}", kind, topic.name, _reading(rng)))
    if rng.random() < 0.7:
        clients.append(ClientPlan(f"ask-{len(clients)}", "ask", topic.name, {"pause": _between(rng, 0.02, 0.2)}))


def _reading(rng: Random) -> dict[str, Any]:
    return {"pause": _between(rng, 0.02, 0.2), "uses_sessions": rng.random() < 0.5, "version": 12}


def _between(rng: Random, low: float, high: float) -> float:
    """Evenly over the orders of magnitude."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))
