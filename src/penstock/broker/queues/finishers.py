"""Those who finish messages of one partition in the same turn, and get parts of one answer."""

import asyncio
from collections.abc import Callable, Sequence

from penstock.broker.queues.refusals import NotHere, not_available, refusal_of
from penstock.errors import ErrorCode, Refusal
from penstock.queues.commands import Settlement, Verb
from penstock.queues.replies import Fault, Outcome, Settled

Heard = asyncio.Future[tuple[Outcome, ...]]

_DONE = Verb.DONE
_new_tuple = tuple.__new__  # Half the cost of calling a named tuple's class.


class Finishers:
    """They hear once it is durable that their messages are done."""

    __slots__ = ("_callers", "_submit", "group", "items")

    def __init__(self, group: str, submit: "Callable[[Finishers], None]") -> None:
        self.group = group
        self._submit = submit
        self.items: list[Settlement] = []
        self._callers: list[tuple[Heard, int]] = []  # And where their items end.

    def add(self, deliveries: Sequence[tuple[int, int]]) -> Heard:
        heard: Heard = asyncio.get_running_loop().create_future()
        self._add([_new_tuple(Settlement, (offset, lease, _DONE, None, "", "", 0)) for offset, lease in deliveries], heard)
        return heard

    def _add(self, items: list[Settlement], heard: Heard) -> None:
        self.items += items
        self._callers.append((heard, len(self.items)))

    def answered(self, reply: Settled) -> None:
        if reply.fault is not Fault.NONE:
            if len(self._callers) > 1:
                self._one_by_one()
            else:
                self._refuse(lambda: refusal_of(reply.fault))
            return
        at, outcomes = 0, reply.outcomes
        for heard, end in self._callers:
            if not heard.done():
                heard.set_result(outcomes[at:end])
            at = end

    def _one_by_one(self) -> None:
        """Nothing of it was done, and it may have been the fault of any of them."""
        at = 0
        for heard, end in self._callers:
            if not heard.done():
                alone = Finishers(self.group, self._submit)
                alone._add(self.items[at:end], heard)
                self._submit(alone)
            at = end

    def refused(self, code: ErrorCode, reason: str) -> None:
        self._refuse(lambda: not_available(Refusal(code, reason)))

    def not_here(self) -> None:
        self._refuse(NotHere)

    def _refuse(self, why: Callable[[], Exception]) -> None:
        for heard, _ in self._callers:
            if not heard.done():
                heard.set_exception(why())
