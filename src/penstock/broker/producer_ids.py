"""Producer ids for clients, from a block in memory: the metadata log grows by one record per thousand producers.

An id is never given twice: a block that was promised and not used up is lost with the process, never used again.
"""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.cluster.records import ProducerBlockTaken
from penstock.vocabulary import ProducerId


class ProducerIds:
    def __init__(self, take_block: Callable[[], Awaitable[ProducerBlockTaken]]) -> None:
        self._take_block = take_block
        self._turn = asyncio.Lock()
        self._next = 0
        self._end = 0

    async def next_id(self) -> ProducerId:
        async with self._turn:
            if self._next == self._end:
                block = await self._take_block()
                self._next, self._end = block.first, block.first + block.size
            given = ProducerId(self._next)
            self._next += 1
            return given
