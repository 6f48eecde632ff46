"""The open connections of a client, and the addresses of the nodes.

A connection is kept per address and lane. Lanes keep what may wait long (a fetch that parks at the node) out of the way of what may not:
a node answers one connection's requests in their order. Several callers who want the same connection share one attempt to make it.
Not here: what is asked over them, and when to try again.
"""

import asyncio
import math
from collections.abc import Iterable, Sequence

from penstock.peers.connection import Address, Connection, Limits
from penstock.peers.failures import PeerFailure, Unreachable
from penstock.peers.patience import ClientEnv, Deadline
from penstock.peers.topics import NodeView

CALLS = "calls"  # The lane of everything that is answered soon.

_CLOSED = "the client was closed"

_Key = tuple[Address, str]


class Switchboard:
    def __init__(self, env: ClientEnv, bootstrap: Sequence[Address], *, client_id: str, limits: Limits) -> None:
        self._env = env
        self._bootstrap = tuple(bootstrap)
        self._client_id = client_id
        self._limits = limits
        self._nodes: dict[int, Address] = {}
        self._connections: dict[_Key, Connection] = {}
        self._openings: dict[_Key, asyncio.Task[Connection]] = {}
        self._is_closed = False

    def learn(self, nodes: Iterable[NodeView]) -> None:
        """The nodes of today. One that is gone keeps no address."""
        self._nodes = {node.node_id: node.address for node in nodes}

    async def to_node(self, node_id: int, deadline: Deadline, *, lane: str = CALLS) -> Connection:
        address = self._nodes.get(node_id)
        if address is None:
            raise Unreachable(f"node {node_id} is not listed by the others", "start it, or wait until another node leads in its place")
        return await self._connect(address, lane, deadline)

    async def to_any(self, deadline: Deadline, *, rather_not: Address | None = None) -> Connection:
        """A connection that is open already, or to the first node that answers; known nodes are tried before the bootstrap addresses.

        `rather_not` is asked only when nobody else can be. One that does not answer leaves the others their share of the time.
        """
        for (address, lane), connection in self._connections.items():
            if lane == CALLS and connection.is_open and address != rather_not:
                return connection
        reasons = []
        candidates = sorted(self._candidates(), key=lambda candidate: candidate == rather_not)
        for place, address in enumerate(candidates):
            try:
                return await self._connect(address, CALLS, deadline, deadline.left_s() / (len(candidates) - place))
            except Unreachable as failure:
                reasons.append(failure.problem)
            if deadline.left_s() <= 0:
                break
        where = "any bootstrap address" if not self._nodes else "any node"
        raise Unreachable(
            f"cannot connect to {where}: {'; '.join(reasons)}",
            "check that a node is running, and that the address is the one it listens on",
        )

    def close_lane(self, lane: str) -> None:
        for key in [key for key in self._connections if key[1] == lane]:
            self._connections.pop(key).close()
        for key in [key for key in self._openings if key[1] == lane]:
            self._openings.pop(key).cancel()

    async def close(self) -> None:
        self._is_closed = True
        for lane in dict.fromkeys(lane for _, lane in [*self._connections, *self._openings]):
            self.close_lane(lane)
        await asyncio.sleep(0)  # The transports take their leave on the loop's next turn.

    def _candidates(self) -> list[Address]:
        """Each once, the known nodes from a random one on: not every client should knock at the same door first."""
        known = list(self._nodes.values())
        first = self._env.rng.randrange(len(known)) if known else 0
        return list(dict.fromkeys([*known[first:], *known[:first], *self._bootstrap]))

    async def _connect(self, address: Address, lane: str, deadline: Deadline, longest_s: float = math.inf) -> Connection:
        key = (address, lane)
        connection = self._connections.get(key)
        if connection is not None and connection.is_open:
            return connection
        if self._is_closed:
            raise PeerFailure(_CLOSED)
        opening = self._openings.get(key)
        if opening is None:
            opening = self._openings[key] = asyncio.get_running_loop().create_task(self._open(key))
            opening.add_done_callback(_note_failure)
        try:
            async with asyncio.timeout(deadline.cut(min(self._limits.connect_s, longest_s))):
                return await asyncio.shield(opening)  # Others may wait for it too.
        except TimeoutError:
            raise Unreachable(f"{address} did not answer in time") from None
        except asyncio.CancelledError:
            if opening.cancelled() and not _is_cancelled_itself():
                raise PeerFailure(_CLOSED) from None
            raise

    async def _open(self, key: _Key) -> Connection:
        try:
            connection = await Connection.open(key[0], client_id=self._client_id, limits=self._limits)
        finally:
            if self._openings.get(key) is asyncio.current_task():
                del self._openings[key]
        self._connections[key] = connection
        return connection


def _note_failure(opening: asyncio.Task[Connection]) -> None:
    """Counts as seen: whoever wanted the connection may have given up before it failed."""
    if not opening.cancelled():
        opening.exception()


def _is_cancelled_itself() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
