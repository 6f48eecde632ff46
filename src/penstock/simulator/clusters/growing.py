"""Plays an operator who adds partitions to a topic while producers and consumers use it.

They learn of the new partitions when the operator is told that those are there: what is acknowledged in one of them is kept as in any
other. A request whose answer was lost may have been carried out.
"""

from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan

_CALL_SECONDS = 8.0
_STEP_MAX = 2


class Growing:
    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        self._plan = plan
        self._topic = plan.topic
        self._stage = stage
        self._env = env

    async def run(self) -> None:
        async with self._stage.client(self._env, self._plan.name) as client:
            while not self._stage.is_calm:
                await self._stage.breathe(self._env, self._plan.options["pause"])
                count = self._stage.topics[self._topic].partitions
                if count < self._plan.options["partitions_max"]:
                    await self._grow(client, count + self._env.rng.randint(1, _STEP_MAX))
            while not self._stage.is_over:
                await self._stage.breathe(self._env, 0.2)
            await self._learn(client)

    async def _grow(self, client: Client, wanted: int) -> None:
        operations = self._stage.operations
        operation = operations.begin("partitions added", self._env.now())
        self._stage.asked_partitions[self._topic] = max(wanted, self._stage.asked_partitions.get(self._topic, 0))
        try:
            view = await client.add_partitions(self._topic, wanted, deadline_s=_CALL_SECONDS)
        except PeerFailure:
            return await self._learn(client)
        operations.complete(operation, self._env.now())
        self._stage.grown(self._topic, max(wanted, len(view.partitions)))
        self._stage.provoke()

    async def _learn(self, client: Client) -> None:
        """What was asked for may be there by now."""
        try:
            view = await client.describe(self._topic, deadline_s=_CALL_SECONDS)
        except PeerFailure:
            return
        self._stage.grown(self._topic, len(view.partitions))
