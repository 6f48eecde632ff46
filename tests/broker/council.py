"""Nodes without partitions in one simulated world: quorum, links, registration, signs of life and commands are the real ones.

A councillor is what `Node` is, without logs and clients: it replays decisions and carries none out.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from penstock.broker.forwarding import Forwarding
from penstock.broker.membership import Membership
from penstock.broker.quorum import Quorum
from penstock.cluster import records
from penstock.cluster.commands import Command, CreateTopics, NewTopic, RegisterNode
from penstock.cluster.controller import Controller
from penstock.cluster.image import ClusterImage, NodeState, PartitionState
from penstock.cluster.replies import Reply
from penstock.consensus.nouns import DirectoryId, Replica
from penstock.consensus.options import Options
from penstock.consensus.voters import Voters
from penstock.links.door import Door
from penstock.links.handshake import Introduction
from penstock.links.kinds import Kind
from penstock.links.links import Links
from penstock.links.raft_messages import read_message, write_message
from penstock.log.open_files import OpenFiles
from penstock.settings import NodeSettings
from penstock.simulator.env import SimEnv
from penstock.simulator.links import GOOD, LinkQuality
from penstock.simulator.world import World
from penstock.vocabulary import Address, NodeId, TopicId

VIRTUAL_TIME = True

T = TypeVar("T")
PORT = 9093
CLUSTER = "council"
SECRET = b"what only councillors know"


class Councillor:
    def __init__(self, env: SimEnv, council: "Council", number: int, disk: int) -> None:
        self.env = env
        self.settings = replace(council.settings, node_id=number)
        self.me = Replica(NodeId(number), DirectoryId(bytes([number, disk]) * 8))
        self.reports: list[str] = []
        self.failures: list[str] = []
        me = Introduction(CLUSTER, self.me.node, self.me.directory)
        self.links = Links(env, me, SECRET, address_of=council.addresses.get, report=self.report)
        self.door = Door(env, me, SECRET, report=self.report)
        self.forwarding = Forwarding(self)  # type: ignore[arg-type]
        self.membership = Membership(self)  # type: ignore[arg-type]
        self.links.on_contact_lost = self.door.on_contact_lost = self.membership.controlling.contact_lost
        self.door.told[Kind.RAFT] = lambda sender, body: self.quorum.received(read_message(body))
        self.door.asked[Kind.SUBMIT] = self.forwarding.asked
        self.door.asked[Kind.HEARTBEAT] = self.membership.controlling.asked
        self._council = council
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def image(self) -> ClusterImage:
        return self.quorum.image

    def controller_node(self) -> NodeId | None:
        return self.quorum.leader

    def report(self, sentence: str) -> None:
        self.reports.append(sentence)

    def fail(self, reason: str) -> None:
        self.failures.append(reason)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))

    async def submit(self, command: Command) -> tuple[Reply, ...]:
        return await self.forwarding.submit(command)

    async def live(self, *, was_stopped_cleanly: bool) -> None:
        voters = Voters(tuple(Replica(node, self._council.directory(node)) for node in self._council.voters))
        self.quorum = await Quorum.open(
            self.env, OpenFiles(self.env.disk, 100), self.me, is_clean=was_stopped_cleanly, first_voters=voters,
            contacts=tuple(self._council.addresses), options=Options(0.8, 1.4, 0.15), on_replayed=self._replayed,
            tell=lambda to, message: self.links.tell(to, Kind.RAFT, write_message(message)), on_failed=self.fail, report=self.report,
        )  # fmt: skip
        self.controller = Controller.of(self.image, self.settings)
        self.quorum.on_installed = self._installed
        await asyncio.get_running_loop().create_server(self.door, f"node-{self.me.node}", PORT)
        self.quorum.start()
        self.membership.attach()
        host, roles = f"node-{self.me.node}", self._council.roles(self.me.node)
        command = RegisterNode(self.me.node, CLUSTER, self.me.directory.hex(), host, 9092, was_stopped_cleanly, host, PORT, roles)
        await self.membership.register(command)
        self.membership.begin()
        if self._council.are_ready:
            self.membership.ready()
        await self.env.terminated.wait()
        await self.membership.leave()
        for task in list(self._tasks):
            task.cancel()
        await self.quorum.close()
        self.door.close()
        await self.links.close()

    async def _replayed(self, record: records.Record) -> None:
        while self.me.node in self._council.slow_to_replay:
            await asyncio.sleep(0.05)

    async def _installed(self, image: ClusterImage) -> None:
        self.controller.image = image


class Council:
    def __init__(self, voters: int = 3, observers: int = 0, *, seed: int = 1, quality: LinkQuality = GOOD, **settings: Any) -> None:
        self.world = World(seed, link_quality=quality)
        self.settings = NodeSettings(**settings)
        self.voters = [NodeId(number) for number in range(1, voters + 1)]
        self.addresses = {NodeId(number): Address(f"node-{number}", PORT) for number in range(1, voters + observers + 1)}
        self.nodes: dict[int, Councillor] = {}
        self.are_ready = True
        self.slow_to_replay: dict[int, None] = {}  # Nodes that have heard of decisions, and are still busy with them.
        self._disks: dict[int, int] = {}
        self._was_clean: dict[int, bool] = {}

    def directory(self, node: NodeId) -> DirectoryId:
        return DirectoryId(bytes([node, 1]) * 8)

    def roles(self, node: NodeId) -> tuple[str, ...]:
        return (records.BROKER, records.CONTROLLER) if node in self.voters else (records.BROKER,)

    def start(self, *numbers: int) -> None:
        for number in numbers or tuple(self.addresses):
            self.nodes.pop(number, None)
            self.world.start(f"node-{number}", lambda env, number=number: self._live(env, number))  # type: ignore[misc]

    def start_and_wait(self) -> None:
        self.start()
        self.until(lambda: all(self.is_let_in(number) for number in self.addresses))

    async def _live(self, env: SimEnv, number: int) -> None:
        self.nodes[number] = Councillor(env, self, number, self._disks.get(number, 1))
        await self.nodes[number].live(was_stopped_cleanly=self._was_clean.pop(number, False))
        self._was_clean[number] = True

    def kill(self, number: int) -> None:
        self.world.kill(f"node-{number}")

    def stop(self, number: int, within: float = 30.0) -> None:
        self.world.terminate(f"node-{number}")
        self.world.run_until(lambda: self.world.has_ended(f"node-{number}"), within)

    def new_disk(self, number: int) -> None:
        self.world.replace_disk(f"node-{number}")
        self._disks[number] = self._disks.get(number, 1) + 1

    # Looking on.

    def is_up(self, number: int) -> bool:
        return self.world.is_running(f"node-{number}") and number in self.nodes

    def leader(self) -> int | None:
        """Of those that run, who leads in the highest term."""
        leading = [(node.quorum.term, number) for number, node in self.nodes.items() if self.is_up(number) and _leads(node)]
        return max(leading)[1] if leading else None

    def state(self, number: int) -> NodeState | None:
        """As the controller has it, if there is one."""
        leader = self.leader()
        return None if leader is None else self.nodes[leader].image.nodes.get(NodeId(number))

    def is_let_in(self, number: int) -> bool:
        """In the life that it lives now."""
        state = self.state(number)
        is_this_life = state is not None and self.is_up(number) and state.node_epoch == self.nodes[number].membership.node_epoch
        return state is not None and is_this_life and not state.is_fenced

    def is_fenced(self, number: int) -> bool:
        state = self.state(number)
        return state is not None and state.is_fenced

    def other_than(self, *numbers: int | None) -> int:
        return next(number for number in self.addresses if number not in numbers and self.is_up(number))

    def partition(self, topic: str = "orders", index: int = 0) -> PartitionState:
        leader = self.leader()
        assert leader is not None
        return self.nodes[leader].image.topics[topic].partitions[index]

    def until(self, claim: Callable[[], bool], within: float = 30.0) -> float:
        """Runs until it holds; how long that took."""
        began = self.world.now()
        self.world.run_until(claim, within)
        return self.world.now() - began

    # Doing.

    def call(self, number: int, work: Callable[[Councillor], Coroutine[Any, Any, T]], within: float = 60.0) -> T:
        return self.world.call(f"node-{number}", lambda env: work(self.nodes[number]), within)

    def begin(self, number: int, work: Callable[[Councillor], Coroutine[Any, Any, T]]) -> "asyncio.Task[T]":
        process = self.world.hosts[f"node-{number}"].process
        assert process is not None
        return self.world.loop.create_task(work(self.nodes[number]), context=process.context.copy())

    def submit(self, number: int, command: Command) -> tuple[Reply, ...]:
        return self.call(number, lambda node: node.submit(command))

    def create(self, number: int, topic: str = "orders", partitions: int = 3, replicas: int = 3) -> tuple[Reply, ...]:
        topic_id = TopicId(self.world.rng.randbytes(16))
        return self.submit(number, CreateTopics((NewTopic(topic, topic_id, partitions, replicas),)))

    def __enter__(self) -> "Council":
        return self

    def __exit__(self, *exc: object) -> None:
        self.world.close()
        if exc[0] is None:
            assert self.world.complaints() == []


def _leads(node: Councillor) -> bool:
    return hasattr(node, "quorum") and node.quorum.is_leading
