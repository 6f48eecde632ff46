"""The reckoning of transactions: what counts when all workers are gone, and where the groups are then.

Every transaction that was left lying must end by its time-out, so it is waited for; then everything that counts is read back as a reader of
committed records reads it. In a world without transactions nothing is done.
"""

import asyncio

from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.peers.fetching import FetchLimits
from penstock.peers.offsets import LATEST
from penstock.peers.positions import FROM_EARLIEST
from penstock.peers.reader import Reader, ReaderSettings
from penstock.simulator.env import SimEnv
from penstock.simulator.transaction_diary import Ends
from penstock.simulator.workloads.notebook import NOWHERE
from penstock.simulator.workloads.stage import Stage
from penstock.vocabulary import TopicPartition

READER = "transaction reckoning"
_ENDED_WITHIN_SECONDS = 60.0
_OWN = b"reckoning."  # What the other reckoning writes once more is of no transaction.


class TransactionReckoning:
    def __init__(self, stage: Stage, env: SimEnv) -> None:
        self._stage = stage
        self._told = stage.notebook.diary.transactions
        self._env = env

    async def run(self) -> None:
        topics = [topic.name for topic in self._stage.topics.values() if topic.is_transactional]
        partitions = [where for name in topics for where in self._stage.partitions(name)]
        if not partitions:
            return
        async with self._stage.client(self._env, READER) as client:
            try:
                await self._wait_until_all_have_ended(client, partitions)
                await self._read(client, partitions)
                await self._find_offsets(client)
            except PeerFailure as failure:
                self._stage.notebook.find("in the calm everything works", NOWHERE, f"{READER}: {failure.problem}")

    async def _wait_until_all_have_ended(self, client: Client, partitions: list[TopicPartition]) -> None:
        wishes, until = dict.fromkeys(partitions, LATEST), self._env.now() + _ENDED_WITHIN_SECONDS
        while True:
            stable = await client.list_offsets(wishes, is_committed_only=True)
            everything = await client.list_offsets(wishes)
            self._told.ends = {where: Ends(stable[where].offset, everything[where].offset) for where in partitions}
            if all(ends.stable == ends.all for ends in self._told.ends.values()) or self._env.now() >= until:
                return
            await asyncio.sleep(0.5)

    async def _read(self, client: Client, partitions: list[TopicPartition]) -> None:
        found: dict[TopicPartition, list[tuple[int, bytes]]] = {where: [] for where in partitions}
        settings = ReaderSettings(fetch=FetchLimits(is_committed_only=True))
        async with Reader(client, dict.fromkeys(partitions, FROM_EARLIEST), settings) as reader:
            async for record in reader:
                value = record.value or b""
                if not value.startswith(_OWN):
                    found[TopicPartition(record.topic, record.partition)].append((record.offset, value))
        self._told.finals = found

    async def _find_offsets(self, client: Client) -> None:
        for group in dict.fromkeys(transaction.group for transaction in self._told.transactions):
            for where, committed in (await client.committed_offsets(group)).items():
                self._told.committed[group, where] = committed.offset
