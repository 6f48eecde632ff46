"""What a seed chooses for transactions and for groups under the new protocol, beside everything else.

Each by chance of its own, so that the other seeds, and the rest of a menu, stay what they were. The topics are strong and forget nothing:
what is judged is what a transaction promises, not what a topic was allowed to lose.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

from penstock.simulator.knobs import draw_group_knobs
from penstock.simulator.menu import CODECS, ClientPlan, Menu, TopicPlan

# How many seeds have workers that transact, how many of those share their input as a group, and how many have a group that only reads.
TRANSACTED, TOGETHER, BELONGING = 0.2, 0.35, 0.15

OFFSETS_TOPIC = "__consumer_offsets"
SOURCE, SINK, GROUP = "source", "sink", "workers"
_BELONGED = ("belonged-a", "belonged-b")


@dataclass(frozen=True, slots=True)
class Addition:
    """What comes to a menu."""

    topics: tuple[TopicPlan, ...]
    clients: tuple[ClientPlan, ...]
    settings: Mapping[str, Any]


class Session(NamedTuple):
    session_ms: int
    rebalance_ms: int
    settings: Mapping[str, Any]


def with_deliveries(menu: Menu) -> Menu:
    for addition, rng in draw_additions(menu.seed, TRANSACTED, BELONGING) if not menu.rots else ():
        menu = add(menu, addition, rng)  # Of a damaged partition the node may refuse to serve what it promised: there they stay away.
    return menu


def draw_additions(seed: int, transacted: float, belonging: float, *, brokers: int = 1, world: str = "") -> list[tuple[Addition, Random]]:
    """Each with the stream of chance that it was drawn from."""
    drawn = []
    rng = Random(f"{seed}/{world}transactions")
    if rng.random() < transacted:
        drawn.append(((draw_working_members if rng.random() < TOGETHER else draw_transactions)(rng, brokers=brokers), rng))
    rng = Random(f"{seed}/{world}members")
    if rng.random() < belonging:
        drawn.append((draw_members(rng, brokers=brokers), rng))
    return drawn


def add(menu: Menu, addition: Addition, rng: Random) -> Menu:
    offsets_topic = draw_offsets_topic(rng)
    return replace(
        menu, topics=(*menu.topics, *addition.topics), clients=(*menu.clients, *addition.clients),
        settings=replace(menu.settings, **addition.settings), offsets_topic=menu.offsets_topic or offsets_topic,
        knobs={**menu.knobs, **draw_group_knobs(rng)},
    )  # fmt: skip


def draw_offsets_topic(rng: Random, *, replicas: int = 1) -> TopicPlan:
    config = {
        "cleanup.policy": "compact", "segment.bytes": str(rng.choice((1024, 4096, 65536))),
        "min.cleanable.dirty.ratio": str(rng.choice((0.0, 0.5))), "delete.retention.ms": str(rng.choice((500, 60_000))),
    }  # fmt: skip
    return TopicPlan(OFFSETS_TOPIC, rng.choice((1, 2)), config, replication_factor=replicas)


def draw_transactions(rng: Random, *, brokers: int = 1) -> Addition:
    """Workers that carry records from a source to a sink, each input's effects and its offset in one transaction."""
    source = _strong_topic(rng, SOURCE, rng.choice((1, 2, 3)), brokers)
    sink = replace(_strong_topic(rng, SINK, rng.choice((1, 2, 4)), brokers), is_transactional=True)
    clients = [ClientPlan("source-producer", "produce", SOURCE, _feeding(rng)), *_draw_workers(rng, source)]
    for number in range(rng.choice((1, 2))):
        reading = {"pause": _between(rng, 0.02, 0.2), "uses_sessions": rng.random() < 0.5, "is_committed_only": True}
        clients.append(ClientPlan(f"committed-{number}", rng.choice(("follow", "reread")), SINK, reading))
    if rng.random() < 0.3:
        reading = {"pause": _between(rng, 0.02, 0.2), "uses_sessions": rng.random() < 0.5, "version": 12}
        clients.append(ClientPlan("sink-reader", rng.choice(("follow", "reread")), SINK, reading))
    settings = {"transaction_partitions": rng.choice((1, 1, 3)), "transaction_abort_interval_ms": rng.choice((50, 500))}
    return Addition((source, sink), tuple(clients), settings)


def _draw_workers(rng: Random, source: TopicPlan) -> list[ClientPlan]:
    """Each transactional id has partitions of its own, and one or several who believe to be its only worker."""
    ids, workers = rng.randint(1, source.partitions), []
    for number in range(ids):
        partitions = [index for index in range(source.partitions) if index % ids == number]
        options = _working(rng) | {"id": f"worker-{number}", "partitions": partitions}
        workers += [ClientPlan(f"transact-{number}-{twin}", "transact", SINK, options) for twin in range(rng.choice((1, 2, 2, 3)))]
    return workers


def draw_working_members(rng: Random, *, brokers: int = 1) -> Addition:
    """The same, but the workers share their input as members of one group under the new protocol."""
    addition, session = draw_transactions(rng, brokers=brokers), _draw_session(rng)
    options = _working(rng) | {"partitions": [], "rebalance_ms": session.rebalance_ms}
    workers = []
    for number in range(rng.randint(1, 4)):
        workers.append(ClientPlan(f"transact-{number}", "transact as member", SINK, options | {"id": f"worker-{number}"}))
    others = [client for client in addition.clients if client.kind != "transact"]
    return Addition(addition.topics, (*others, *workers), {**addition.settings, **session.settings})


def _working(rng: Random) -> dict[str, Any]:
    return {
        "group": GROUP, "source": SOURCE, "pause": _between(rng, 0.003, 0.1), "rest": _between(rng, 0.02, 0.5),
        "timeout_ms": rng.choice((300, 1_000, 3_000)), "may_use_v2": rng.random() < 0.5, "codec": rng.choice(CODECS),
        "batch_bytes": rng.choice((200, 65_536)), "size": rng.choice((10, 60, 200)), "inputs": rng.choice((1, 3, 8)),
        "fan_out": rng.choice((1, 2, 3)),
    }  # fmt: skip


def draw_members(rng: Random, *, brokers: int = 1) -> Addition:
    """A group under the new protocol over one or two topics."""
    topics = tuple(_strong_topic(rng, name, rng.choice((1, 2, 5)), brokers) for name in _BELONGED[: rng.choice((1, 2))])
    clients = [ClientPlan(f"{topic.name}-producer", "produce", topic.name, _feeding(rng)) for topic in topics]
    session = _draw_session(rng)
    options = {
        "group": "members", "topics": [topic.name for topic in topics], "pause": _between(rng, 0.01, 0.1),
        "session_ms": session.session_ms, "rebalance_ms": session.rebalance_ms,
        "assignor": rng.choice((None, "uniform", "range")), "uses_regex": rng.random() < 0.3,
    }  # fmt: skip
    clients += [ClientPlan(f"belong-{number}", "belong", topics[0].name, options) for number in range(rng.randint(1, 4))]
    return Addition(topics, tuple(clients), session.settings)


def _draw_session(rng: Random) -> Session:
    session_ms, rebalance_ms = rng.choice((500, 1_500, 3_000)), rng.choice((300, 1_000, 3_000))
    settings = {
        "group_consumer_session_timeout_ms": session_ms, "group_consumer_heartbeat_interval_ms": session_ms // rng.choice((3, 8)),
        "group_consumer_assignment_interval_ms": rng.choice((0, 100, 1_000)),
    }  # fmt: skip
    return Session(session_ms, rebalance_ms, settings)


def _strong_topic(rng: Random, name: str, partitions: int, brokers: int) -> TopicPlan:
    replicas = min(brokers, rng.choice((2, 3)))
    config = {"segment.bytes": str(rng.choice((1024, 8192, 1 << 20)))}
    if brokers > 1:
        config["min.insync.replicas"] = str(min(replicas, rng.choice((1, 2))))
    return TopicPlan(name, partitions, config, replication_factor=replicas)


def _feeding(rng: Random) -> dict[str, Any]:
    return {
        "pause": _between(rng, 0.01, 0.1), "codec": 0, "size": 40, "acks": -1, "is_idempotent": True, "keys": 0, "linger": 0.005,
        "batch_bytes": 1_000, "burst": rng.choice((1, 5)),
    }  # fmt: skip


def _between(rng: Random, low: float, high: float) -> float:
    """Evenly over the orders of magnitude."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))
