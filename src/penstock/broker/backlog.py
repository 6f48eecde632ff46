"""Work that comes faster than it is done: taken in its order by one task, and somebody may wait until none is left."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Backlog(Generic[T]):
    def __init__(self) -> None:
        self.items: deque[T] = deque()  # Whoever does one may take those behind it along.
        self._has_work = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def add(self, item: T) -> None:
        self.items.append(item)
        self._is_idle.clear()
        self._has_work.set()

    @property
    def is_idle(self) -> bool:
        return self._is_idle.is_set()

    async def until_idle(self) -> None:
        await self._is_idle.wait()

    def give_up(self) -> None:
        """Nothing more is done; nobody need wait for it."""
        self._is_idle.set()

    async def work(self, do: Callable[[T], Awaitable[None]]) -> None:
        """For as long as its task lives."""
        while True:
            while self.items:
                await do(self.items.popleft())
            self._is_idle.set()
            self._has_work.clear()
            await self._has_work.wait()
