"""Plays an operator who takes votes on the metadata away and gives them back, one voter at a time.

Whatever became of a request, the voters are looked at before the next one. When the trouble is over everybody votes who is meant to.
"""

import asyncio
from contextlib import suppress

from penstock.peers.client import Client
from penstock.peers.cluster import DescribedQuorum, describe_quorum
from penstock.peers.cluster_changes import add_voter, remove_voter
from penstock.peers.failures import PeerFailure
from penstock.simulator.clusters.machines import Machines
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan

_CALL_SECONDS = 5.0
_LOOKED_SECONDS = 0.2


class VotersDesk:
    """Gives and takes votes until it is so, through any broker."""

    def __init__(self, client: Client, stage: ClusterStage, machines: Machines, env: SimEnv) -> None:
        self._client = client
        self._stage = stage
        self._machines = machines
        self._env = env

    async def settle(self, node_id: int, *, votes: bool) -> None:
        """Asks until the node is seen to vote, or not to."""
        name = "voter added" if votes else "voter removed"
        operation = self._stage.operations.begin(name, self._env.now())
        self._machines.is_to_vote(node_id, votes=votes)
        while True:
            try:
                if await self.step(node_id, votes=votes):
                    return self._stage.operations.complete(operation, self._env.now())
            except PeerFailure:
                pass  # It may have been carried out: the voters are looked at.
            await asyncio.sleep(_LOOKED_SECONDS)

    async def step(self, node_id: int, *, votes: bool) -> bool:
        """One look, and one request where there is something to do; whether there was nothing."""
        router = self._client.router
        quorum = await describe_quorum(router, router.deadline(_CALL_SECONDS))
        directory = next((voter.directory_id for voter in quorum.voters if voter.node_id == node_id), None)
        if votes == (directory is not None):
            return True
        if directory is not None:
            await remove_voter(router, node_id, directory, router.deadline(_CALL_SECONDS))
        elif (joining := _observer(quorum, node_id)) is not None:
            await add_voter(router, node_id, joining, router.deadline(_CALL_SECONDS))
        return False


class ChangingVoters:
    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        assert stage.machines is not None
        self._plan = plan
        self._stage = stage
        self._machines = stage.machines
        self._env = env

    async def run(self) -> None:
        async with self._stage.client(self._env, self._plan.name) as client:
            desk = VotersDesk(client, self._stage, self._machines, self._env)
            everyone = self._machines.voters
            while not self._stage.is_calm:
                await self._stage.breathe(self._env, self._plan.options["pause"])
                chosen = self._env.rng.choice(everyone)
                await desk.settle(chosen, votes=False)
                await self._stage.breathe(self._env, self._plan.options["pause"])
                if self._stage.is_calm and self._plan.options["keeps_out"]:
                    break
                await desk.settle(chosen, votes=True)
            while not self._stage.is_over:
                await self._keep(desk, everyone)

    async def _keep(self, desk: VotersDesk, everyone: list[int]) -> None:
        """A request of which nothing was heard may still be carried out, and is put right."""
        for node_id in everyone:
            with suppress(PeerFailure):
                await desk.step(node_id, votes=node_id in self._machines.voters)
        await asyncio.sleep(_LOOKED_SECONDS)


def _observer(quorum: DescribedQuorum, node_id: int) -> bytes | None:
    """The directory that the node follows the metadata with: of several, the one heard of last."""
    found = [each for each in quorum.observers if each.node_id == node_id and each.last_heard_ms >= 0]
    return max(found, key=lambda each: each.last_heard_ms).directory_id if found else None
