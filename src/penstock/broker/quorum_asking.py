"""Orders to a core, and whoever waits for what comes of them: each is answered once, or told that nobody will ever know."""

import asyncio
from collections.abc import Callable
from typing import assert_never

from penstock.consensus.effects import Answer, Done, Outcome, Reason, Refused, Unknown
from penstock.consensus.events import Event, Order
from penstock.vocabulary import NodeId, Offset

_ELSEWHERE = (Reason.NOT_LEADER, Reason.NOT_READY, Reason.TRANSFERRING, Reason.OVERLOADED)


class NotLeading(Exception):
    """Nothing was done: another node decides, or nobody for now."""

    def __init__(self, leader: NodeId | None) -> None:
        super().__init__("this node does not lead the metadata quorum" if leader is None else f"node {leader} leads the metadata quorum")
        self.leader = leader


class CommitUnknown(Exception):
    """It may or may not be done."""


class OrderRefused(Exception):
    """It was not done, for a reason that stays the same if it is asked for again at once."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Asking:
    def __init__(self, step: Callable[[Event], None]) -> None:
        self._step = step
        self._waiting: dict[asyncio.Future[Outcome], None] = {}

    async def done(self, make: Callable[[object], Order]) -> Offset:
        """Gives an order, with a token of its own, and returns where the log ended when it was done."""
        token: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[token] = None
        self._step(make(token))
        outcome = await token
        match outcome:
            case Done():
                return outcome.end
            case Unknown():
                raise CommitUnknown("leadership went before a majority had it")
            case Refused() if outcome.reason in _ELSEWHERE:
                raise NotLeading(outcome.leader if outcome.reason is Reason.NOT_LEADER else None)
            case Refused():
                raise OrderRefused(outcome.reason)
            case _:
                assert_never(outcome)

    def answer(self, answer: Answer) -> None:
        """An order without a token is nobody's."""
        token = answer.token
        if isinstance(token, asyncio.Future):
            self._waiting.pop(token, None)
            if not token.done():
                token.set_result(answer.outcome)

    def fail(self, failure: Exception) -> None:
        for token in self._waiting:
            if not token.done():
                token.set_exception(failure)
        self._waiting.clear()
