"""The nodes of a cluster as processes of one world, and what can be seen of them from outside.

A member is a host with one plan; its node lives and dies many times. Whoever looks in from outside (watchers, the nemesis, tests) sees the
nodes as they are at this instant, the dead ones not at all.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

from penstock.broker.node import Node
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.partition.partition import Partition
from penstock.simulator.clusters.menu import KAFKA_PORT, PEER_PORT, NodePlan
from penstock.simulator.clusters.operations import Operations
from penstock.simulator.env import SimEnv
from penstock.simulator.node_process import Interrupted, NodeProcess
from penstock.simulator.process import Process
from penstock.simulator.world import World
from penstock.vocabulary import Address, NodeId

SECRET = b"known to every node of the simulated cluster"
_OPERATOR_LOOKS_SECONDS = 0.25


class MemberProcess(NodeProcess):
    """A node among others: it has a listener of its own for them, and starts before anybody can lead."""

    def __init__(self, plan: NodePlan, rng: Random) -> None:
        super().__init__(plan.settings, rng)
        self.plan = plan
        self.being: Node | None = None  # Of the current life, from its first moment on.

    async def _begin(self, env: SimEnv) -> Node:
        """It may wait for the others for as long as they like, so it listens to its operator meanwhile."""
        node = self.being = Node(env, self.settings, secret=SECRET)
        coming_up = asyncio.get_running_loop().create_task(self._bring_up(node))
        while not coming_up.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(_OPERATOR_LOOKS_SECONDS):
                    await asyncio.shield(coming_up)
            if node.stopped.done():
                raise Interrupted(node.stopped.result())
            if env.terminated.is_set() and not coming_up.done():
                raise Interrupted("it was asked to end before it was up")
        await coming_up
        return node

    async def _bring_up(self, node: Node) -> None:
        if self.settings.quorum_voters:
            await node.listen_peers("0.0.0.0", PEER_PORT, advertised=Address(self.plan.host, PEER_PORT))
        await node.start()
        if self.plan.is_broker:
            await node.listen_kafka("0.0.0.0", KAFKA_PORT)


class Cluster:
    def __init__(self, world: World, plans: tuple[NodePlan, ...], later: tuple[NodePlan, ...] = ()) -> None:
        """`later`: nodes that are no part of the cluster before an operator adds them (machines.py)."""
        self.world = world
        self.plans = {plan.node_id: plan for plan in (*plans, *later)}
        self.processes = {plan.host: MemberProcess(plan, Random(f"{world.seed}/operator/{plan.host}")) for plan in self.plans.values()}
        self.operations = Operations()  # What operators and users did, and when.
        self.lost_disks: list[tuple[float, str]] = []
        self.held_down: dict[str, None] = {}  # Nobody starts these for now.
        self.is_sound: Callable[[], bool] = lambda: True  # Whether no copy has bytes that have changed.
        self.hosts = [plan.host for plan in plans]
        self.brokers = [plan.host for plan in plans if plan.is_broker]
        self.voters = [plan.host for plan in plans if plan.is_voter or len(plans) == 1]

    # Lives.

    def start(self, host: str) -> None:
        if host in self.held_down:
            return
        self.processes[host].being = None
        self.world.start(host, self.processes[host].run)

    def start_all(self) -> None:
        for host in self.hosts:
            if not self.world.is_running(host):
                self.start(host)

    def serves(self, host: str) -> bool:
        process = self.processes[host]
        if self.plans[int(host.rsplit("-", 1)[1])].is_broker:
            return self.world.is_running(host) and process.serves
        return self.world.is_running(host) and process.node is not None

    def all_serve(self) -> bool:
        return all(map(self.serves, self.hosts))

    # Looking in.

    def node(self, host: str) -> Node | None:
        """The living node, once it has read its metadata."""
        node = self.processes[host].being if self.world.is_running(host) else None
        return node if node is not None and node._quorum is not None else None

    def living(self) -> Iterator[tuple[str, Node]]:
        for host in self.hosts:
            if (node := self.node(host)) is not None:
                yield host, node

    def host_of(self, node_id: int) -> str:
        return self.plans[node_id].host

    def controller(self) -> str | None:
        """Who leads the quorum, of the newest term if several believe to."""
        leading = [(node.quorum.term, host) for host, node in self.living() if node.quorum.is_leading]
        return max(leading)[1] if leading else None

    def deciding(self) -> Node | None:
        host = self.controller()
        return None if host is None else self.node(host)

    def image(self) -> ClusterImage | None:
        """What is decided, as the node knows it that has applied most."""
        images = [(node.quorum.applied_end, host) for host, node in self.living()]
        if not images:
            return None
        node = self.node(max(images)[1])
        return None if node is None else node.image

    def states(self) -> Iterator[tuple[str, int, PartitionState]]:
        """Every partition as it was decided last."""
        image = self.image()
        for topic in image.topics.values() if image is not None else ():
            for index, state in enumerate(topic.partitions):
                yield topic.name, index, state

    def state(self, topic: str, index: int = 0) -> PartitionState | None:
        return next((state for name, at, state in self.states() if (name, at) == (topic, index)), None)

    def leader(self, topic: str, index: int = 0) -> str | None:
        """The host that leads by decision; None where nobody does."""
        state = self.state(topic, index)
        return None if state is None or state.leader < 0 else self.host_of(state.leader)

    def partition(self, host: str, topic: str, index: int = 0) -> Partition | None:
        node = self.node(host)
        return None if node is None else node.partitions.find(topic, index)

    def leads(self, host: str) -> bool:
        node_id = self.processes[host].plan.node_id
        return any(state.leader == node_id for _, _, state in self.states())

    def in_sync(self, topic: str, index: int = 0) -> set[NodeId]:
        state = self.state(topic, index)
        return set() if state is None else set(state.in_sync)

    # Disks.

    def lose_disk(self, host: str, *, is_told: bool = True) -> None:
        """The machine stops, and comes back with an empty disk: another directory under the same node id.

        As an operator should, the node is told that its cluster is there already.
        """
        self.lost_disks.append((self.world.now(), host))
        self.world.replace_disk(host)
        process = self.processes[host]
        process.settings = replace(process.settings, joins_cluster=is_told)

    def run_at(self, host: str, work: Coroutine[Any, Any, None]) -> Process:
        """Does something inside the host's living process, which is returned."""
        process = self.world.hosts[host].process
        assert process is not None
        self.world.loop.create_task(work, context=process.context.copy())
        return process
