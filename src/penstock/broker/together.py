"""Many small waits at once, a bounded number at a time: opening or closing a thousand logs shares the disk's flushes."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

AT_A_TIME = 64


async def together(begin: Iterable[Callable[[], Coroutine[Any, Any, T]]], at_a_time: int = AT_A_TIME) -> list[T]:
    """The results in order. All that was begun is waited for; then the first failure is raised."""
    waiting, results = iter(begin), []
    while group := list(islice(waiting, at_a_time)):
        ended = await asyncio.gather(*(one() for one in group), return_exceptions=True)
        for result in ended:
            if isinstance(result, BaseException):
                raise result
            results.append(result)
    return results
