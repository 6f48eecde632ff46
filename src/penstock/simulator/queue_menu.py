"""What a seed chooses for a world of queues: the queues and their settings, senders, workers and keepers, and what is made small.

Such a world has queues alone: the stories of everything else are told without them, so these come to more of theirs in the same time.
Nodes, trouble and endings are what the seed draws for any world.
"""

import math
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from penstock.simulator.clusters.menu import ClusterMenu
from penstock.simulator.knobs import Turned, draw_queue_knobs, draw_rounds
from penstock.simulator.menu import ClientPlan, Menu, TopicPlan
from penstock.simulator.workloads.queueing import DEEDS

WINDOW_MS = 3_600_000  # In which a dedup id counts: longer than any run.
DEAD = "dead"
_SHARED = 0.3  # How many worlds have a share group.
_REDRIVEN = 0.4  # How many of those with dead letters send them back.
_DELAYED = 0.4  # How many with FIFO queues change their delay.
_GATHERED = 0.4  # In how many worlds callers come together.


@dataclass(frozen=True, slots=True)
class Drawn:
    queues: tuple[TopicPlan, ...]
    clients: tuple[ClientPlan, ...]
    knobs: Turned


def with_queues_alone(menu: Menu) -> Menu:
    drawn = _with_groups(Random(f"{menu.seed}/shares"), _draw(Random(f"{menu.seed}/queues"), brokers=1))
    drawn = _with_keepers(Random(f"{menu.seed}/keepers"), drawn)
    drawn = _with_rounds(Random(f"{menu.seed}/rounds"), drawn)
    return replace(
        menu, topics=(), queues=drawn.queues, clients=drawn.clients, knobs={**menu.knobs, **drawn.knobs}, rots=False, harms_caches=False,
        offsets_topic=None,
    )  # fmt: skip


def cluster_with_queues_alone(menu: ClusterMenu) -> ClusterMenu:
    drawn = _draw(Random(f"{menu.seed}/cluster queues"), brokers=len(menu.brokers))
    drawn = _with_keepers(Random(f"{menu.seed}/cluster keepers"), _with_groups(Random(f"{menu.seed}/cluster shares"), drawn))
    drawn = _with_rounds(Random(f"{menu.seed}/cluster rounds"), drawn)
    return replace(
        menu, topics=(), queues=drawn.queues, clients=drawn.clients, knobs={**menu.knobs, **drawn.knobs}, offsets_topic=None,
        may_lose_a_disk=menu.may_lose_a_disk and all(queue.replication_factor > 1 for queue in drawn.queues),
    )  # fmt: skip


def draw_lost(seed: int) -> float:
    """How many calls and answers of queues get lost."""
    return Random(f"{seed}/lost calls").choice((0.0, 0.0, 0.02, 0.1))


def _draw(rng: Random, *, brokers: int) -> Drawn:
    kinds = rng.choice((("standard",), ("fifo",), ("standard", "fifo"), ("standard", "standard")))
    queues = [_draw_queue(rng, f"{kind}-{number}", is_fifo=kind == "fifo", brokers=brokers) for number, kind in enumerate(kinds)]
    clients = [client for queue in queues for client in _draw_clients(rng, queue)]
    if any("queue.dead.letter" in queue.config for queue in queues):
        queues.insert(0, _placed(rng, TopicPlan(DEAD, rng.choice((1, 2)), _common(rng)), brokers))
    return Drawn(tuple(queues), tuple(clients), draw_queue_knobs(rng))


def _with_groups(rng: Random, drawn: Drawn) -> Drawn:
    """In some worlds a share group reads the log of a queue, beside the queue's own workers."""
    if rng.random() >= _SHARED:
        return drawn
    queue = drawn.queues[-1]
    options = {
        "pause": _between(rng, 0.01, 0.2), "count": rng.choice((1, 3, 20)), "words": (6.0, rng.choice((0.0, 2.0)), rng.choice((0.0, 1.0))),
        "partitions": queue.partitions,
    }  # fmt: skip
    members = tuple(ClientPlan(f"{queue.name}-member-{number}", "share", queue.name, options) for number in range(rng.randint(1, 3)))
    return replace(drawn, clients=(*drawn.clients, *members))


def _with_rounds(rng: Random, drawn: Drawn) -> Drawn:
    """In some worlds callers come together, and workers ask for the same, by the same name: they share decisions."""
    if rng.random() >= _GATHERED:
        return drawn
    alike = {"lease_ms": rng.choice((500, 2_000, 6_000)), "asks_again": False, "who": "one of us"}
    clients = tuple(
        replace(each, options={**each.options, **alike}) if each.kind == "queue work" else each for each in drawn.clients
    )  # fmt: skip
    return replace(drawn, clients=clients, knobs={**drawn.knobs, **draw_rounds(rng)})


def _with_keepers(rng: Random, drawn: Drawn) -> Drawn:
    """In some worlds dead letters are sent back, and the delays of FIFO queues are changed."""
    is_redriven, is_delayed = rng.random() < _REDRIVEN, rng.random() < _DELAYED
    keepers = list[ClientPlan]()
    for queue in drawn.queues:
        if is_redriven and queue.name == DEAD:
            keepers.append(ClientPlan("redriver", "queue decree", DEAD, {"pause": _between(rng, 0.5, 3.0), "kinds": ("redrive",)}))
        elif is_delayed and queue.config.get("queue.fifo") == "true":
            options = {"pause": _between(rng, 0.2, 2.0), "kinds": ("delay",)}
            keepers.append(ClientPlan(f"{queue.name}-delayer", "queue decree", queue.name, options))
    return replace(drawn, clients=(*drawn.clients, *keepers))


def _draw_queue(rng: Random, name: str, *, is_fifo: bool, brokers: int) -> TopicPlan:
    config = _common(rng) | {
        "queue.fifo": str(is_fifo).lower(), "queue.backoff.min.ms": str(rng.choice((0, 0, 50, 500))), "queue.backoff.max.ms": "2000",
        "queue.lenient": str(rng.random() < 0.5).lower(),
    }  # fmt: skip
    if rng.random() < 0.6:
        config |= {"queue.deliveries.max": str(rng.choice((1, 2, 3, 5))), "queue.dead.letter": DEAD}
    if rng.random() < 0.2:
        config["queue.inflight.max"] = str(rng.choice((1, 5, 20)))
    if rng.random() < 0.2:
        config |= {"queue.ready.max": str(rng.choice((5, 30))), "queue.when.full": rng.choice(("refuse", "wait"))}
    if not is_fifo and rng.random() < 0.2:
        config["queue.fair"] = "true"
    return _placed(rng, TopicPlan(name, rng.choice((1, 1, 2, 3)), config), brokers)


def _common(rng: Random) -> dict[str, str]:
    return {
        "queue.enabled": "true", "segment.bytes": str(rng.choice((1024, 8192, 1 << 20))), "queue.dedup.window.ms": str(WINDOW_MS),
        "queue.retention": rng.choice(("delete", "delete", "keep")),
    }  # fmt: skip


def _placed(rng: Random, plan: TopicPlan, brokers: int) -> TopicPlan:
    replicas = min(brokers, rng.choice((2, 3, 3)))
    if brokers == 1:
        return plan
    config = {**plan.config, "min.insync.replicas": str(min(replicas, rng.choice((1, 2, 2))))}
    return replace(plan, replication_factor=replicas, config=config)


def _draw_clients(rng: Random, queue: TopicPlan) -> list[ClientPlan]:
    clients, is_fifo = list[ClientPlan](), queue.config["queue.fifo"] == "true"
    sending = {
        "pause": _between(rng, 0.02, 0.3), "burst": rng.choice((1, 3, 10)), "is_fifo": is_fifo,
        "ids": queue.name if is_fifo or rng.random() < 0.5 else "", "groups": rng.choice((1, 3, 10)) if is_fifo else rng.choice((0, 0, 3)),
        "priorities": (4,) if is_fifo or rng.random() < 0.5 else (0, 4, 4, 9),
        "delays_ms": (0,) if is_fifo or rng.random() < 0.5 else (0, 0, 100, 1_500),
    }  # fmt: skip
    clients += [ClientPlan(f"{queue.name}-sender-{number}", "queue send", queue.name, sending) for number in range(rng.choice((1, 2)))]
    for number in range(rng.randint(1, 4)):
        clients.append(ClientPlan(f"{queue.name}-worker-{number}", "queue work", queue.name, _working(rng)))
    keeps = queue.config["queue.retention"] == "keep"
    if rng.random() < (0.5 if keeps else 0.25):
        usual = (("pause",), ("purge",), ("pause", "purge"))
        kinds = rng.choice((("rewind",), ("rewind", "rewind", "pause"), ("purge",)) if keeps else usual)
        clients.append(ClientPlan(f"{queue.name}-keeper", "queue decree", queue.name, {"pause": _between(rng, 0.5, 4.0), "kinds": kinds}))
    return clients


def _working(rng: Random) -> dict[str, Any]:
    usual = [10.0, *(rng.choice((0.0, 0.5, 3.0)) for _ in DEEDS[1:])]
    return {
        "pause": _between(rng, 0.01, 0.2), "lease_ms": rng.choice((150, 500, 2_000, 6_000)), "count": rng.choice((1, 3, 10, 50)),
        "deeds": usual, "asks_again": rng.random() < 0.5,
    }  # fmt: skip


def _between(rng: Random, low: float, high: float) -> float:
    """Evenly over the orders of magnitude."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))
