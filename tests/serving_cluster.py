"""Several nodes of one cluster in one process, and lines to each of them.

On the simulator's loop (loops.py) they are in virtual time, in one process of the simulator: no stall of this machine fences a node or ends
a leader's term. On any other they have real loopback sockets and real files, and no session ends and no replica falls behind but where a
node is stopped, which is noticed by its connections; but a leader's term may end.
Not here: claims about what nodes should answer; nodes on hosts of their own, cuts and kills (clusters/scene.py); clusters of processes
(system/clusters.py).
"""

import asyncio
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

from ports import free_port
from serving import DoorEnv, Line, RealDoorEnv, VirtualMachine
from waiting import EXPIRES_S, NEVER_MS, PATIENCE_MS, until_async

from penstock.broker import membership
from penstock.broker.node import Node
from penstock.settings import NodeSettings
from penstock.simulator.knobs import replaced
from penstock.simulator.loop import SimLoop
from penstock.vocabulary import Address, NodeId
from penstock.wire.api_keys import ApiKey

SECRET = b"sixteen letters and some more"
HOST, FIRST_PEER_PORT, FIRST_KAFKA_PORT = "127.0.0.1", 9_093, 19_092


class ServingCluster:
    """Nodes 1, 2, 3 …, each with its roles; all of those with the role controller vote."""

    def __init__(self, roles: tuple[str, ...] = ("broker,controller",) * 3, **changes: Any) -> None:
        self._roles = dict(enumerate(roles, start=1))
        self._changes = {"offsets_topic_num_partitions": 2, "group_initial_rebalance_delay_ms": 0} | changes
        self._lines: list[Line] = []
        self._machines: dict[int, VirtualMachine] = {}
        self._directory: TemporaryDirectory[str] | None = None
        if isinstance(asyncio.get_running_loop(), SimLoop):
            self._peer_ports = {node_id: FIRST_PEER_PORT + node_id for node_id in self._roles}
            self._kafka_ports = {node_id: FIRST_KAFKA_PORT + node_id for node_id in self._roles}
        else:
            self._directory = TemporaryDirectory(prefix="penstock-cluster-")
            self._peer_ports, self._kafka_ports = ({node_id: free_port() for node_id in self._roles} for _ in range(2))
            self._changes = {"session_timeout_ms": NEVER_MS, "replica_lag_ms": NEVER_MS} | self._changes
        self._envs: dict[int, DoorEnv] = {}
        self.nodes: dict[int, Node] = {}

    async def open(self) -> None:
        for node_id in self._roles:
            await self._listen(node_id)
        await asyncio.gather(*(self._start(node_id) for node_id in self._roles))

    async def start(self, node_id: int) -> Node:
        await self._listen(node_id)
        await self._start(node_id)
        return self.nodes[node_id]

    async def stop(self, node_id: int) -> None:
        """In order: others lead first what it leads."""
        try:
            await self.nodes.pop(node_id).stop()
        finally:
            self._envs.pop(node_id).shut()

    async def close(self) -> None:
        for line in self._lines:
            line.close()
        running = list(self.nodes)
        with replaced([(membership, "ASKING_TO_STOP_SECONDS", EXPIRES_S)]):  # The last ones would wait in vain for a majority.
            await asyncio.gather(*(self.stop(node_id) for node_id in running))
        if self._directory is not None:
            self._directory.cleanup()

    async def line(self, node_id: int) -> Line:
        line = await Line.open((HOST, self._kafka_ports[node_id]))
        self._lines.append(line)
        return line

    async def controller(self) -> int:
        """The node that leads the quorum; waits while none does."""

        def leading() -> list[int]:
            return [node_id for node_id, node in self.nodes.items() if node.quorum.is_leading]

        return (await until_async(leading, "a node leads the quorum"))[0]

    async def until(self, holds: Callable[[Node], bool], *node_ids: int) -> None:
        """Until it holds on these nodes, or on all that run."""
        await until_async(lambda: all(holds(self.nodes[node_id]) for node_id in node_ids or list(self.nodes)))

    async def _listen(self, node_id: int) -> None:
        env = self._envs[node_id] = self._new_env(node_id)
        node = self.nodes[node_id] = Node(env, self._settings(node_id), secret=SECRET)
        port = self._peer_ports[node_id]
        await node.listen_peers(HOST, port, advertised=Address(HOST, port))

    def _new_env(self, node_id: int) -> DoorEnv:
        """The world of the node's next life."""
        if self._directory is not None:
            return RealDoorEnv(f"{self._directory.name}/{node_id}")
        if node_id not in self._machines:
            self._machines[node_id] = VirtualMachine(node_id)
        return self._machines[node_id].new_env()

    async def _start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        await node.start()
        if node.is_broker:
            await node.listen_kafka(HOST, self._kafka_ports[node_id])
            await self.until(lambda each: NodeId(node_id) in each.image.live_brokers())

    def _settings(self, node_id: int) -> NodeSettings:
        voters = ",".join(f"{each}@{HOST}:{self._peer_ports[each]}" for each, roles in self._roles.items() if "controller" in roles)
        return NodeSettings(
            node_id=node_id, cluster_id="served", quorum_voters=voters, process_roles=self._roles[node_id],
            rack=f"rack-{node_id}", advertised_host=HOST, advertised_port=self._kafka_ports[node_id], **self._changes,
        )  # fmt: skip


async def create(line: Line, topic: str, *replicas: tuple[int, ...], **configs: str) -> None:
    """A topic whose partitions lie as told."""
    assignments = [{"partition_index": index, "broker_ids": list(nodes)} for index, nodes in enumerate(replicas)]
    wish = {
        "name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": assignments,
        "configs": [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()],
    }  # fmt: skip
    answer = await line.ask(ApiKey.CREATE_TOPICS, topics=[wish], timeout_ms=PATIENCE_MS)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message
