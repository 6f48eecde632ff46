"""Reads of a cluster, partition by partition: whole batches with right checksums, offset after offset, whoever leads.

An offset that a reader has come to stays readable, whatever happens to the nodes: what it has read was below the watermark, and so is on
every in-sync replica.
"""

import asyncio

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure, Refused
from penstock.peers.fetching import FetchLimits
from penstock.peers.offsets import EARLIEST
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.fetching import take_records
from penstock.vocabulary import TopicPartition

_ASKED_SECONDS = 3.0
_BEGINS_AGAIN = 0.05


class ClusterFetching:
    """Follows every partition of a topic, and now and then begins again at its start."""

    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        self._plan = plan
        self._topic: TopicPlan = stage.topics[plan.topic]
        self._stage = stage
        self._env = env
        self._next: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        async with self._stage.client(self._env, self._plan.name) as client:
            while not self._stage.is_over:
                for where in self._stage.partitions(self._topic.name):
                    if where not in self._next:  # The topic may grow.
                        self._seek(where, 0)
                for where in list(self._next):
                    await self._read(client, where)
                if self._env.rng.random() < _BEGINS_AGAIN:
                    self._seek(self._env.rng.choice(list(self._next)), 0)
                await self._stage.breathe(self._env, self._plan.options["pause"])

    def _seek(self, where: TopicPartition, offset: int) -> None:
        self._next[where] = offset
        self._stage.notebook.diary.seek(where, self._plan.name, offset)

    async def _read(self, client: Client, where: TopicPartition) -> None:
        rng, notebook = self._env.rng, self._stage.notebook
        limits = FetchLimits(wait_ms=rng.choice((0, 50)), bytes_min=rng.choice((1, 1, 3_000)), bytes_max=rng.choice((1, 2_000, 1 << 20)))
        try:
            row = await client.fetch(where.topic, where.partition, self._next[where], limits=limits, deadline_s=_ASKED_SECONDS)
        except Refused as refusal:
            await self._refused(client, where, refusal)
        except PeerFailure:
            await asyncio.sleep(0.02)
        else:
            self._next[where] = take_records(
                notebook, where, self._topic, self._plan.name, row.records, offset=self._next[where], now=self._env.now()
            )

    async def _refused(self, client: Client, where: TopicPartition, refusal: Refused) -> None:
        notebook, code = self._stage.notebook, refusal.code
        if code != ErrorCode.OFFSET_OUT_OF_RANGE:
            if where not in notebook.diary.damaged:
                notebook.find("what is whole is served", where, f"{self._plan.name}: at {self._next[where]}: {refusal.problem}")
            await asyncio.sleep(0.02)
            return
        if notebook.keeps_everything(where, self._topic):
            notebook.find("what was there stays there", where, f"{self._plan.name}: offset {self._next[where]} is out of range")
        start = await earliest(client, where)
        if start is not None:
            self._seek(where, start)


async def earliest(client: Client, where: TopicPartition) -> int | None:
    try:
        return max(0, (await client.list_offsets({where: EARLIEST}, deadline_s=_ASKED_SECONDS))[where].offset)
    except PeerFailure:
        return None
