"""What may be chosen for a queue, by names that Python has, and the settings of its topic that say so.

The settings themselves, their bounds and reasons stand in docs/reference/settings.md; whatever has no name here goes by its own in
`settings`. A name that nobody knows is refused with the nearest one that somebody does, before anything is asked of a node.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, TypedDict

from penstock.client.queues.spans import Span, milliseconds


class Choices(TypedDict, total=False):
    partitions: int
    replicas: int
    lease: Span  # How long a message is lent for, where its worker does not say.
    deliveries: int  # After so many failed deliveries a message becomes a dead letter; 0: never.
    dead_letters: str  # The queue for those; without one they are dropped.
    backoff: Span  # How long a message waits after its first failure; twice that after the next, and so on.
    backoff_max: Span
    lenient: bool  # Whether a worker whose lease has lapsed may still finish its message.
    fifo: bool  # In the order of sending, by group.
    dedup_window: Span  # For how long a dedup id counts.
    priorities: bool
    starvation_every: int  # Every so manieth delivery goes to the oldest message, whatever its priority; 0: never.
    fair: bool  # A group that takes more than its share waits for the others.
    delay: Span  # Of messages that say nothing.
    ttl: Span  # Of messages that say nothing.
    keep: bool  # What is done stays in the log, and can be had again by rewind().
    limit: int  # Unfinished messages of one partition at most; 0: no limit.
    when_full: str  # "refuse" or "wait".
    settings: Mapping[str, str]  # Any of the topic's, by their own names.


def _number(value: object, name: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a number, not {value!r}")
    return str(value)


def _truth(value: object, name: str) -> str:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return str(value).lower()


def _kept(value: object, name: str) -> str:
    return "keep" if _truth(value, name) == "true" else "delete"


def _span(value: Any, name: str) -> str:
    return str(milliseconds(value, name))


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {value!r}")
    return value


# The name here, the topic's setting, and how a value becomes its text.
TABLE: dict[str, tuple[str, Callable[[Any, str], str]]] = {
    "lease": ("queue.lease.ms", _span),
    "deliveries": ("queue.deliveries.max", _number),
    "dead_letters": ("queue.dead.letter", _text),
    "backoff": ("queue.backoff.min.ms", _span),
    "backoff_max": ("queue.backoff.max.ms", _span),
    "lenient": ("queue.lenient", _truth),
    "fifo": ("queue.fifo", _truth),
    "dedup_window": ("queue.dedup.window.ms", _span),
    "priorities": ("queue.priorities", _truth),
    "starvation_every": ("queue.starvation.every", _number),
    "fair": ("queue.fair", _truth),
    "delay": ("queue.delay.ms", _span),
    "ttl": ("queue.ttl.ms", _span),
    "keep": ("queue.retention", _kept),
    "limit": ("queue.ready.max", _number),
    "when_full": ("queue.when.full", _text),
}
COUNTS = ("partitions", "replicas")


class Chosen(NamedTuple):
    settings: dict[str, str]
    partitions: int | None
    replicas: int | None


def settings_of(choices: Choices) -> Chosen:
    given: dict[str, Any] = {**choices}
    raw = given.pop("settings", {})
    counts = [_count(given.pop(name, None), name) for name in COUNTS]
    for name in given:
        if name not in TABLE:
            near = get_close_matches(name, [*TABLE, *COUNTS, "settings"], n=1, cutoff=0.6)
            raise TypeError(f"a queue has no {name!r}" + (f"; did you mean {near[0]!r}?" if near else f", only {', '.join(TABLE)}"))
    settings = {TABLE[name][0]: TABLE[name][1](value, name) for name, value in given.items() if value is not None}
    return Chosen(settings | dict(raw), counts[0], counts[1])


def _count(value: object, name: str) -> int | None:
    if value is not None and int(_number(value, name)) < 1:
        raise ValueError(f"{name} must be 1 or more, not {value}")
    return None if value is None else int(_number(value, name))
