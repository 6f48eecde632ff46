"""Transactions and groups under the new protocol for a run of a whole cluster, by chance of their own (see the menu of one node)."""

from dataclasses import replace
from random import Random

from penstock.simulator.clusters.menu import ClusterMenu
from penstock.simulator.delivery_menu import Addition, draw_additions, draw_offsets_topic
from penstock.simulator.knobs import draw_group_knobs

# How many seeds have workers that transact, and how many have a group under the new protocol that only reads.
TRANSACTED, BELONGING = 0.3, 0.2


def with_deliveries(menu: ClusterMenu) -> ClusterMenu:
    for addition, rng in draw_additions(menu.seed, TRANSACTED, BELONGING, brokers=len(menu.brokers), world="cluster "):
        menu = add(menu, addition, rng)
    return menu


def add(menu: ClusterMenu, addition: Addition, rng: Random) -> ClusterMenu:
    replicas = min(len(menu.brokers), rng.choice((2, 3, 3)))
    offsets_topic = draw_offsets_topic(rng, replicas=replicas)
    return replace(
        menu, topics=(*menu.topics, *addition.topics), clients=(*menu.clients, *addition.clients),
        nodes=tuple(replace(node, settings=replace(node.settings, **addition.settings)) for node in menu.nodes),
        offsets_topic=menu.offsets_topic or offsets_topic, knobs={**menu.knobs, **draw_group_knobs(rng)},
    )  # fmt: skip
