"""Asking the node that coordinates a group or a transactional id; one that moved, or is still loading, is looked for again.

Who coordinates is remembered until an answer says otherwise, or none comes.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, TypeVar

from penstock.peers.connection import Connection
from penstock.peers.failures import BadAnswer, PeerFailure, Unreachable, check_code
from penstock.peers.patience import Deadline
from penstock.peers.routing import Router
from penstock.wire.api_keys import ApiKey

T = TypeVar("T")

Ask = Callable[[Connection, int], Awaitable[T]]  # Over this connection, to the node with this id.


class Coordinates(IntEnum):
    """What a coordinator is asked about, by Kafka's numbers."""

    GROUP = 0
    TRANSACTIONS = 1


_WORDS = {Coordinates.GROUP: "group", Coordinates.TRANSACTIONS: "transactional id"}


class Coordinator:
    """Whoever coordinates one group, or one transactional id. `known` is the node that is tried first."""

    def __init__(self, router: Router, kind: Coordinates, key: str, *, known: int | None = None) -> None:
        self.key = key
        self._router = router
        self._kind = kind
        self._known = known

    async def ask(self, what: str, deadline: Deadline, ask: Ask[T]) -> T:
        return await self._router.retry(what, deadline, lambda: self.ask_once(deadline, ask))

    async def ask_once(self, deadline: Deadline, ask: Ask[T]) -> T:
        try:
            node_id = self._known if self._known is not None else await self._find(deadline)
            answer = await ask(await self._connect(node_id, deadline), node_id)
        except PeerFailure:
            self._known = None
            raise
        self._known = node_id
        return answer

    async def _connect(self, node_id: int, deadline: Deadline) -> Connection:
        return await connect(self._router, node_id, deadline)

    async def _find(self, deadline: Deadline) -> int:
        what = f"find the coordinator of {_WORDS[self._kind]} {self.key!r}"
        connection = await self._router.any_node(deadline)
        body = {"key": self.key, "key_type": int(self._kind), "coordinator_keys": [self.key]}
        answer = await connection.call(ApiKey.FIND_COORDINATOR, body, timeout_s=self._router.timeouts(deadline).whole_s)
        row = only(answer.coordinators, what) if hasattr(answer, "coordinators") else answer
        check_code(row.error_code, what, getattr(row, "error_message", None))
        return int(row.node_id)


async def connect(router: Router, node_id: int, deadline: Deadline) -> Connection:
    """To a node that an answer named."""
    try:
        return await router.switchboard.to_node(node_id, deadline)
    except Unreachable:  # Perhaps nobody has asked yet where the nodes are.
        await router.refresh((), deadline)
        return await router.switchboard.to_node(node_id, deadline)


async def find_all(router: Router, kind: Coordinates, keys: Sequence[str], deadline: Deadline) -> dict[int, list[str]]:
    """Who coordinates each of them, by node: one question where the node takes many at a time. One try."""
    found: dict[int, list[str]] = {}
    asked = list(keys)
    while asked:
        connection = await router.any_node(deadline)
        body = {"key": asked[0], "key_type": int(kind), "coordinator_keys": asked}
        answer = await connection.call(ApiKey.FIND_COORDINATOR, body, timeout_s=router.timeouts(deadline).whole_s)
        rows = [(str(row.key), row) for row in answer.coordinators] if hasattr(answer, "coordinators") else [(asked[0], answer)]
        for key, row in rows:
            check_code(row.error_code, f"find the coordinator of {_WORDS[kind]} {key!r}", getattr(row, "error_message", None))
            found.setdefault(int(row.node_id), []).append(key)
        answered = {key for key, _ in rows}
        if answered.isdisjoint(asked):
            raise BadAnswer(f"find the coordinators of {len(asked)} keys: the node answered about others")
        asked = [key for key in asked if key not in answered]
    return found


def only(rows: Iterable[Any], what: str) -> Any:
    found = list(rows)
    if len(found) != 1:
        raise BadAnswer(f"{what}: the node answered about {len(found)} instead of one")
    return found[0]
