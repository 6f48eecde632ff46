"""A delivery that nobody saw does not count, and one that somebody saw does: whoever hangs up, asks again, or comes too late.

A worker that asks again with the same attempt id has the same leases as its first question, whose answer was lost. Giving that answer back
must not take the messages from the worker: they would be given to another one as the same attempt, once more than the queue allows.
"""

import asyncio
from typing import Any

import pytest
from broker.queues.test_queue_life import QUEUE, opened, sent, settled
from serving import Serving, patient_s
from waiting import until_async

from penstock.broker.queues.calls import QUEUE_GROUP, Lent, Outcome, Verb
from penstock.errors import ErrorCode
from penstock.queues.commands import Resume

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("queues.undo-only-undelivered")


class Told:
    """Does something as soon as it hears."""

    def __init__(self, deed: Any) -> None:
        self._deed = deed

    def answered(self, _: Any) -> None:
        self._deed()

    def refused(self, code: ErrorCode, reason: str) -> None:
        raise AssertionError(reason)


async def taken_again(serving: Serving, *, attempt_id: str) -> tuple["asyncio.Future[list[Lent]]", "asyncio.Future[list[Lent]]"]:
    """Two takes by the same worker, both of which wait for the lease to be durable."""
    queues = serving.node.queues
    serving.env.disk.flushes.hold()
    first = asyncio.ensure_future(queues.take(QUEUE, 5, attempt_id=attempt_id))
    await serving.env.disk.flushes.until_waited_for()
    ledger = serving.node.ledgers.find(queues.describe(QUEUE).topic_id, 0)
    assert ledger is not None
    decided_before = ledger.companion.log.end_offset
    second = asyncio.ensure_future(queues.take(QUEUE, 5, attempt_id=attempt_id))
    await until_async(lambda: ledger.companion.log.end_offset > decided_before)
    return first, second


async def test_a_worker_that_asked_again_keeps_what_its_lost_answer_gives_back(serving: Serving) -> None:
    queues = await opened(serving, queue_backoff_min_ms="0")
    await sent(queues, b"one", b"two")
    lost, again = await taken_again(serving, attempt_id="same")
    lost.cancel()
    serving.env.disk.flushes.let_go()
    lent = await again
    assert [each.attempt for each in lent] == [1, 1]
    assert await queues.take(QUEUE, 5) == [], "nobody else has them"
    assert await settled(queues, Verb.RELEASE, *lent, delay_ms=0) == [Outcome.OK, Outcome.OK]
    assert [each.attempt for each in await queues.take(QUEUE, 5)] == [2, 2]


async def test_nobody_keeps_what_neither_of_two_askers_waits_for(serving: Serving) -> None:
    queues = await opened(serving, queue_backoff_min_ms="0")
    await sent(queues, b"one")
    lost, again = await taken_again(serving, attempt_id="same")
    lost.cancel()
    again.cancel()
    serving.env.disk.flushes.let_go()
    assert await queues.take(QUEUE, 5) == [], "somebody may have the second answer"
    serving.env.wall_ahead_ms += 31_000
    assert [each.attempt for each in await queues.take(QUEUE, 5, wait_s=patient_s(5.0))] == [2]


async def test_a_taker_that_hangs_up_at_the_moment_it_is_served_keeps_nothing(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, b"one")
    serving.env.disk.flushes.hold()
    unlucky = asyncio.ensure_future(queues.take(QUEUE, 1))
    await serving.env.disk.flushes.until_waited_for()
    told = Told(unlucky.cancel)  # It hears right behind the take, when the answer is there and nobody has looked at it yet.
    ledger = serving.node.ledgers.find(queues.describe(QUEUE).topic_id, 0)
    assert ledger is not None
    ledger.coordinator.submit(Resume(told, QUEUE_GROUP), told)
    serving.env.disk.flushes.let_go()
    (lent,) = await queues.take(QUEUE, 1, wait_s=patient_s(5.0))
    assert lent.attempt == 1
    assert unlucky.cancelled()
