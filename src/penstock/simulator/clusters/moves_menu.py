"""Draws the operators of a run of a whole cluster: who moves partitions, lets a topic grow, adds and forgets nodes, and changes the voters.

Each by chance of its own, so that the other seeds stay what they were. Nodes join and leave only where nobody else moves partitions: an
operator who empties a node and one who fills it again would never come to an end. Disks are lost only where the voters stay as they are.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

from penstock.simulator.clusters.lag_menu import REMADE_KINDS
from penstock.simulator.clusters.menu import CLUSTER_ID, ClusterMenu, NodePlan
from penstock.simulator.knobs import draw_knobs
from penstock.simulator.menu import ClientPlan, TopicPlan

# How many seeds have such an operator.
MOVED, GROWN, JOINED, VOTED = 0.35, 0.25, 0.25, 0.2

GROWN_TOPIC, MOVED_TOPIC = "grown", "moved"
MOVE, GROW, JOIN, VOTE = "move partitions", "add partitions", "change nodes", "change voters"
KINDS = (MOVE, GROW, JOIN, VOTE)
_VOTERS_MIN = 3


def with_moves(menu: ClusterMenu) -> ClusterMenu:
    additions: tuple[tuple[str, float, Callable[[ClusterMenu, Random], ClusterMenu]], ...] = (
        ("growth", GROWN, _with_growth),
        ("moves", MOVED, _with_moves),
        ("nodes", JOINED, _with_nodes),
        ("voters", VOTED, _with_voters),
    )
    for name, chance, add in additions:
        rng = Random(f"{menu.seed}/cluster {name}")
        if rng.random() < chance:
            menu = add(menu, rng)
    return menu


def _with_growth(menu: ClusterMenu, rng: Random) -> ClusterMenu:
    brokers = len(menu.brokers)
    topic = _strong_topic(rng, GROWN_TOPIC, 1, min(brokers, rng.choice((1, 2, 3))))
    feeding = {
        "pause": _between(rng, 0.01, 0.1), "codec": 0, "size": 40, "acks": -1, "is_idempotent": True, "keys": 0, "linger": 0.005,
        "batch_bytes": 1_000, "burst": rng.choice((1, 5)),
    }  # fmt: skip
    reading = {"pause": _between(rng, 0.02, 0.2), "uses_sessions": rng.random() < 0.5, "version": 12}
    clients = [
        ClientPlan("grown-producer", "produce", topic.name, feeding),
        ClientPlan("grown-reader", rng.choice(("reread", "fetch")), topic.name, reading),
        ClientPlan("grower", GROW, topic.name, {"pause": _between(rng, 0.2, 1.5), "partitions_max": rng.choice((3, 5, 8))}),
    ]
    knobs = dict(menu.knobs)
    if rng.random() < 0.5:
        knobs |= {name: choice for name, choice in draw_knobs(rng).items() if name == "snapshots of metadata"}
    return replace(menu, topics=(*menu.topics, topic), clients=(*menu.clients, *clients), knobs=knobs)


def _with_moves(menu: ClusterMenu, rng: Random) -> ClusterMenu:
    """One more topic that is written to seldom: a copy that comes back finds the log as it was."""
    brokers = len(menu.brokers)
    if brokers < 2:
        return menu
    topic = _strong_topic(rng, MOVED_TOPIC, rng.choice((1, 2)), rng.randint(1, min(3, brokers)))
    feeding = {
        "pause": _between(rng, 0.05, 1.0), "codec": 0, "size": 40, "acks": -1, "is_idempotent": True, "keys": 0, "linger": 0.0,
        "batch_bytes": 1_000, "burst": 1,
    }  # fmt: skip
    moving = {
        "pause": _between(rng, 0.03, 0.5), "at_once": rng.choice((1, 2, 5)), "returns": rng.choice((0.2, 0.7)),
        "throttles": rng.random() < 0.5, "leaves_throttle": rng.random() < 0.5, "gives_up": rng.choice((0.2, 0.5)),
    }  # fmt: skip
    clients = [
        ClientPlan("moved-producer", "produce", topic.name, feeding),
        ClientPlan("mover", MOVE, topic.name, moving),
    ]
    return replace(menu, topics=(*menu.topics, topic), clients=(*menu.clients, *clients))


def _with_nodes(menu: ClusterMenu, rng: Random) -> ClusterMenu:
    """A node that is there from the start may go only where there are enough others for every partition, and three voters stay. Topics that
    are made again may have one replica, and nobody moves them off the node that goes."""
    is_taken = any(client.kind in (MOVE, "churn", *REMADE_KINDS) for client in menu.clients)
    if is_taken or not menu.nodes[0].settings.quorum_voters:
        return menu
    number, pattern = len(menu.nodes) + 1, menu.brokers[0].settings
    votes = rng.random() < 0.5
    settings = replace(
        pattern, node_id=number, process_roles="broker,controller" if votes else "broker", advertised_host=f"node-{number}",
        joins_cluster=True, cluster_id=CLUSTER_ID,
    )  # fmt: skip
    joining = {
        "pause": _between(rng, 0.05, 0.5), "node": number, "starts_after": rng.uniform(0.0, 0.4) * menu.seconds, "votes": votes,
        "leaves": rng.random() < 0.7, "is_forgotten_early": rng.random() < 0.3, "returns": rng.random() < 0.5,
        "may_lose_others": len(menu.brokers) > 1 and rng.random() < 0.5,
    }  # fmt: skip
    client = ClientPlan("machinist", JOIN, menu.topics[0].name, joining)
    later = NodePlan(number, f"node-{number}", settings)
    return replace(menu, clients=(*menu.clients, client), later=(*menu.later, later), may_lose_a_disk=False)


def _with_voters(menu: ClusterMenu, rng: Random) -> ClusterMenu:
    voters = sum(node.is_voter for node in menu.nodes)
    if voters < _VOTERS_MIN or any(client.kind == JOIN for client in menu.clients):
        return menu
    voting = {"pause": _between(rng, 0.1, 1.0), "keeps_out": voters > _VOTERS_MIN and rng.random() < 0.5}
    client = ClientPlan("voters' operator", VOTE, menu.topics[0].name, voting)
    return replace(menu, clients=(*menu.clients, client), may_lose_a_disk=False)


def _strong_topic(rng: Random, name: str, partitions: int, replicas: int) -> TopicPlan:
    config = {"segment.bytes": str(rng.choice((1024, 8192, 1 << 20))), "min.insync.replicas": str(min(replicas, rng.choice((1, 2))))}
    return TopicPlan(name, partitions, config, replication_factor=replicas)


def _between(rng: Random, low: float, high: float) -> float:
    """Evenly over the orders of magnitude."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))
