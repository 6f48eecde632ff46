"""Calls of one kind that are made while others are under way go to the node together.

A program that sends from many tasks at once would otherwise pay for a request per message, and so would the node, which has one flush for
all of them anyway. Nobody waits for company: a call goes by itself, at once, while fewer than `AT_ONCE` are under way. Those that come
later wait for the first of these to end, and then go in one request.

Each call hears of its own items alone. What becomes of a whole request (no answer, no node, no queue) is told to all who were in it. A no
to something that one of them said (`Refused`) has done nothing, so they are asked again one by one. Whoever is cancelled before the request
went out has asked for nothing; later, the request goes on for the others.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Generic, NamedTuple, TypeVar

from penstock.client.queues.failures import Refused

AT_ONCE = 4  # Enough to keep the node's flushes busy.

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class _Call(NamedTuple, Generic[Item, Outcome]):
    items: Sequence[Item]
    size: int
    answer: "asyncio.Future[list[Outcome]]"


class Gathering(Generic[Item, Outcome]):
    """`ask` answers for each item, in order. One request has `count_max` items and `bytes_max` bytes at most."""

    def __init__(self, ask: Callable[[Sequence[Item]], Awaitable[list[Outcome]]], *, count_max: int, bytes_max: int) -> None:
        self._ask = ask
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._under_way = 0
        self._waiting: deque[_Call[Item, Outcome]] = deque()
        self._groups: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, items: Sequence[Item], size: int = 0) -> list[Outcome]:
        """`size`: bytes, where they count."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # What was under way in another one is lost with it.
            self._loop, self._under_way, self._waiting = loop, 0, deque()
        if self._under_way < AT_ONCE:
            return await self._alone(items)
        call = _Call(items, size, loop.create_future())
        self._waiting.append(call)
        return await call.answer

    async def _alone(self, items: Sequence[Item]) -> list[Outcome]:
        self._under_way += 1
        try:
            return await self._ask(items)
        finally:
            self._end()

    def _end(self) -> None:
        self._under_way -= 1
        group = self._next_group()
        if group:
            self._under_way += 1
            task = asyncio.get_running_loop().create_task(self._together(group))
            self._groups.add(task)
            task.add_done_callback(self._groups.discard)

    def _next_group(self) -> list[_Call[Item, Outcome]]:
        group: list[_Call[Item, Outcome]] = []
        count = size = 0
        while self._waiting:
            call = self._waiting[0]
            if call.answer.done():  # Cancelled.
                self._waiting.popleft()
                continue
            count, size = count + len(call.items), size + call.size
            if group and (count > self._count_max or size > self._bytes_max):
                break
            group.append(self._waiting.popleft())
        return group

    async def _together(self, group: Sequence[_Call[Item, Outcome]]) -> None:
        try:
            await self._tell(group)
        finally:
            for call in group:
                call.answer.cancel()  # Whoever is left without an answer: the loop is ending.
            self._end()

    async def _tell(self, group: Sequence[_Call[Item, Outcome]]) -> None:
        try:
            outcomes = await self._ask([item for call in group for item in call.items])
        except Exception as failure:
            if isinstance(failure, Refused) and len(group) > 1:
                for call in group:
                    await self._tell([call])
                return
            for call in group:
                if not call.answer.done():
                    call.answer.set_exception(copy(failure))
            return
        at = 0
        for call in group:
            if not call.answer.done():
                call.answer.set_result(outcomes[at : at + len(call.items)])
            at += len(call.items)
