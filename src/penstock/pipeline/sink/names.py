"""The transactional ids of a sink, which are few and used again.

    penstock-sink.<sink>                                 whoever may write to the ledger
    penstock-sink.<sink>.<slot>.<partition>.<attempt>    one attempt at one task

Rules:
- Two attempts that may both run have two ids: a second one must not abort what the first has staged, which may be the winner. Only when
  Spark tries a whole stage again it counts attempts anew, and does not tell Python so: then two may meet under one id, the first is fenced,
  and if Spark chose that one the driver finds its transaction gone before it commits.
- Batches take turns with two slots. A batch does not wait until the markers of the one before are written, and an attempt that outlives
  its batch cannot meet the next one.
- So a sink has at most 2 × partitions × attempts ids, however many batches it writes.
"""

import re
from typing import NamedTuple

SLOTS = 2
SINK_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")

_PREFIX = "penstock-sink."
_PLACE = re.compile(r"\d+\.\d+\.\d+")


class Place(NamedTuple):
    """Which attempt at which task, by Spark's numbers."""

    partition: int
    attempt: int


def ledger_id(sink: str) -> str:
    return _PREFIX + sink


def task_id(sink: str, batch: int, place: Place) -> str:
    return f"{_PREFIX}{sink}.{batch % SLOTS}.{place.partition}.{place.attempt}"


def is_task_of(sink: str, transactional_id: str) -> bool:
    """Whether the id is of a task of this sink, and not of one whose name begins alike."""
    start = f"{_PREFIX}{sink}."
    return transactional_id.startswith(start) and _PLACE.fullmatch(transactional_id.removeprefix(start)) is not None


def neighbours(sink: str, batch: int, winner: Place) -> list[str]:
    """The ids of the attempts that may have lost against the winner: all before it, and the one after it (a speculative twin)."""
    attempts = [attempt for attempt in range(winner.attempt + 2) if attempt != winner.attempt]
    return [task_id(sink, batch, Place(winner.partition, attempt)) for attempt in attempts]
