"""Plays an operator who adds a node to a cluster that works, gives it partitions and perhaps a vote, and later drains and forgets a node.

The node that goes may be another than the one that came. Now and then it comes back, under its number and with the disk that it had: what
is on that disk is no copy of anything any more. Every step is tried until it is done, whatever fails meanwhile. A node that holds replicas
must never be forgotten.
"""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.errors import ErrorCode
from penstock.peers.cluster_changes import forget_node
from penstock.peers.failures import PeerFailure, Refused
from penstock.simulator.clusters.machines import Machines
from penstock.simulator.clusters.moving import Mover, States
from penstock.simulator.clusters.operations import Operation
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.clusters.voting import VotersDesk
from penstock.simulator.clusters.wishes import Replicas
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan
from penstock.vocabulary import TopicPartition

FORGOTTEN_RULE = "a node that holds replicas is not forgotten"
_VOTERS_MIN = 2  # None of their disks is lost in such a run.
_LOOKED_SECONDS = 0.2
_FILLED_MAX = 3


class ChangingNodes:
    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        assert stage.machines is not None
        self._plan = plan
        self._options = plan.options
        self._stage = stage
        self._machines: Machines = stage.machines
        self._env = env
        self._joined: int = plan.options["node"]

    async def run(self) -> None:
        await asyncio.sleep(self._options["starts_after"])
        if self._stage.is_calm:
            return
        async with self._stage.client(self._env, self._plan.name) as client:
            mover = Mover(client, self._stage, self._env)
            desk = VotersDesk(client, self._stage, self._machines, self._env)
            await self._add(mover, self._joined, "node added")
            if self._options["votes"]:
                await desk.settle(self._joined, votes=True)
            await self._until(lambda: self._fill(mover))
            await self._stage.breathe(self._env, self._options["pause"])
            if self._options["leaves"]:
                await self._let_go(mover, desk)

    async def _until(self, step: Callable[[], Awaitable[bool]]) -> None:
        """Tries the step until it says that it is done."""
        while True:
            try:
                if await step():
                    return
            except PeerFailure:
                pass
            await asyncio.sleep(_LOOKED_SECONDS)

    def _begin(self, name: str) -> Operation:
        return self._stage.operations.begin(name, self._env.now())

    def _complete(self, operation: Operation) -> None:
        self._stage.operations.complete(operation, self._env.now())

    async def _add(self, mover: Mover, node_id: int, name: str) -> None:
        operation = self._begin(name)
        self._machines.add(node_id)

        async def is_up() -> bool:
            return node_id in await mover.live_brokers()

        await self._until(is_up)
        self._complete(operation)

    async def _fill(self, mover: Mover) -> bool:
        """Some partitions get a replica on the new node, in place of one that they have."""
        rng, states = self._env.rng, await mover.look()
        able = [where for where, state in states.items() if self._joined not in state.replicas]
        plan = {}
        for where in rng.sample(able, min(len(able), rng.randint(1, _FILLED_MAX))):
            replicas = list(states[where].replicas)
            replicas[rng.randrange(len(replicas))] = self._joined
            plan[where] = tuple(replicas)
        if plan:
            await mover.begin(plan, "move")
        return True

    # A node goes.

    async def _let_go(self, mover: Mover, desk: VotersDesk) -> None:
        node_id = self._leaving()
        if self._options["is_forgotten_early"]:
            await self._forget_too_early(mover, node_id)
        operation = self._begin("node drained")
        await self._until(lambda: self._drain(mover, node_id))
        self._complete(operation)
        if node_id in self._machines.voters:
            await desk.settle(node_id, votes=False)
        operation = self._begin("node forgotten")
        self._machines.stop(node_id)
        await self._until(lambda: self._forget(mover, node_id))
        self._machines.remove(node_id)
        self._complete(operation)
        # Known limit (docs/status.md): a voter that joined may find no leader after it was forgotten.
        is_lost = node_id == self._joined and self._options["votes"]
        if self._options["returns"] and not is_lost:
            await self._stage.breathe(self._env, self._options["pause"])
            await self._add(mover, node_id, "node added again")

    def _leaving(self) -> int:
        others = [node_id for node_id in self._machines.brokers if node_id != self._joined]
        voters = self._machines.voters
        able = [node_id for node_id in others if node_id not in voters or len(voters) > _VOTERS_MIN]
        return self._env.rng.choice(able) if able and self._options["may_lose_others"] else self._joined

    async def _drain(self, mover: Mover, node_id: int) -> bool:
        """Whether the node has nothing and gets nothing."""
        states, live = await mover.look(), await mover.live_brokers()
        held = {where: state.replicas for where, state in states.items() if node_id in state.replicas}
        moving = await mover.moving()
        leaving = [where for where in held if where in moving and node_id in moving[where].removing]
        loads = _loads(states)
        plan: dict[TopicPartition, Replicas] = {}
        for where, replicas in held.items():
            if where in leaving:
                continue
            target = [node for node in replicas if where not in moving or node not in moving[where].removing]
            heirs = [node for node in live if node not in (node_id, *target)]
            heir = min(heirs, key=lambda node: (loads.get(node, 0), node), default=None)
            if heir is not None:
                loads[heir] = loads.get(heir, 0) + 1
            stays = [heir if node == node_id else node for node in target]
            if replicas_left := tuple([node for node in stays if node is not None]):
                plan[where] = replicas_left
        if plan:
            await mover.begin(plan, "move")
        return not held

    async def _forget_too_early(self, mover: Mover, node_id: int) -> None:
        """While it is down, and holds replicas."""
        operation = self._begin("node forgotten too early")
        self._machines.stop(node_id)
        await self._until(lambda: self._is_refused(mover, node_id))
        self._machines.start(node_id)
        self._complete(operation)

    async def _is_refused(self, mover: Mover, node_id: int) -> bool:
        """Whether the node was kept though it was known to be down, or holds nothing; nobody but this operator moves partitions."""
        if not self._machines.is_down(node_id):
            self._machines.stop(node_id)
            return False
        if not any(node_id in state.replicas for state in (await mover.look()).values()):
            return True
        is_known_to_be_down = node_id not in await mover.live_brokers()
        try:
            await forget_node(mover.client.router, node_id, mover.deadline)
        except Refused:
            return is_known_to_be_down
        self._stage.notebook.find(FORGOTTEN_RULE, TopicPartition(f"(node {node_id})", 0), "the controller forgot it")
        return True

    async def _forget(self, mover: Mover, node_id: int) -> bool:
        if not self._machines.is_down(node_id):
            self._machines.stop(node_id)  # It may have been started while it was asked to end.
            return False
        try:
            await forget_node(mover.client.router, node_id, mover.deadline)
        except Refused as refusal:
            if refusal.code == ErrorCode.BROKER_ID_NOT_REGISTERED:
                return True
            if any(node_id in state.replicas for state in (await mover.look()).values()):
                await self._empty_again(mover, node_id)
            return False
        return True

    async def _empty_again(self, mover: Mover, node_id: int) -> None:
        """Partitions were added to it before it had stopped, and nobody else may have their records."""
        self._machines.start(node_id)
        await self._until(lambda: self._drain(mover, node_id))
        self._machines.stop(node_id)


def _loads(states: States) -> dict[int, int]:
    loads: dict[int, int] = {}
    for state in states.values():
        for node in state.replicas:
            loads[node] = loads.get(node, 0) + 1
    return loads
