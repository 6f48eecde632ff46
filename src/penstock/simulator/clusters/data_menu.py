"""What users do with the data of a cluster beside writing and reading it, drawn for a run: each operation by chance of its own.

Each comes with a topic of its own, whose promises are strong, so that whatever is missed at the end was lost by the nodes. Worlds that draw
none of them stay what they were.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from penstock.simulator.clusters import delivery_menu
from penstock.simulator.clusters.menu import ClusterMenu
from penstock.simulator.delivery_menu import SINK, draw_transactions
from penstock.simulator.knobs import draw_data_knobs
from penstock.simulator.menu import CODECS, ClientPlan, TopicPlan

# In how many worlds consumers read from followers, records are deleted by request, bytes of replicas change at rest, and
# settings are changed.
NEAR, TRIMMED, ROTTEN, TUNED = 0.3, 0.3, 0.3, 0.3
SKEWED = 0.25  # In how many the nodes' clocks differ from the beginning.
NEAR_TOPIC, TRIMMED_TOPIC, ROTTEN_TOPIC = "near", "trimmed", "rotten"
TUNED_TOPIC = "tuned"
KINDS = ("read near", "delete records", "change settings", "produce as told")  # Of clients that only these worlds have.

_TRANSACTED = 0.6  # How many of the worlds with reads from followers have transactions.


def with_data(menu: ClusterMenu) -> ClusterMenu:
    if len(menu.brokers) < 2:
        return menu  # There is no follower, and no replica that could miss anything.
    for chance, draw, name in (
        (NEAR, draw_near, "near"),
        (TRIMMED, draw_trimmed, "trimmed"),
        (ROTTEN, draw_rotten, "rot"),
        (TUNED, draw_tuned, "tuned"),
    ):
        rng = Random(f"{menu.seed}/cluster {name}")
        if rng.random() < chance:
            menu = draw(menu, rng)
    return menu


def with_clocks(menu: ClusterMenu) -> ClusterMenu:
    """In some worlds, with queues or without, no two nodes have the same time, from the beginning and beside all that clocks do later."""
    rng = Random(f"{menu.seed}/cluster clocks")
    if rng.random() >= SKEWED:
        return menu
    most = rng.choice((0.5, 30.0, 1_500.0))  # Less than an hour: records from further in the future are refused.
    return replace(menu, clocks=tuple((node.host, rng.uniform(-most, most)) for node in menu.nodes))


def draw_near(menu: ClusterMenu, rng: Random) -> ClusterMenu:
    """Consumers that name a rack, and read from any replica."""
    racks, selector = rng.choice((2, 3)), rng.choice(("rack", "rack", ""))
    menu = replace(
        menu,
        nodes=tuple(
            replace(node, settings=replace(node.settings, rack=f"r{node.node_id % racks}", replica_selector=selector))
            for node in menu.nodes
        ),
    )  # fmt: skip
    topic = strong_topic(rng, NEAR_TOPIC, len(menu.brokers))
    clients = [ClientPlan("near-producer", "produce", topic.name, _producing(rng))]
    clients += [ClientPlan(f"near-{number}", "read near", topic.name, _reading_near(rng, racks)) for number in range(rng.choice((1, 2)))]
    menu = replace(menu, topics=(*menu.topics, topic), clients=(*menu.clients, *clients))
    if rng.random() < _TRANSACTED:
        if all(other.name != SINK for other in menu.topics):
            menu = delivery_menu.add(menu, draw_transactions(rng, brokers=len(menu.brokers)), rng)
        committed = _reading_near(rng, racks) | {"is_committed_only": True}
        menu = replace(menu, clients=(*menu.clients, ClientPlan("near-committed", "read near", SINK, committed)))
    return menu


def draw_trimmed(menu: ClusterMenu, rng: Random) -> ClusterMenu:
    """A topic whose oldest records are deleted while others write and read it."""
    topic = replace(strong_topic(rng, TRIMMED_TOPIC, len(menu.brokers)), is_trimmed=True)
    reading = {"pause": between(rng, 0.02, 0.2), "uses_sessions": rng.random() < 0.5, "version": 12}
    clients = (
        ClientPlan("trimmed-producer", "produce", topic.name, _producing(rng)),
        ClientPlan("trimmed-reader", rng.choice(("follow", "reread", "fetch", "fetch")), topic.name, reading),
        ClientPlan("trimmer", "delete records", topic.name, {"pause": between(rng, 0.05, 0.6)}),
    )
    return replace(menu, topics=(*menu.topics, topic), clients=(*menu.clients, *clients))


def draw_rotten(menu: ClusterMenu, rng: Random) -> ClusterMenu:
    """Bytes of strong topics' replicas change; one such topic is there in any case. Now and then nodes look for them by themselves."""
    topic = strong_topic(rng, ROTTEN_TOPIC, len(menu.brokers))
    reading = {"pause": between(rng, 0.05, 0.5), "uses_sessions": rng.random() < 0.5, "version": 12}
    clients = (
        ClientPlan("rotten-producer", "produce", topic.name, _producing(rng)),
        ClientPlan("rotten-reader", rng.choice(("follow", "reread", "fetch")), topic.name, reading),
    )
    scrubbing = rng.choice((2_000, 86_400_000))
    nodes = tuple(replace(node, settings=replace(node.settings, scrub_interval_ms=scrubbing)) for node in menu.nodes)
    return replace(
        menu, topics=(*menu.topics, topic), clients=(*menu.clients, *clients), nodes=nodes, rots=True,
        last_ending=rng.choice(("kill", "power cut")),
        knobs={**menu.knobs, **draw_data_knobs(rng)},
    )  # fmt: skip


def draw_tuned(menu: ClusterMenu, rng: Random) -> ClusterMenu:
    """An operator changes settings of a topic and of nodes. Metadata is soon kept in snapshots, and all nodes die at the end.

    What is acknowledged stays as strong as it was: `flush` is weakened only together with `flush.messages` 1.
    """
    topic = strong_topic(rng, TUNED_TOPIC, len(menu.brokers))
    values: list[Mapping[str, str | None]] = [{"min.insync.replicas": str(least)} for least in (1, 2, topic.replication_factor)]
    values += [{"segment.bytes": str(size)} for size in (1024, 4096, 65536)]
    values += [{"segment.ms": "500"}, {"segment.ms": None}]
    values += [
        {"flush": "interval", "flush.messages": "1"},
        {"flush": "ack", "flush.messages": None},
        {"flush.ms": "50"},
        {"flush.ms": None},
    ]
    if rng.random() < 0.4:
        topic = replace(topic, config={**topic.config, "cleanup.policy": "compact", "delete.retention.ms": "60000"})
        values += [{"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete"}, {"min.cleanable.dirty.ratio": "0.1"}]
    else:
        topic = replace(topic, is_trimmed=True)
        values += [{"retention.ms": "400"}, {"retention.ms": "86400000"}, {"retention.ms": None}]
        values += [{"retention.bytes": "2000"}, {"retention.bytes": None}]
    options = {
        "pause": between(rng, 0.05, 0.5), "on_topic": rng.choice((0.5, 0.8)), "topic_values": values,
        "node_values": [{"replica.fetch.wait.max.ms": wait} for wait in ("20", None)] + [{"log.retention.check.interval.ms": "300"}],
        "every_node_values": [{"fetch.max.bytes": "20000"}, {"fetch.max.bytes": None}, {"topic.segment.ms": "700000"}],
    }  # fmt: skip
    reading = {"pause": between(rng, 0.05, 0.5), "uses_sessions": rng.random() < 0.5, "version": 12}
    clients = (
        ClientPlan("operator", "change settings", topic.name, options),
        ClientPlan("tuned-producer", "produce as told", topic.name, {"pause": between(rng, 0.02, 0.2)}),
        ClientPlan("tuned-reader", rng.choice(("follow", "fetch")), topic.name, reading),
    )
    return replace(
        menu, topics=(*menu.topics, topic), clients=(*menu.clients, *clients), last_ending=rng.choice(("kill", "power cut", "power cut")),
        knobs={**menu.knobs, "snapshots of metadata": rng.choice((0, 1))},
    )  # fmt: skip


def strong_topic(rng: Random, name: str, brokers: int) -> TopicPlan:
    """Its acknowledgements survive whatever a world does; small segments, so that there are several."""
    replicas = min(brokers, rng.choice((2, 3, 3)))
    config = {"segment.bytes": str(rng.choice((1024, 2048, 8192))), "min.insync.replicas": str(min(replicas, rng.choice((1, 2, 2))))}
    return TopicPlan(name, rng.choice((1, 1, 2)), config, replication_factor=replicas)


def _producing(rng: Random) -> dict[str, Any]:
    return {
        "pause": between(rng, 0.02, 0.15), "codec": rng.choice(CODECS), "size": rng.choice((40, 200)), "acks": -1,
        "is_idempotent": rng.random() < 0.7, "keys": 0, "linger": rng.choice((0.0, 0.005)), "batch_bytes": rng.choice((200, 1_000)),
        "burst": rng.choice((1, 1, 4)),
    }  # fmt: skip


def _reading_near(rng: Random, racks: int) -> dict[str, Any]:
    return {"pause": between(rng, 0.03, 0.25), "rack": f"r{rng.randrange(racks)}", "is_committed_only": False}


def between(rng: Random, low: float, high: float) -> float:
    """Evenly over the orders of magnitude."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))
