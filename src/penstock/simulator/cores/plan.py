"""What a seed chooses before anything happens: who there is, how small the bounds are, which trouble comes and how often."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from penstock.consensus.options import Options


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    voters: int
    spares: int  # Nodes that begin as observers.
    directories_are_known: bool  # Or the first voters are named by their nodes alone.
    options: Options
    snapshot_entries: int  # A snapshot is taken after so many; 0 for never.
    entries_kept: int  # So many entries before a snapshot's end stay.
    snapshot_padding: int
    seconds: float
    clients: int
    think_seconds: float
    delay_seconds: float
    loss: float
    doubling: float
    flush_seconds: float
    clock_spread: float  # Clocks run this much too fast or too slow, at most.
    faults: Mapping[str, float]  # Each kind, and how often it comes each second.
    ambushes: Mapping[str, float]  # Each kind, and how likely it is when its moment comes.
    operator_seconds: float  # Between two wishes of the operator; 0 for none.


FAULTS = ("crash", "crash leader", "crash all", "pause", "cut", "one-way cut", "isolate leader", "split", "heal", "wipe")
AMBUSHES = ("after commit", "before send", "after vote", "after election", "after change", "after acknowledgement", "after answer")


def draw_plan(seed: int) -> Plan:
    rng = Random(f"{seed}/plan")
    voters = rng.choice((1, 2, 3, 3, 3, 3, 4, 5, 5))
    heartbeat = rng.choice((0.03, 0.05))
    is_tiny = rng.random() < 0.5
    intensity = rng.choice((0.0, 0.5, 1.0, 2.0))
    chosen = [kind for kind in FAULTS if rng.random() < 0.5]
    return Plan(
        seed=seed,
        voters=voters,
        spares=rng.choice((0, 0, 1, 2)),
        directories_are_known=rng.random() < 0.7,
        options=Options(
            election_seconds_min=0.15,
            election_seconds_max=rng.choice((0.17, 0.2, 0.3, 0.3)),
            heartbeat_seconds=heartbeat,
            batch_entries_max=rng.choice((1, 1, 2, 5, 1_000)) if is_tiny else 1_000,
            batch_bytes_max=rng.choice((1, 20, 256 * 1024)) if is_tiny else 256 * 1024,
            in_flight_max=rng.choice((1, 2, 8)),
            chunk_bytes_max=rng.choice((7, 30, 1_000)),
            uncommitted_bytes_max=rng.choice((10, 1_000, 1_000_000)),
            waiting_max=rng.choice((2, 100)),
            caught_up_entries_max=rng.choice((0, 2, 100)),
            observer_seconds=rng.choice((0.5, 3.0)),
            observers_max=100,
        ),
        snapshot_entries=rng.choice((0, 3, 8, 20)),
        entries_kept=rng.choice((0, 0, 2, 10)),
        snapshot_padding=rng.choice((0, 0, 50)),
        seconds=rng.choice((0.8, 1.5, 3.0)),
        clients=rng.choice((1, 2, 3, 4)),
        think_seconds=rng.choice((0.01, 0.02, 0.05)),
        delay_seconds=rng.choice((0.001, 0.003, 0.01)),
        loss=rng.choice((0.0, 0.01, 0.05, 0.2)),
        doubling=rng.choice((0.0, 0.02, 0.1)),
        flush_seconds=rng.choice((0.0005, 0.002, 0.01)),
        clock_spread=rng.choice((0.0, 0.02, 0.2)),
        faults={kind: intensity * rng.choice((0.3, 1.0)) for kind in chosen} if intensity else {},
        ambushes={kind: rng.choice((0.01, 0.05, 0.3)) for kind in AMBUSHES if rng.random() < 0.4},
        operator_seconds=rng.choice((0.0, 0.0, 0.1, 0.4)),
    )
