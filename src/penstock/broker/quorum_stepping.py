"""Steps a core: one event at a time, all effects of a step before the next step, and a timer that rings when the core is due."""

import asyncio
from collections import deque
from collections.abc import Callable

from penstock.consensus.core import Core
from penstock.consensus.effects import Effect
from penstock.consensus.events import Event, TimePassed
from penstock.env import Env
from penstock.errors import BrokenPromise

TIMER_SECONDS_MIN = 0.001


class Stepper:
    def __init__(self, env: Env, core: Core, carry_out: Callable[[Effect], None], on_failed: Callable[[BaseException], None]) -> None:
        self._env = env
        self._core = core
        self._carry_out = carry_out
        self._on_failed = on_failed
        self._events: deque[Event] = deque()
        self._is_stepping = False
        self._is_open = True
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = env.now()

    def step(self, event: Event) -> None:
        """What an effect brings about comes after the effects that are left."""
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events and self._is_open:
                for effect in self._core.step(self._events.popleft(), self._env.now()):
                    self._carry_out(effect)
        except (Exception, BrokenPromise) as failure:
            self._on_failed(failure)
        finally:
            self._is_stepping = False
        self._wind()

    def stop(self) -> None:
        """Nothing is stepped any more."""
        self._is_open = False
        self._events.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _wind(self) -> None:
        """A core often puts its time off, so a timer that is too early is left to ring."""
        if not self._is_open:
            return
        due = self._core.due
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        seconds = max(TIMER_SECONDS_MIN, due - self._env.now())
        self._timer = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._core.due <= self._env.now():
            self.step(TimePassed())
        else:
            self._wind()
