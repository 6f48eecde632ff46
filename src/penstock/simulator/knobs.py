"""Constants of the product that a seed may make small, so that the rare paths behind them run in a short story.

They are no settings: nobody would set them. But a stream that begins at 256 KiB, an index that is thinned at 4,096 entries, or a snapshot
that is due after 4 MiB would never be met by a workload of a few hundred records. Each is right at any size, and that is tried here.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any

from penstock.broker import (
    cleaning,
    connection,
    coordinator_loading,
    coordinator_snapshots,
    coordinators,
    fetch_sessions,
    housekeeping,
    node,
    quorum_replaying,
    quorum_snapshots,
    quorum_store,
)
from penstock.broker.queues import bodies, burying, checkpoints, following, ledgers
from penstock.broker.queues.exchanges import Exchanges
from penstock.broker.queues.rounds import Rounds
from penstock.cluster import controller
from penstock.log import chunks, index, key_map, reader, rewriting, streaming, tail
from penstock.log.walking import Walk
from penstock.partition import admission
from penstock.queues import checkpoint, lapsing, pages, timetable

Knob = tuple[Any, str, tuple[object, ...]]  # Whose, its name, what it may be instead.

KNOBS: dict[str, tuple[Knob, ...]] = {
    "streams": ((reader, "STREAM_BYTES_MIN", (1, 500, 3_000)),),
    "pieces of streams": ((streaming, "PIECE_BYTES", (1, 300, 2_000)),),
    "chunks of a walk": ((Walk.next_chunk, "__defaults__", ((70,), (500,), (5_000,))),),
    "chunks that are written again": ((rewriting, "CHUNK_BYTES", (100, 1_000)),),
    "windows of a search": ((tail, "_WINDOW_BYTES", (512, 4_096)),),
    "entries of an index": ((index, "ENTRIES_MAX", (2, 4, 16)),),
    "remembered places": ((reader, "_PLACES_MAX", (1, 2)),),
    "unpacked at once": ((admission, "UNPACKED_AT_ONCE_MAX", (10, 200)),),
    "snapshots of metadata": ((quorum_snapshots, "SNAPSHOT_EVERY_BYTES", (1, 500)),),
    "reads of metadata": ((quorum_store, "READ_BYTES", (1, 300)),),
    "replays of metadata": ((quorum_snapshots, "PIECE_BYTES", (1,)), (quorum_replaying, "ENTRIES_AT_ONCE", (1,))),
    "blocks of producer ids": ((controller, "PRODUCER_BLOCK_SIZE", (1, 2)),),
    "unsent bytes": ((connection, "UNSENT_BYTES_HIGH", (1, 1_000)), (connection, "COUNTED_FROM_BYTES", (1, 100))),
    "shared buffer": ((node, "SHARED_BUFFER_BYTES", (4_096,)),),
    "old sessions": ((fetch_sessions, "EVICTABLE_AFTER_SECONDS", (0.0, 0.5)),),
    "partitions at a time": ((housekeeping, "PARTITIONS_AT_A_TIME", (1,)),),
    "rounds of housekeeping": ((housekeeping, "ROUND_SECONDS", (0.1, 0.3)),),
}

COMPACTION_KNOBS: dict[str, tuple[Knob, ...]] = {
    "chunks of compaction": ((chunks, "CHUNK_BYTES", (70, 500, 5_000)),),
    "slots of a key map": ((key_map, "SLOTS_MIN", (2, 8)),),
    "replaced files": ((cleaning, "REPLACED_STAY_SECONDS", (0.0, 0.3)),),
    "retries of compaction": ((cleaning, "RETRY_SECONDS", (0.05, 0.5)),),
}

GROUP_KNOBS: dict[str, tuple[Knob, ...]] = {
    "snapshots of coordinators": (
        (coordinators, "SNAPSHOT_EVERY_BYTES_MIN", (1, 500, 3_000)),
        (coordinators, "ROUND_SECONDS", (0.02, 0.1, 0.3)),
    ),
    "pieces of snapshots": ((coordinator_snapshots, "PIECE_BYTES", (1, 200)),),
    "reads of coordinators": ((coordinator_loading, "READ_BYTES", (1, 300)), (coordinator_loading, "STRETCH_BYTES", (1, 1_000))),
    "replays of coordinators": ((coordinator_loading, "REPLAYED_AT_ONCE", (1, 5)),),
}

QUEUE_KNOBS: dict[str, tuple[Knob, ...]] = {
    "checkpoints of ledgers": (
        (ledgers, "CHECKPOINT_EVERY_BYTES_MIN", (1, 500, 3_000)),
        (ledgers, "ROUND_SECONDS", (0.02, 0.1, 0.3)),
    ),
    "checkpoints after messages": ((ledgers, "CHECKPOINT_EVERY_DATA_BYTES", (1, 2_000)), (ledgers, "ROUND_SECONDS", (0.1, 0.3))),
    "pieces of ledgers": ((checkpoint, "PIECE_BYTES", (1, 60, 500)),),
    "trimmed logs": ((ledgers, "TRIMMED_BYTES_MIN", (1, 1_000)), (ledgers, "ROUND_SECONDS", (0.1, 0.3))),
    "reads of ledgers": ((checkpoints, "READ_BYTES", (1, 300)),),
    "reads of messages": ((following, "READ_BYTES", (1, 300)), (following, "READS_AT_ONCE", (1, 2))),
    "kept bodies": ((bodies, "KEPT_BYTES_MAX", (1, 500)),),
    "letters at once": ((burying, "LETTERS_AT_ONCE", (1, 3)),),
    "lapses at once": ((lapsing, "LAPSES_MAX", (1, 3)),),
}

FAR_KNOBS: dict[str, tuple[Knob, ...]] = {
    "far delays": (
        (timetable, "WIDTHS_MS", ((100, 400, 1_600), (300, 1_200, 4_800))),
        (timetable, "LEADS_MS", ((50, 100, 400), (0, 300, 1_200))),
        (timetable, "TAILS_BYTES", (20, 200)),
        (timetable, "OPENED_AT_ONCE", (1, 5)),
        (pages, "PAGE_BYTES", (40, 200)),
    ),
}


def _gathering(seconds: float) -> Callable[[Rounds | Exchanges], None]:
    """Callers of so long a time share a round: in the same turn of the loop hardly two ever come here."""

    def come_later(self: Rounds | Exchanges) -> None:
        if not self._is_coming:
            self._is_coming = True
            asyncio.get_running_loop().call_later(seconds, self._come)

    return come_later


ROUND_KNOBS: dict[str, tuple[Knob, ...]] = {
    "rounds": (
        (Rounds, "_come_soon", (_gathering(0.02), _gathering(0.1))),
        (Exchanges, "_come_soon", (_gathering(0.02), _gathering(0.1))),
    ),
}

DATA_KNOBS: dict[str, tuple[Knob, ...]] = {
    "rounds of known ends": ((housekeeping, "KNOWN_ENDS_SECONDS", (0.2, 0.6)),),
}

Turned = Mapping[str, int]  # For each knob that is turned, which of its choices.


def draw_knobs(rng: Random) -> Turned:
    """Few of them, most of the time: with everything tiny at once little else happens."""
    return _draw(rng, KNOBS, rng.choice((0.0, 0.1, 0.3, 0.6)))


def draw_compaction_knobs(rng: Random) -> Turned:
    """For worlds with a compacted topic."""
    return _draw(rng, COMPACTION_KNOBS, 0.5)


def draw_group_knobs(rng: Random) -> Turned:
    """For worlds with a consumer group."""
    return _draw(rng, GROUP_KNOBS, 0.5)


def draw_queue_knobs(rng: Random) -> Turned:
    """For worlds with queues."""
    return {**_draw(rng, QUEUE_KNOBS, rng.choice((0.1, 0.3, 0.6))), **_draw(rng, FAR_KNOBS, 0.5)}


def draw_data_knobs(rng: Random) -> Turned:
    """For worlds in which bytes of replicas change at rest."""
    return _draw(rng, DATA_KNOBS, 1.0)


def draw_rounds(rng: Random) -> Turned:
    """For worlds in which callers of queues come together."""
    return _draw(rng, ROUND_KNOBS, 1.0)


def _draw(rng: Random, knobs: Mapping[str, tuple[Knob, ...]], share: float) -> Turned:
    turned = {name: rng.randrange(min(len(choices) for _, _, choices in several)) for name, several in knobs.items()}
    return {name: choice for name, choice in turned.items() if rng.random() < share}


ALL_KNOBS = {**KNOBS, **COMPACTION_KNOBS, **GROUP_KNOBS, **QUEUE_KNOBS, **FAR_KNOBS, **ROUND_KNOBS, **DATA_KNOBS}


@contextmanager
def turned(knobs: Turned) -> Iterator[None]:
    changes = [(owner, name, choices[knobs[knob]]) for knob in knobs for owner, name, choices in ALL_KNOBS[knob]]
    with replaced(changes):
        yield


_NOTHING = object()


@contextmanager
def replaced(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Sets attributes of modules, classes or functions, and puts them back when the block ends.

    Only what is there can be replaced, lest a change of names makes it do nothing; but a property may stand for what instances have.
    """
    kept = [(owner, name, getattr(owner, name, _NOTHING)) for owner, name, _ in changes]
    for (owner, name, original), (_, _, instead) in zip(kept, changes, strict=True):
        if original is _NOTHING and not isinstance(instead, property):
            raise AttributeError(f"{owner.__name__} has no {name} to replace")
    for owner, name, instead in changes:
        setattr(owner, name, instead)
    try:
        yield
    finally:
        for owner, name, original in kept:
            if original is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
