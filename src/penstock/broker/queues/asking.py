"""Calls to the leader of a queue's partition, wherever that is: on this node straight, on another over a link.

A leader that is not there, or is loading, is looked for again for some seconds. A call that may have been carried out without our hearing
of it is repeated only where that does no harm; otherwise whoever asked hears that nobody knows. A call that nobody waits for any more is
taken back, so that nothing is lent to those who have left; an answer that was on its way by then is heard out, and what it lends goes back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.broker.queues.calls import Code, QueueRefusal
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.refusals import NotHere
from penstock.errors import DiskFailed, MalformedInput
from penstock.links.failures import LinkFailure
from penstock.links.kinds import Kind
from penstock.links.queue_calls import NOT_HERE, QueueAnswer, QueueCall, read_answer, write_call, write_over
from penstock.vocabulary import NO_NODE, NodeId, TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node

T = TypeVar("T")

LOOKED_FOR_SECONDS = 5.0  # For a leader that answers: an election takes about one.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.01, 0.25
ANSWER_SECONDS = 15.0  # Of a call that waits for nothing but disks.


class Place(NamedTuple):
    """One partition of a queue."""

    topic_id: TopicId
    partition: int


class Question(NamedTuple):
    """A call as another node is asked it, and how its answer is read."""

    operation: str
    fields: dict[str, Any]
    read: Callable[[QueueAnswer], Any]
    blobs: Sequence[bytes | None] = ()
    left_s: Callable[[], float] | None = None  # How long the answer may wait for something to happen: less with each try.
    is_repeatable: bool = True
    unheard: Callable[[QueueAnswer], None] | None = None  # What to do with an answer for which nobody waits any more.


class Asking:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._last_number = 0

    def leader_of(self, place: Place) -> int:
        state = self._node.image.partition(*place)
        if state is None:
            raise QueueRefusal(Code.NO_SUCH_QUEUE, "the queue was deleted")
        return state.leader

    def here(self, place: Place) -> QueuePartition | None:
        """The partition, where this node leads it and its ledger answers."""
        queue = self._node.ledgers.find(*place)
        return queue if queue is not None and queue.coordinator.state is not None else None

    async def ask(
        self, place: Place, here: Callable[[QueuePartition], Awaitable[T]], there: Question, *, looked_for_s: float = LOOKED_FOR_SECONDS
    ) -> T:
        """Raises QueueRefusal."""
        env, pause_s = self._node.env, PAUSE_SECONDS_MIN
        ends = env.now() + looked_for_s
        while True:
            try:
                return await self._try(place, here, there)
            except NotHere:
                reason = "nobody leads it now, or its ledger is being loaded"
            except DiskFailed as failure:
                raise not_readable(failure) from None
            except LinkFailure as failure:
                reason = str(failure)
                if failure.may_have_happened and not there.is_repeatable:
                    raise _nobody_knows(failure) from None
            if env.now() + pause_s > ends or self._node.health().reason == "stopping":
                raise QueueRefusal(Code.NOT_AVAILABLE, f"partition {place.partition} of the queue cannot be reached: {reason}; ask again")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_SECONDS_MAX)

    async def _try(self, place: Place, here: Callable[[QueuePartition], Awaitable[T]], there: Question) -> T:
        leader = self.leader_of(place)
        if leader == self._node.settings.node_id:
            queue = self.here(place)
            if queue is None:
                raise NotHere
            return await here(queue)
        if leader == NO_NODE or self._node.links is None:
            raise NotHere
        answer = await self._ask_other(NodeId(leader), place, there)
        if answer.code == NOT_HERE:
            raise NotHere
        try:
            if answer.code:
                raise QueueRefusal(Code(answer.code), answer.words)
            result: T = there.read(answer)
            return result
        except (TypeError, ValueError, KeyError) as wrong:
            raise QueueRefusal(Code.NOT_AVAILABLE, f"the answer of node {leader} is not what it should be: {wrong}") from None

    async def _ask_other(self, leader: NodeId, place: Place, question: Question) -> QueueAnswer:
        links = self._node.links
        assert links is not None
        self._last_number += 1
        number, fields, wait_s = self._last_number, question.fields, 0.0
        if question.left_s is not None:
            wait_s = question.left_s()
            fields = {**fields, "wait_s": wait_s}
        call = QueueCall(question.operation, place.topic_id, place.partition, number, fields, question.blobs)
        asking = links.ask(leader, Kind.QUEUE_CALL, write_call(call), timeout_s=ANSWER_SECONDS + wait_s)
        if question.unheard is None:
            return _read(await asking)
        hearing = asyncio.ensure_future(asking)
        try:
            return _read(await asyncio.shield(hearing))
        except asyncio.CancelledError:
            links.tell(leader, Kind.QUEUE_CALL_OVER, write_over(number))
            self._node.spawn(_hear_out(hearing, question.unheard))
            raise


async def _hear_out(hearing: "asyncio.Future[memoryview]", unheard: Callable[[QueueAnswer], None]) -> None:
    """The answer that crossed our word that nobody waits; if it did not, the other node says so at once."""
    with suppress(LinkFailure, QueueRefusal):
        unheard(_read(await hearing))


def _read(answer: memoryview) -> QueueAnswer:
    try:
        return read_answer(answer)
    except MalformedInput as wrong:
        raise QueueRefusal(Code.NOT_AVAILABLE, str(wrong)) from None


def not_readable(failure: DiskFailed) -> QueueRefusal:
    return QueueRefusal(Code.NOT_AVAILABLE, f"the queue's log cannot be read: {failure}")


def _nobody_knows(failure: LinkFailure) -> QueueRefusal:
    return QueueRefusal(Code.NOT_AVAILABLE, f"the queue's leader did not answer ({failure}): it may have been done, or not")
