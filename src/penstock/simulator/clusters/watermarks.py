"""Asks again and again where each partition ends. Whoever leads, and however often that changes, the answer never goes back (KIP-207).

For the one who asks: a leader that is cut off from the others, and not from its clients, may go on telling those what it knows. Whoever has
heard of a later leader does not ask it any more.
"""

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
                    end, now = found[where].offset, self._env.now()
                    self._stage.notebook.diary.watermark(where, end, began=began, ended=now, reader=self._plan.name)
                await self._stage.breathe(self._env, self._plan.options["pause"])
