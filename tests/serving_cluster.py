"""Several nodes of one cluster in this process, on real loopback sockets, and lines to each of them.

Times are short, so that a node which is dropped is missed soon. Not here: claims about what nodes should answer; clusters in virtual time
(the simulator's), of processes (system/clusters.py).
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ports import free_port
from serving import DoorEnv, Line

from penstock.broker import membership
from penstock.broker.node import Node
from penstock.settings import NodeSettings
from penstock.simulator.knobs import replaced
from penstock.vocabulary import Address, NodeId
from penstock.wire.api_keys import ApiKey

SECRET = b"sixteen letters and some more"
PATIENCE_SECONDS = 20.0
QUICK = {
    "heartbeat_interval_ms": 50, "session_timeout_ms": 600, "election_timeout_ms": 300, "quorum_heartbeat_ms": 60,
    "offsets_topic_num_partitions": 2, "group_initial_rebalance_delay_ms": 0,
}  # fmt: skip


class ServingCluster:
    """Nodes 1, 2, 3 …, each with its roles; all of those with the role controller vote."""

    def __init__(self, directory: Path, roles: tuple[str, ...] = ("broker,controller",) * 3, **changes: Any) -> None:
        self._directory = directory
        self._roles = dict(enumerate(roles, start=1))
        self._changes = QUICK | changes
        self._peers = {node_id: free_port() for node_id in self._roles}
        self._kafka = {node_id: free_port() for node_id in self._roles}
        self._lines: list[Line] = []
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

    async def add(self, node_id: int, roles: str) -> Node:
        """One more node than there were."""
        self._roles[node_id] = roles
        self._peers[node_id], self._kafka[node_id] = free_port(), free_port()
        return await self.start(node_id)

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
        with replaced([(membership, "ASKING_TO_STOP_SECONDS", 0.1)]):  # The last ones would wait in vain for a majority.
            await asyncio.gather(*(self.stop(node_id) for node_id in running))

    async def line(self, node_id: int) -> Line:
        line = await Line.open(("127.0.0.1", self._kafka[node_id]))
        line.patience_seconds = PATIENCE_SECONDS
        self._lines.append(line)
        return line

    def peers_address(self, node_id: int) -> tuple[str, int]:
        """Where the node listens for the others."""
        return "127.0.0.1", self._peers[node_id]

    @property
    def controller(self) -> int:
        return next(node_id for node_id, node in self.nodes.items() if node.quorum.is_leading)

    async def until(self, holds: Callable[[Node], bool], *node_ids: int) -> None:
        """Until it holds on these nodes, or on all that run."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all(holds(self.nodes[node_id]) for node_id in node_ids or list(self.nodes)):
                await asyncio.sleep(0.02)

    def settings(self, node_id: int) -> NodeSettings:
        voters = ",".join(f"{each}@127.0.0.1:{port}" for each, port in self._peers.items() if "controller" in self._roles[each])
        return NodeSettings(
            node_id=node_id, cluster_id="served", quorum_voters=voters, process_roles=self._roles[node_id],
            rack=f"rack-{node_id}", advertised_host="127.0.0.1", advertised_port=self._kafka[node_id], **self._changes,
        )  # fmt: skip

    async def _listen(self, node_id: int) -> None:
        env = self._envs[node_id] = DoorEnv(str(self._directory / f"node-{node_id}"))
        node = self.nodes[node_id] = Node(env, self.settings(node_id), secret=SECRET)
        await node.listen_peers("127.0.0.1", self._peers[node_id], advertised=Address("127.0.0.1", self._peers[node_id]))

    async def _start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        async with asyncio.timeout(PATIENCE_SECONDS):
            await node.start()
            if node.is_broker:
                await node.listen_kafka("127.0.0.1", self._kafka[node_id])
                await self.until(lambda each: NodeId(node_id) in each.image.live_brokers(), node_id)


async def create(line: Line, topic: str, *replicas: tuple[int, ...], **configs: str) -> None:
    """A topic whose partitions lie as told."""
    assignments = [{"partition_index": index, "broker_ids": list(nodes)} for index, nodes in enumerate(replicas)]
    wish = {
        "name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": assignments,
        "configs": [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()],
    }  # fmt: skip
    answer = await line.ask(ApiKey.CREATE_TOPICS, topics=[wish], timeout_ms=10_000)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message
