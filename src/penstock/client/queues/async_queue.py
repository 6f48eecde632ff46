"""A queue for asyncio: messages out and in.

    async with AsyncQueue("emails") as emails:
        await emails.send("hello")
        async for message in emails:
            async with message:
                await deliver(message.text)

Every send carries a dedup id, which is drawn here where none is given, so that a send whose answer was lost can be sent again and is stored
once. The node remembers the newest of such ids, which costs it memory: with `resend=False` none is drawn, and a send whose answer was lost
raises `InDoubt`. Cancelling `receive` closes its connection: the node then lends nothing to it, or takes back what it was lending.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack
from uuid import uuid4

from penstock.client.queues.actions import COUNT_MAX, WAIT_SECONDS_MAX, Actions, Order
from penstock.client.queues.caller import caller_for
from penstock.client.queues.failures import QueueError, SendFailed
from penstock.client.queues.heartbeat import log
from penstock.client.queues.messages import AsyncQueueMessage
from penstock.client.queues.options import ReachOptions, SendOptions
from penstock.client.queues.spans import Span, milliseconds, seconds
from penstock.client.queues.upkeep import AsyncUpkeep
from penstock.client.queues.values import Content, Delivery, Draft

DRAWN = "drawn "  # What ids begin with that we draw ourselves: the node keeps the newest of them only.
WAIT_SECONDS = 10.0
PAUSE_SECONDS = 0.1  # Between two receives of one wait: a node that waits shorter than it was told must not be asked without end.


class AsyncQueue(AsyncUpkeep):
    """Use it in `async with`, or close() it.

    `url` falls back to PENSTOCK_URL, then to http://127.0.0.1:8080; several of one cluster are separated by commas. A node that knows keys
    wants `access_key` and `secret_key` (PENSTOCK_ACCESS_KEY, PENSTOCK_SECRET_KEY). `lease` is how long a
    received message is this worker's, and `worker` the name that its history shows. With `heartbeat` a lease is kept while the message's
    block runs. A node that does not answer is asked again for `patience` seconds; sends too, unless `resend=False`.
    """

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        lease: Span | None = None,
        heartbeat: bool = True,
        worker: str | None = None,
        resend: bool = True,
        **reach: Unpack[ReachOptions],
    ) -> None:
        self._caller = caller_for(url, **reach)
        super().__init__(Actions(self._caller, name))
        self.name = name
        self._lease = lease
        self._keeps_lease = heartbeat
        self._resends = resend
        self._worker = worker or f"{socket.gethostname()}:{os.getpid()}"

    # Out

    async def send(self, body: Content, **options: Unpack[SendOptions]) -> str:
        """Returns the message's id once it is stored as safely as the queue promises."""
        (outcome,) = await self._actions.send([self._ready(Draft(body, **options))])
        if isinstance(outcome, QueueError):
            raise outcome
        return outcome

    async def send_many(self, messages: Iterable[Content | Draft]) -> list[str]:
        """In their order, a thousand at a time. Raises SendFailed where some were refused; the others are sent all the same."""
        drafts = [self._ready(each if isinstance(each, Draft) else Draft(each)) for each in messages]
        outcomes: list[str | QueueError] = []
        for start in range(0, len(drafts), COUNT_MAX):
            outcomes += await self._actions.send(drafts[start : start + COUNT_MAX])
        problems = {place: outcome for place, outcome in enumerate(outcomes) if isinstance(outcome, QueueError)}
        ids = [None if isinstance(outcome, QueueError) else outcome for outcome in outcomes]
        if problems:
            first = next(iter(problems.values()))
            told = f"{len(problems)} of {len(drafts)} messages were not sent; the first: {first.problem}"
            raise SendFailed(told, first.advice, ids, problems)
        return [each for each in ids if each is not None]

    async def cancel(self, id: str) -> bool:
        """Takes a message back that nobody holds, as if it had never been sent. False where it is finished, or somebody has it."""
        return await self._actions.cancel(id)

    # In

    async def receive(self, max: int = 10, *, lease: Span | None = None, wait: Span = WAIT_SECONDS) -> list[AsyncQueueMessage]:
        """Up to `max` messages, as soon as there is one; none when there was none for `wait` seconds."""
        if not 1 <= max <= COUNT_MAX:
            raise ValueError(f"max must be 1 to {COUNT_MAX}, not {max}")
        lease = self._lease if lease is None else lease
        lease_ms = None if lease is None else milliseconds(lease, "lease")
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds(wait, "wait")
        while True:
            deliveries = await self._actions.receive(max, lease_ms, lambda: min(WAIT_SECONDS_MAX, deadline - clock()), self._worker)
            left = deadline - clock()
            if deliveries or left <= 0:
                return [AsyncQueueMessage(each, self, keeps_lease=self._keeps_lease) for each in deliveries]
            await asyncio.sleep(min(left, PAUSE_SECONDS))

    async def messages(self, *, ahead: int = 1, lease: Span | None = None, idle: Span | None = None) -> AsyncIterator[AsyncQueueMessage]:
        """One by one, for ever, or until nothing has come for `idle` seconds. `ahead` are taken at once: faster where each is done quickly,
        and their leases run while they wait. Those that are left when the loop is ended are given back."""
        while True:
            batch = await self.receive(ahead, lease=lease, wait=WAIT_SECONDS if idle is None else idle)
            if not batch and idle is not None:
                return
            try:
                while batch:
                    yield batch.pop(0)
            finally:
                for left in batch:
                    await left.release()

    def __aiter__(self) -> AsyncIterator[AsyncQueueMessage]:
        return self.messages()

    async def work(
        self,
        step: Callable[[AsyncQueueMessage], Awaitable[object]],
        *,
        at_once: int = 1,
        lease: Span | None = None,
        idle: Span | None = None,
    ) -> int:
        """Calls `step` with each message, `at_once` of them at a time, for ever, or until nothing has come for `idle` seconds; returns how
        many were done.

        A message is done when `step` returns. What it raises is logged, kept with the message as the reason, and ends nothing: the
        message is tried again as the queue says, and the next one is taken.
        """
        try:
            async with asyncio.TaskGroup() as workers:
                counts = [workers.create_task(self._work(step, lease, idle)) for _ in range(at_once)]
        except ExceptionGroup as failures:  # No more can be taken: one of them says it for all.
            raise failures.exceptions[0] from None
        return sum(count.result() for count in counts)

    async def _work(self, step: Callable[[AsyncQueueMessage], Awaitable[object]], lease: Span | None, idle: Span | None) -> int:
        done = 0
        async for message in self.messages(lease=lease, idle=idle):
            try:
                async with message:
                    await step(message)
                done += 1
            except Exception:
                log.exception("message %s of queue %s failed (attempt %d)", message.id, self.name, message.attempt)
        return done

    async def ack_many(self, messages: Sequence[AsyncQueueMessage]) -> None:
        """In one call. Raises LeaseLost, after all others are finished, where some were not ours any more."""
        failures: list[QueueError] = []
        for start in range(0, len(messages), COUNT_MAX):
            batch = messages[start : start + COUNT_MAX]
            verdicts = await self._actions.settle([Order(each.receipt, "done") for each in batch], self._worker)
            for message, verdict in zip(batch, verdicts, strict=True):
                message.is_settled = verdict.failure is None
                failures += [] if verdict.failure is None else [verdict.failure]
        if failures:
            raise failures[0]

    async def settle_one(self, delivery: Delivery, verb: str, *, delay_ms: int | None = None, reason: str = "") -> datetime | None:
        """For the message itself."""
        (verdict,) = await self._actions.settle([Order(delivery.receipt, verb, delay_ms, reason)], self._worker)
        if verdict.failure is not None:
            raise verdict.failure
        return verdict.ends_at

    async def close(self) -> None:
        self._caller.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def _ready(self, draft: Draft) -> Draft:
        """Fit for being sent twice."""
        return replace(draft, dedup=f"{DRAWN}{uuid4().hex}") if self._resends and not draft.dedup else draft
