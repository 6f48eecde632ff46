"""Logs of which the next process must know that they have failed (log/doubt.py): it would believe what only the machine's memory has.

A disk that takes no note when a log fails may take it later. So it is tried again, and a node that ends waits for it for a while.
"""

import asyncio

from penstock.env import Env
from penstock.partition.partition import Partition

LAST_SECONDS, AGAIN_SECONDS = 20.0, 0.1  # For how long a node that ends tries, and how often.


class FailedLogs:
    def __init__(self, env: Env) -> None:
        self._env = env
        self._noteless: dict[Partition, None] = {}

    def add(self, partition: Partition) -> None:
        self._noteless[partition] = None
        self.leave_notes()

    def leave_notes(self) -> None:
        for partition in [partition for partition in self._noteless if partition.is_deleted or partition.log.leave_note()]:
            del self._noteless[partition]

    async def leave_last_notes(self) -> None:
        ends = self._env.now() + LAST_SECONDS
        while self._noteless and self._env.now() < ends:
            self.leave_notes()
            if self._noteless:
                await asyncio.sleep(AGAIN_SECONDS)
