"""What a seed chooses before anything happens: who there is, what the topic promises, which trouble comes and how often."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    nodes: int
    replicas: int
    min_insync: int
    flushes_before_ack: bool
    seconds: float
    clients: int
    think_seconds: float
    delay_seconds: float
    loss: float
    doubling: float
    flush_seconds: float
    metadata_seconds: float  # How long a decision takes to reach a node, about.
    lag_max_s: float
    session_seconds: float
    batches_max: int  # In one answer to a follower.
    asks_again: bool  # A proposal without an answer is put once more as it is; otherwise the leader hears that it was lost.
    knows_nodes: bool  # A leader listens only to followers that the image would let join.
    trim_seconds: float  # Between two moves of the leader's log start; 0 for none.
    reassign_seconds: float  # Between two wishes of the operator; 0 for none.
    faults: Mapping[str, float]  # Each kind, and how often it comes each second.
    ambushes: Mapping[str, float]  # Each kind, and how likely it is when its moment comes.


FAULTS = (
    "kill", "lose power", "lose all power", "wipe disk", "disk fails", "stop", "pause", "pause leader",
    "cut", "one-way cut", "isolate leader", "cut from controller", "heal",
    "slow disk", "controller away", "change min.insync", "move leader",
)  # fmt: skip
AMBUSHES = (
    "after acknowledgement", "after election", "after proposal", "after decision", "after report", "before report", "after joining",
    "at a cut", "while restarting",
)  # fmt: skip


def draw_plan(seed: int) -> Plan:
    rng = Random(f"{seed}/plan")
    nodes = rng.choice((2, 3, 3, 3, 3, 4, 5))
    replicas = min(nodes, rng.choice((2, 3, 3, 3, 4)))
    intensity = rng.choice((0.0, 1.0, 2.0, 4.0))
    chosen = [kind for kind in FAULTS if rng.random() < 0.5]
    return Plan(
        seed=seed,
        nodes=nodes,
        replicas=replicas,
        min_insync=min(replicas, rng.choice((1, 1, 2, 2, 3))),
        flushes_before_ack=rng.random() < 0.75,
        seconds=rng.choice((0.8, 1.5, 2.5)),
        clients=rng.choice((1, 2, 3)),
        think_seconds=rng.choice((0.01, 0.03, 0.06)),
        delay_seconds=rng.choice((0.001, 0.003, 0.01)),
        loss=rng.choice((0.0, 0.01, 0.05, 0.15)),
        doubling=rng.choice((0.0, 0.05, 0.2)),
        flush_seconds=rng.choice((0.001, 0.004, 0.02)),
        metadata_seconds=rng.choice((0.002, 0.01, 0.05)),
        lag_max_s=rng.choice((0.1, 0.2, 0.5)),
        session_seconds=rng.choice((0.1, 0.2, 0.4)),
        batches_max=rng.choice((1, 2, 5, 50)),
        asks_again=rng.random() < 0.5,
        knows_nodes=rng.random() < 0.5,
        trim_seconds=rng.choice((0.0, 0.0, 0.1, 0.3)),
        reassign_seconds=rng.choice((0.0, 0.0, 0.3)) if nodes > replicas else 0.0,
        faults={kind: intensity * rng.choice((0.2, 0.6)) for kind in chosen} if intensity else {},
        ambushes={kind: rng.choice((0.02, 0.1, 0.3)) for kind in AMBUSHES if rng.random() < 0.4},
    )
