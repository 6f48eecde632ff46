"""How long to wait, and how long between two tries.

A deadline is an instant, fixed once where a call begins and handed down, so that retries inside retries cannot add up.
Backoff grows by doubling and is jittered, so that a thousand clients of a restarted node do not come back in the same millisecond.
"""

import asyncio
from typing import Any, Protocol

from penstock.vocabulary import Instant

TIMER_MIN_S = 0.001  # No timer is shorter: event loops round below it, each in its own way.
JITTER = 0.2  # Of each pause, either way; as Kafka's clients do.


class Chance(Protocol):
    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...


class ClientEnv(Protocol):
    """The part of `Env` that a client needs; a process without a data directory can offer it too."""

    @property
    def rng(self) -> Chance: ...

    def now(self) -> Instant: ...

    def wall_ms(self) -> int: ...


class Deadline:
    """The instant after which a call is given up."""

    __slots__ = ("_env", "at", "span_s")

    def __init__(self, env: ClientEnv, span_s: float) -> None:
        self._env = env
        self.span_s = span_s
        self.at = Instant(env.now() + span_s)

    def left_s(self) -> float:
        return max(0.0, self.at - self._env.now())

    def cut(self, span_s: float) -> float:
        """A time-out of `span_s`, shortened to what is left."""
        return max(TIMER_MIN_S, min(span_s, self.left_s()))


class Backoff:
    """Pauses between tries: doubling from `first_s` up to `longest_s`, each jittered."""

    __slots__ = ("_env", "_longest_s", "_next_s")

    def __init__(self, env: ClientEnv, *, first_s: float = 0.05, longest_s: float = 1.0) -> None:
        self._env = env
        self._next_s = first_s
        self._longest_s = longest_s

    def pause_s(self) -> float:
        pause = self._next_s * (1 - JITTER + 2 * JITTER * self._env.rng.random())
        self._next_s = min(2 * self._next_s, self._longest_s)
        return max(TIMER_MIN_S, pause)


async def until_ended(task: asyncio.Task[Any]) -> None:
    """Waits for a task that was cancelled, without being told how it ended. Unlike awaiting it, this cannot be taken for a cancellation."""
    ended = asyncio.get_running_loop().create_future()
    task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
    await ended
