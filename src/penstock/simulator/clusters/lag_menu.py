"""What a seed chooses of metadata that lag, and of topics that are deleted and made again under those who use them.

By chance of their own, so that the other seeds, and the rest of a menu, stay what they were.
"""

import math
from dataclasses import replace
from random import Random

from penstock.simulator.clusters.menu import ClusterMenu, Lag, NodePlan
from penstock.simulator.delivery_menu import draw_offsets_topic
from penstock.simulator.menu import ClientPlan, TopicPlan

# How many seeds have topics that are made again, and how many lags: of those, and of the others.
REMADE, LAGGED_IF_REMADE, LAGGED = 0.3, 0.75, 0.15
QUIET = 0.6  # How many of those with both have no other trouble: with all of it at once few topics come to be made again.
REMADE_KINDS = ("remake transact", "remake commit", "remake share", "remake queue")
_LONGEST_SECONDS = 6.0
_OFTEN = 1.5  # Mean seconds between two lags, where they come most often.


def with_lag(menu: ClusterMenu) -> ClusterMenu:
    rng = Random(f"{menu.seed}/lag")
    is_remade = rng.random() < REMADE
    is_lagged = rng.random() < (LAGGED_IF_REMADE if is_remade else LAGGED)
    if is_remade:
        menu = _with_remaking(rng, menu)
    if is_lagged and len(menu.brokers) > 1:
        is_quiet = is_remade and rng.random() < QUIET
        menu = replace(menu, lags=_draw_lags(rng, menu.seconds), is_quiet=is_quiet, rots=menu.rots and not is_quiet)
    return menu


def _draw_lags(rng: Random, seconds: float) -> tuple[Lag, ...]:
    pause, lasting, at = _between(rng, _OFTEN, 6.0), _between(rng, 0.3, 2.0), rng.random()
    lags = []
    while at < seconds:
        lags.append(Lag(at, min(_LONGEST_SECONDS, rng.expovariate(1 / lasting))))
        at += rng.expovariate(1 / pause)
    return tuple(lags)


def _with_remaking(rng: Random, menu: ClusterMenu) -> ClusterMenu:
    brokers = len(menu.brokers)
    clients = [_draw_client(rng, kind, brokers) for kind in rng.sample(REMADE_KINDS, rng.choice((1, 1, 2)))]
    offsets_topic = draw_offsets_topic(rng, replicas=min(brokers, rng.choice((2, 3))))
    return replace(
        menu,
        clients=(*menu.clients, *clients),
        nodes=tuple(_made_small(node) for node in menu.nodes),
        offsets_topic=replace(menu.offsets_topic or offsets_topic, partitions=1),
    )


def _made_small(node: NodePlan) -> NodePlan:
    """One coordinator is enough to lag, and what a lost member of a share group holds would take much of the calm."""
    small = replace(
        node.settings, transaction_partitions=1, group_share_record_lock_ms=1_500, group_share_min_record_lock_ms=1_000
    )  # fmt: skip
    return replace(node, settings=small)


def _draw_client(rng: Random, kind: str, brokers: int) -> ClientPlan:
    replicas = min(brokers, rng.choice((1, 2, 3)))
    name = kind.replace(" ", "-")
    config = {"min.insync.replicas": "1"} | ({"queue.enabled": "true", "queue.retention": "keep"} if kind == "remake queue" else {})
    partitions = 1 if kind in ("remake transact", "remake share") else rng.choice((1, 2))
    topic = TopicPlan(name, partitions, config, replication_factor=replicas, is_churned=True)
    return ClientPlan(name, kind, name, {"plan": topic, "pause": _between(rng, 0.01, 0.1)})


def _between(rng: Random, low: float, high: float) -> float:
    """Evenly over the orders of magnitude."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))
