"""Nodes that only talk: a door and links for each, in a virtual world or on real sockets, and a caller that says what bytes it likes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.consensus.nouns import DirectoryId
from penstock.env import Env
from penstock.links.channel import DEADLINES, Deadlines
from penstock.links.door import Asked, Door
from penstock.links.frames import LENGTH
from penstock.links.handshake import Introduction
from penstock.links.kinds import Kind
from penstock.links.links import Links
from penstock.simulator.env import SimEnv
from penstock.simulator.links import GOOD, LinkQuality
from penstock.simulator.world import World
from penstock.vocabulary import Address, NodeId

T = TypeVar("T")
SECRET = b"the secret of these tests"
CLUSTER = "cluster-of-tests"
PORT = 9093
ANSWERED_S = 10.0  # Of virtual time: how long a question at a table may take, through all that is planted in its way.
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def introduction(node: NodeId, *, cluster: str = CLUSTER) -> Introduction:
    return Introduction(cluster, node, DirectoryId(bytes([node]) * 16))


class Party:
    """One node. It echoes what it is asked as a SUBMIT, keeps what it is asked as a HEARTBEAT, and writes down what it is told."""

    def __init__(
        self, env: Env, me: Introduction, addresses: dict[NodeId, Address], *, secret: bytes = SECRET, deadlines: Deadlines = DEADLINES,
        **bounds: Any,
    ) -> None:  # fmt: skip
        self.reports: list[str] = []
        self.told: list[tuple[NodeId, bytes]] = []
        self.kept: list[Asked] = []
        self.lost: list[NodeId] = []
        self.callers_lost: list[NodeId] = []
        self.links = Links(env, me, secret, address_of=addresses.get, report=self.reports.append, deadlines=deadlines, **bounds)
        self.links.on_contact_lost = self.lost.append
        self.door = Door(env, me, secret, report=self.reports.append, deadlines=deadlines)
        self.door.on_contact_lost = self.callers_lost.append
        self.door.told[Kind.RAFT] = lambda node, body: self.told.append((node, bytes(body)))
        self.door.asked[Kind.SUBMIT] = lambda asked: asked.answer([b"echo ", asked.body])
        self.door.asked[Kind.REPLICA_FETCH] = lambda asked: asked.answer([b"echo ", asked.body])
        self.door.asked[Kind.HEARTBEAT] = self.kept.append

    def said(self) -> list[bytes]:
        return [body for _, body in self.told]


class Table:
    """Nodes 1 and up of one virtual world."""

    def __init__(self, nodes: int = 2, *, seed: int = 1, quality: LinkQuality = GOOD) -> None:
        self.world = World(seed, link_quality=quality)
        self.addresses = {NodeId(n): Address(f"node-{n}", PORT) for n in range(1, nodes + 1)}
        self.parties: dict[NodeId, Party] = {}
        for n in range(1, nodes + 1):
            self.start(NodeId(n))

    def start(self, node: NodeId, me: Introduction | None = None, **options: Any) -> Party:
        async def life(env: SimEnv) -> None:
            party = self.parties[node] = Party(env, me or introduction(node), self.addresses, **options)
            server = await asyncio.get_running_loop().create_server(party.door, f"node-{node}", PORT)
            await server.serve_forever()

        self.world.start(f"node-{node}", life)
        self.world.run_for(0.01)
        return self.parties[node]

    def ask(self, asker: NodeId, asked: NodeId, body: bytes, *, kind: Kind = Kind.SUBMIT, timeout_s: float = ANSWERED_S) -> bytes:
        links = self.parties[asker].links

        async def work(env: SimEnv) -> bytes:
            return bytes(await links.ask(asked, kind, body, timeout_s=timeout_s))

        return self.world.call(f"node-{asker}", work)

    def begin(self, asker: NodeId, work: Callable[[Links], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Something that goes on while the test does other things."""
        process = self.world.hosts[f"node-{asker}"].process
        assert process is not None
        return self.world.loop.create_task(work(self.parties[asker].links), context=process.context.copy())

    def tell(self, teller: NodeId, told: NodeId, body: bytes) -> None:
        async def work(env: SimEnv) -> None:
            self.parties[teller].links.tell(told, Kind.RAFT, body)

        self.world.call(f"node-{teller}", work)

    def dial(self, caller: str, called: NodeId, *, settle_s: float = 0.1) -> "Stranger":
        """A connection to a node's door, of somebody who says what they like."""
        stranger = Stranger()

        async def life(env: SimEnv) -> None:
            await asyncio.get_running_loop().create_connection(lambda: stranger, *self.addresses[called])
            await asyncio.get_running_loop().create_future()

        self.world.start(caller, life)
        self.world.run_for(settle_s)
        return stranger

    def __enter__(self) -> "Table":
        return self

    def __exit__(self, *exc: object) -> None:
        self.world.close()
        if exc[0] is None:
            assert self.world.complaints() == []


class Stranger(asyncio.Protocol):
    """Writes any bytes, and cuts what comes back into messages."""

    def __init__(self) -> None:
        self.received = b""
        self.is_closed = False
        self._transport: asyncio.Transport | None = None

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "nobody answered"
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True

    def say(self, message: bytes) -> None:
        self.transport.write(LENGTH.pack(len(message)) + message)

    def heard(self) -> list[bytes]:
        messages, at = [], 0
        while at < len(self.received):
            end = at + LENGTH.size + LENGTH.unpack_from(self.received, at)[0]
            messages.append(self.received[at + LENGTH.size : end])
            at = end
        return messages
