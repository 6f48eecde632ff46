"""Asks again and again where each partition ends. Whoever leads, and however often that changes, the answer never goes back (KIP-207)."""

import asyncio

from penstock.peers.failures import PeerFailure
from penstock.peers.offsets import LATEST
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan

_ASKED_SECONDS = 1.0


class AskingForEnds:
    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        self._plan = plan
        self._stage = stage
        self._env = env

    async def run(self) -> None:
        async with self._stage.client(self._env, self._plan.name) as client:
            while not self._stage.is_over:
                for where in self._stage.partitions(self._plan.topic):
                    began = self._env.now()
                    try:
                        found = await client.list_offsets({where: LATEST}, deadline_s=_ASKED_SECONDS)
                    except PeerFailure:
                        await asyncio.sleep(0.02)
                        continue
                    self._stage.notebook.diary.watermark(where, found[where].offset, began=began, ended=self._env.now())
                await self._stage.breathe(self._env, self._plan.options["pause"])
