"""A few nodes in a virtual world that a test drives step by step: write, cut, stop, wait until something holds, read back.

Nodes are named by their numbers. Whatever was acknowledged to `produce` is noted; `check` reads everything back and compares, and looks
whether the replicas' disks agree. A call that a cluster cannot answer in time raises the failure that a client would see.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from penstock.broker.node import Node
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.connection import Address, Limits
from penstock.peers.failures import PeerFailure
from penstock.peers.fetching import FetchLimits, whole_batches
from penstock.peers.offsets import EARLIEST, LATEST
from penstock.peers.routing import ClientSettings
from penstock.settings import NodeSettings
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.clusters.menu import CLUSTER_ID, KAFKA_PORT, PEER_PORT, NodePlan
from penstock.simulator.clusters.recovering import is_available, missing
from penstock.simulator.clusters.replacing import Replacement
from penstock.simulator.clusters.watching import Watcher
from penstock.simulator.disk_faults import HONEST, DiskFaults
from penstock.simulator.env import SimEnv
from penstock.simulator.links import GOOD, LinkQuality
from penstock.simulator.loop import Stuck
from penstock.simulator.node_process import Reports
from penstock.simulator.platter import Loss
from penstock.simulator.workloads.line import Line, LineLost
from penstock.simulator.workloads.notebook import Notebook
from penstock.simulator.world import World
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, decode_records, encode_batch

T = TypeVar("T")
CLIENT = "client"
TOPIC = "orders"
ALL, LEADER_ONLY = -1, 1
BOTH = "broker,controller"
PATIENCE = ClientSettings(request_timeout_s=2.0, deadline_s=20.0, backoff_first_s=0.02, backoff_longest_s=0.2, limits=Limits(connect_s=1.0))


class Scene:
    def __init__(self, roles: tuple[str, ...] = (BOTH, BOTH, BOTH), *, seed: int = 1, late: tuple[int, ...] = (), **settings: Any) -> None:
        """`late`: nodes that the test itself starts for the first time."""
        self.late = late
        self.world = World(seed)
        self.cluster = Cluster(self.world, plans_of(roles, NodeSettings(**settings)))
        self.notebook = Notebook()
        self.watcher = Watcher(self.cluster, self.notebook)
        self.reports = Reports()
        self.promised: dict[TopicPartition, dict[int, bytes]] = {}  # What was acknowledged with acks all, by offset.
        self._client: Client | None = None
        self.reports.__enter__()

    def __enter__(self) -> "Scene":
        self.world.start(CLIENT, _wait_for_ever)
        first = [node for node in self.cluster.plans if node not in self.late]
        self.start(*first)
        if self.late:
            self.until(lambda: all(self.cluster.serves(self.host(node)) for node in first), 60.0)
        else:
            self.until_available()
        self.watcher.begin()
        return self

    def __exit__(self, *exc: object) -> None:
        self.world.close()
        self.reports.__exit__(None, None, None)
        if exc[0] is None:
            assert self.notebook.findings == [], self.notebook.findings
            assert [broken for process in self.cluster.processes.values() for broken in process.broken_promises] == []
            assert self.reports.failures == []
            assert self.world.complaints() == []

    # Nodes.

    def host(self, node: int) -> str:
        return self.cluster.host_of(node)

    def node(self, number: int) -> Node:
        node = self.cluster.node(self.host(number))
        assert node is not None, f"node {number} does not run"
        return node

    def start(self, *nodes: int) -> None:
        for node in nodes:
            self.cluster.start(self.host(node))

    def stop(self, node: int, within: float = 30.0) -> None:
        """In order, as by SIGTERM."""
        self.world.terminate(self.host(node))
        self.world.run_until(lambda: self.world.has_ended(self.host(node)), within=within)

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            self.world.kill(self.host(node))

    def power_cut(self, *nodes: int, loss: Loss = Loss.ALL) -> None:
        for node in nodes:
            self.world.power_cut(self.host(node), loss)

    def lose_disk(self, node: int, *, is_told: bool = True) -> None:
        """The node comes back with an empty disk, and is told, as it should be, that its cluster is there already."""
        self.cluster.lose_disk(self.host(node), is_told=is_told)
        if is_told:
            self.replace(node)

    def replace(self, node: int) -> None:
        """Gives the vote of the node's lost disk to its new one."""
        Replacement(self.cluster, self.host(node))

    def pause(self, node: int) -> None:
        self.world.pause(self.host(node))

    def resume(self, node: int) -> None:
        self.world.resume(self.host(node))

    def slow_disk(self, node: int, flush_seconds: float) -> None:
        """Every flush takes this long; 0 is as ever."""
        slow = DiskFaults(sync_seconds_min=flush_seconds, sync_seconds_max=flush_seconds)
        self.world.hosts[self.host(node)].disk.faults = slow if flush_seconds else HONEST

    # Links.

    def cut(self, one: int, *others: int, ways: str = "both") -> None:
        """The first does not hear the others, nor they it; one way, if only `in` or `out` is cut. No others: all other nodes."""
        here = self.host(one)
        for other in others or [node for node in self.cluster.plans if node != one]:
            there = self.host(other)
            if ways in ("both", "out"):
                self.world.network.cut(here, there)
            if ways in ("both", "in"):
                self.world.network.cut(there, here)

    def slow_link(self, one: int, other: int, delay_seconds: float) -> None:
        """What the first says to the other arrives so much later; 0 is as ever."""
        quality = LinkQuality(delay_seconds=delay_seconds) if delay_seconds else GOOD
        self.world.network.link(self.host(one), self.host(other)).quality = quality

    def cut_clients(self, node: int) -> None:
        self.world.network.partition([CLIENT], [self.host(node)])

    def heal(self) -> None:
        self.world.network.heal()

    # Time.

    def run_for(self, seconds: float) -> None:
        self.world.run_for(seconds)

    def until(self, claim: Callable[[], object], within: float = 30.0) -> None:
        self.world.run_until(lambda: bool(claim()), within=within)

    def until_available(self, within: float = 60.0) -> None:
        try:
            self.until(lambda: is_available(self.cluster), within)
        except Stuck:
            starts = [str(failure) for process in self.cluster.processes.values() for failure in process.failed_starts]
            raise AssertionError("; ".join([*missing(self.cluster), *starts, *self.reports.lines[-5:]])) from None

    # What is decided.

    def leader(self, topic: str = TOPIC, partition: int = 0) -> int | None:
        state = self.cluster.state(topic, partition)
        return None if state is None or state.leader < 0 else int(state.leader)

    def leads(self, topic: str = TOPIC, partition: int = 0) -> int:
        leader = self.leader(topic, partition)
        assert leader is not None, f"nobody leads {topic}-{partition}"
        return leader

    def followers(self, topic: str = TOPIC, partition: int = 0) -> list[int]:
        state = self.cluster.state(topic, partition)
        assert state is not None
        return [int(node) for node in state.replicas if node != state.leader]

    def in_sync(self, topic: str = TOPIC, partition: int = 0) -> set[int]:
        return {int(node) for node in self.cluster.in_sync(topic, partition)}

    def controller(self) -> int:
        host = self.cluster.controller()
        assert host is not None, "nobody decides"
        return self.cluster.processes[host].plan.node_id

    def lead(self, node: int, topic: str = TOPIC) -> None:
        """Lets this node lead partition 0, by ending the others' leads in order until it does."""
        for _ in range(10):
            leader = self.leads(topic)
            if leader == node:
                return
            self.kill(leader)
            self.until(lambda leader=leader: self.leader(topic) not in (None, leader))
            self.start(leader)
            self.until_available()
        raise AssertionError(f"node {node} does not come to lead")

    def elect_unclean(self, topic: str = TOPIC, partition: int = 0) -> str:
        """An operator's word: whoever is there leads, whatever that one lacks. What the answer says of it."""
        body = {"election_type": 1, "topic_partitions": [{"topic": topic, "partitions": [partition]}], "timeout_ms": 5_000}

        async def ask(client: Client) -> str:
            deadline = client.router.deadline(30.0)

            async def attempt() -> str:
                connection = await client.router.any_node(deadline)
                answer = await connection.call(ApiKey.ELECT_LEADERS, body, timeout_s=3.0)
                return str(answer.replica_election_results[0].partition_result[0].error_message)

            return await client.router.retry("elect a leader", deadline, attempt)

        return self.do(ask)

    # Clients.

    def do(self, work: Callable[[Client], Coroutine[Any, Any, T]], within: float = 60.0) -> T:
        return self.world.call(CLIENT, lambda env: self._with_client(env, work), within)

    def ask_at(self, node: int, api: ApiKey, version: int, body: dict[str, Any]) -> Any:
        """The answer of this very node, whether it is the one to ask or not."""
        return self.do(lambda client: self.asking(node, api, version, body))

    async def asking(self, node: int, api: ApiKey, version: int, body: dict[str, Any], patience: float = 10.0) -> Any:
        line = await Line.open(self.notebook, CLIENT, timeout_seconds=patience, address=Address(self.host(node), KAFKA_PORT))
        try:
            return await line.ask(api, version, body)
        finally:
            line.close()

    def begin(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> "asyncio.Task[T]":
        """Goes on while the test does other things."""
        host = self.world.hosts[CLIENT]
        assert host.env is not None and host.process is not None
        return self.world.loop.create_task(self._with_client(host.env, work), context=host.process.context.copy())

    async def _with_client(self, env: SimEnv, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        if self._client is None:
            addresses = [Address(host, KAFKA_PORT) for host in self.cluster.brokers]
            self._client = Client(env, addresses, client_id=CLIENT, settings=PATIENCE)
        return await work(self._client)

    def create(self, topic: str = TOPIC, *, partitions: int = 1, replicas: int = 3, **config: object) -> bytes:
        settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        view = self.do(lambda client: client.create_topic(topic, partitions=partitions, replication_factor=replicas, config=settings))
        self.until_available()
        return bytes(view.topic_id)

    def produce(
        self,
        *values: bytes,
        topic: str = TOPIC,
        partition: int = 0,
        acks: int = ALL,
        within: float = 20.0,
        producer: tuple[int, int] = (-1, -1),
    ) -> int:
        """Appends one batch; its offset. A producer is its id and the sequence of the batch."""
        batch = self.batch(*values, producer=producer)
        produced = self.do(lambda client: client.produce(topic, partition, batch, acks=acks, deadline_s=within), within + 10)
        if acks == ALL:
            self.note(TopicPartition(topic, partition), produced.base_offset, values)
        return produced.base_offset

    def note(self, where: TopicPartition, offset: int, values: tuple[bytes, ...]) -> None:
        """It was acknowledged: from now on it must stay."""
        for place, value in enumerate(values):
            self.promised.setdefault(where, {})[offset + place] = value

    def batch(self, *values: bytes, producer: tuple[int, int] = (-1, -1)) -> bytes:
        records = [Record(value=value, timestamp_ms=self.world.hosts[CLIENT].wall.ms()) for value in values]
        return bytes(encode_batch(records, producer_id=producer[0], producer_epoch=min(0, producer[0]), base_sequence=producer[1]))

    def produce_at(self, node: int, *values: bytes, topic: str = TOPIC, partition: int = 0, acks: int = ALL) -> int:
        """To this very node, leader or not; the error code of its answer. Raises `LineLost` if none comes."""
        return self.do(lambda client: self._ask_node(node, values, topic, partition, acks=acks))

    def begin_at(self, node: int, *values: bytes, topic: str = TOPIC, partition: int = 0, acks: int = ALL) -> "asyncio.Task[int]":
        """The same; the request waits at the node's door for as long as it must."""
        return self.begin(lambda client: self._ask_node(node, values, topic, partition, acks=acks, patience=120.0))

    async def _ask_node(self, node: int, values: tuple[bytes, ...], topic: str, partition: int, *, acks: int, patience: float = 3.0) -> int:
        row = {"index": partition, "records": self.batch(*values)}
        body = {"acks": acks, "timeout_ms": 1_500, "topic_data": [{"name": topic, "partition_data": [row]}]}
        answer = await self.asking(node, ApiKey.PRODUCE, 9, body, patience)
        return int(answer.responses[0].partition_responses[0].error_code)

    def end_offset(self, topic: str = TOPIC, partition: int = 0, within: float = 20.0) -> int:
        where = TopicPartition(topic, partition)
        return self.do(lambda client: client.list_offsets({where: LATEST}, deadline_s=within))[where].offset

    def read(self, topic: str = TOPIC, partition: int = 0) -> dict[int, bytes]:
        """Every value by its offset, as the leader serves it."""
        where = TopicPartition(topic, partition)

        async def read_all(client: Client) -> dict[int, bytes]:
            offset = (await client.list_offsets({where: EARLIEST}))[where].offset
            end = (await client.list_offsets({where: LATEST}))[where].offset
            found: dict[int, bytes] = {}
            while offset < end:
                row = await client.fetch(topic, partition, offset, limits=FetchLimits(wait_ms=0))
                for header, batch in whole_batches(row.records):
                    found |= {record.offset: record.value or b"" for record in decode_records(batch, bytes_max=1 << 24)}
                    offset = max(offset, header.end_offset)
            return found

        return self.do(read_all)

    def check(self) -> None:
        """Everything that was acknowledged is there, and all replicas have the same."""
        self.heal()
        for host in self.cluster.hosts:
            self.world.resume(host)
        self.cluster.start_all()
        self.until_available()
        for where, values in self.promised.items():
            found = self.read(where.topic, where.partition)
            lost = {offset: value for offset, value in values.items() if found.get(offset) != value}
            assert not lost, f"{where} lost {lost}"
        self.watcher.look()
        self.watcher.compare_logs()
        assert self.notebook.findings == [], self.notebook.findings


def plans_of(roles: tuple[str, ...], settings: NodeSettings) -> tuple[NodePlan, ...]:
    voters = ",".join(f"{number}@node-{number}:{PEER_PORT}" for number, role in enumerate(roles, 1) if "controller" in role)
    return tuple(
        NodePlan(
            number,
            f"node-{number}",
            replace(
                settings, node_id=number, process_roles=role, quorum_voters=voters, cluster_id=CLUSTER_ID,
                advertised_host=f"node-{number}", advertised_port=KAFKA_PORT, rack=f"rack-{number}",
            ),
        )
        for number, role in enumerate(roles, 1)
    )  # fmt: skip


def refused(work: Callable[[], object]) -> str:
    """The name of the refusal, or of what happened instead."""
    try:
        work()
    except (PeerFailure, LineLost) as failure:
        return str(failure)
    return ErrorCode.NONE.name


async def _wait_for_ever(env: SimEnv) -> None:
    await asyncio.sleep(1e9)
