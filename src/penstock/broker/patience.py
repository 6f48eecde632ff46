"""How long one request may have the loop to itself: long enough for the usual one, short enough for everybody else."""

import asyncio

from penstock.env import Env

SECONDS_AT_ONCE = 0.005


class Patience:
    __slots__ = ("_ends", "_env")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._ends = env.now() + SECONDS_AT_ONCE

    def is_over(self) -> bool:
        return self._env.now() > self._ends

    async def pause_if_over(self) -> None:
        """Lets everybody else have their turn."""
        if self.is_over():
            await asyncio.sleep(0)
            self._ends = self._env.now() + SECONDS_AT_ONCE
