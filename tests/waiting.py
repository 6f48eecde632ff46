"""How a test waits: for an event, and never for a time.

- `until` returns as soon as the claim holds, so that a fast machine loses nothing and a slow one has the time it needs.
- `PATIENCE_S` ends a hang; no verdict depends on it. `SPARK_PATIENCE_S` is for what a pipeline does in a process of its own, whose JVM and
  Python workers take half a minute to start on a quiet machine.
- `NEVER_S` is for a deadline of the product that must not expire, such as a session or a lease. It is much longer than a test waits: were
  both the same, a deadline that expires could pass for the behaviour that the test waits for.
- `EXPIRES_S` is for a deadline of the product that must expire, because what it waits for cannot come: a slow machine only makes it longer.
- `ASK_S` is for one call to a client library inside `until`, which looks again when that call brings nothing. `GLANCE_S` is the same for
  a call that always takes all of it, such as librdkafka's `consume(100, …)`, and for clients that are asked in turn.
- `stays` is for what must not happen: a slow machine makes such a check weaker, never red. Where virtual time can show the same, use that.
- `pause_at_random` chooses the moment of a kill; the verdict must be the same at every moment.
- `paced` spreads a load over time: a slow machine makes it lighter, and nothing may depend on how heavy it was.
- `until_later_than` is for what goes by time stamps: it returns in a later millisecond of the wall clock.

The only pauses of the suite outside virtual time are here (scripts/wall_clock.py).
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

Value = TypeVar("Value")

PATIENCE_S = 120.0
PATIENCE_MS = 120_000
SPARK_PATIENCE_S = 440.0
NEVER_S = 4 * PATIENCE_S  # Within the bounds of every setting that is given it: broker.session.timeout.ms takes ten minutes at most.
NEVER_MS = 4 * PATIENCE_MS
assert max(PATIENCE_S, SPARK_PATIENCE_S) < NEVER_S, "a deadline that must not expire is longer than any test waits"
EXPIRES_S = 0.05
EXPIRES_MS = 50
ASK_S = 0.1
ASK_MS = 100
GLANCE_S = 0.02
METADATA_AGE_MS = 1_000  # Of client libraries: kafka-python takes an answer that was under way when it subscribed for the one it needs.
POLL_S = 0.005
A_MOMENT_S = 0.05  # Many turns of an event loop that has nothing else to do.


def until(
    claim: Callable[[], Value], what: str | Callable[[], str] = "", *, every_s: float = POLL_S, patience_s: float = PATIENCE_S
) -> Value:
    """Returns the first true value of `claim()`; fails after `patience_s` and says `what` did not come true."""
    deadline = time.monotonic() + patience_s
    while not (value := claim()):
        assert time.monotonic() < deadline, _said(what, claim, patience_s)
        time.sleep(every_s)
    return value


async def until_async(
    claim: Callable[[], Value | Coroutine[Any, Any, Value]], what: str | Callable[[], str] = "", *, every_s: float = POLL_S
) -> Value:
    """Does the same on an event loop, whose other tasks go on meanwhile; in virtual time where the loop has that. `claim` may be async."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while not (value := await _told_by(claim)):
        assert loop.time() < deadline, _said(what, claim, PATIENCE_S)
        await asyncio.sleep(every_s)
    return value


def stays(claim: Callable[[], object], for_s: float = A_MOMENT_S) -> None:
    """Fails if `claim()` is false now or at any look within `for_s`."""
    for _ in range(5):
        assert claim()
        time.sleep(for_s / 5)
    assert claim()


async def stays_async(claim: Callable[[], object], for_s: float = A_MOMENT_S) -> None:
    """Does the same on an event loop, whose other tasks go on meanwhile."""
    for _ in range(5):
        assert claim()
        await asyncio.sleep(for_s / 5)
    assert claim()


def pause_at_random(rng: random.Random, shortest_s: float, longest_s: float) -> None:
    time.sleep(rng.uniform(shortest_s, longest_s))


async def pause_at_random_async(rng: random.Random, shortest_s: float, longest_s: float) -> None:
    await asyncio.sleep(rng.uniform(shortest_s, longest_s))


def paced(per_second: float, stopping: threading.Event) -> Iterator[None]:
    """Yields so many times a second, for one turn of a load each, until `stopping` is set."""
    while not stopping.wait(1 / per_second):
        yield


def until_later_than(wall_ms: int) -> None:
    """Waits until the wall clock shows a later millisecond: what is stamped from then on is stamped later."""
    until(lambda: time.time_ns() // 1_000_000 > wall_ms)


async def _told_by(claim: Callable[[], Value | Coroutine[Any, Any, Value]]) -> Value:
    told = claim()
    return await told if asyncio.iscoroutine(told) else told


def _said(what: str | Callable[[], str], claim: Callable[[], object], patience_s: float) -> str:
    return f"did not happen within {patience_s:.0f} s: {what() if callable(what) else what or claim}"
