"""The door's actions for one queue: what is asked, and what its answers mean.

Which of them may be sent twice: all that only look, all that say how things shall be, sends with a dedup id, receives (the attempt id of
those that are not large gives the same messages again; others find what was lost with their answer when its lease has lapsed), and
settlements, whose second copy finds the work done. Not: a redrive, and a send without a dedup id.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import count as count_up
from typing import Any
from uuid import uuid4

from penstock.client.queues.caller import Caller, Wish, as_bytes_on_the_wire
from penstock.client.queues.failures import LeaseLost, QueueError, QueueMissing, Refused, refusal
from penstock.client.queues.gathering import Gathering
from penstock.client.queues.redriving import Progress, Wanted
from penstock.client.queues.shapes import (
    counts_of,
    delivery_of,
    draft_as_json,
    found_of,
    progress_of,
    view_of,
    wanted_as_json,
)  # fmt: skip
from penstock.client.queues.spans import moment
from penstock.client.queues.values import Counts, Delivery, Draft, Found, QueueView

COUNT_MAX = 1_000  # Messages of one request, as the door has it.
REQUEST_BYTES_MAX = 6 << 20  # Of the 8 MiB that the door takes; the rest is for quotation marks and base64.
WAIT_SECONDS_MAX = 20.0  # Of one receive; a longer wait is several. Nobody between here and the node should take it for dead.
IDS_MAX = 100_000  # Of one redrive.
_TRACES = frozenset((verb, outcome) for verb in ("release", "return", "reject") for outcome in ("gone", "lost"))  # Of orders carried out.
REPEATED_MAX = 100  # Messages of a receive whose answer, if it is lost, is had again: the node keeps the list of them for some minutes.


@dataclass(frozen=True, slots=True)
class Order:
    receipt: str
    verb: str  # done, release, return, reject, extend
    delay_ms: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    ends_at: datetime | None = None  # Of the lease, after extend.
    failure: QueueError | None = None


class Actions:
    def __init__(self, caller: Caller, queue: str) -> None:
        self.queue = queue
        self._caller = caller
        bounds = {"count_max": COUNT_MAX, "bytes_max": REQUEST_BYTES_MAX}
        self._send_once = Gathering(partial(self._send, is_safe=False), **bounds)
        self._send_safely = Gathering(partial(self._send, is_safe=True), **bounds)
        self._settle_of: dict[str, Gathering[Order, Verdict]] = {}  # By worker.

    def of(self, queue: str) -> "Actions":
        """Those of another queue, over the same connections."""
        return Actions(self._caller, queue)

    # Messages

    async def send(self, drafts: Sequence[Draft]) -> list[str | QueueError]:
        """An id for each, or why it was not taken."""
        outcomes: list[str | QueueError] = []
        send = self._send_safely if all(draft.dedup for draft in drafts) else self._send_once
        for batch, size in _batches([draft_as_json(draft) for draft in drafts]):
            outcomes += await send(batch, size)
        return outcomes

    async def _send(self, messages: Sequence[dict[str, Any]], *, is_safe: bool) -> list[str | QueueError]:
        told = await self._ask("Send", {"Messages": messages}, is_safe=is_safe)
        return [self._sent(each) for each in told["Results"]]

    async def receive(self, count: int, lease_ms: int | None, wait_seconds: Callable[[], float], worker: str) -> list[Delivery]:
        """`wait_seconds` says at each try how long is left."""
        same: dict[str, Any] = {"Queue": self.queue, "Max": count, "Who": worker}
        same |= ({} if lease_ms is None else {"LeaseMs": lease_ms}) | ({"AttemptId": uuid4().hex} if count <= REPEATED_MAX else {})

        tries = count_up()

        def wish() -> Wish:
            again = {"IsAgain": True} if next(tries) else {}
            return {**same, **again, "WaitMs": max(0, round(min(WAIT_SECONDS_MAX, wait_seconds()) * 1000))}

        told = await self._caller.call("Penstock.Receive", wish, queue=self.queue, wait_seconds=WAIT_SECONDS_MAX)
        return [delivery_of(each, lease_ms) for each in told.answer.get("Messages") or ()]

    async def settle(self, orders: Sequence[Order], worker: str) -> list[Verdict]:
        if worker not in self._settle_of:
            self._settle_of[worker] = Gathering(partial(self._settle, worker=worker), count_max=COUNT_MAX, bytes_max=REQUEST_BYTES_MAX)
        return await self._settle_of[worker](orders)

    async def _settle(self, orders: Sequence[Order], *, worker: str) -> list[Verdict]:
        wire = [_order_as_json(order) for order in orders]
        told = await self._caller.call("Penstock.Settle", {"Queue": self.queue, "Orders": wire, "Who": worker}, queue=self.queue)
        verdicts = told.answer["Verdicts"]
        return [self._verdict(order, each, may_be_done=told.may_be_done) for order, each in zip(orders, verdicts, strict=True)]

    async def cancel(self, id: str) -> bool:
        (verdict,) = (await self._ask("Cancel", {"Ids": [id]}))["Verdicts"]
        if "Code" in verdict:
            raise refusal(verdict["Code"], verdict["Message"], self.queue)
        if verdict["Outcome"] == "unknown":
            raise Refused(f"queue {self.queue!r} has no message {id}", "use the id that send() gave", "unknown")
        return bool(verdict["Outcome"] == "ok")

    async def find(self, id: str) -> Found | None:
        told = (await self._ask("Find", {"Id": id})).get("Message")
        return None if told is None else found_of(told)

    async def peek(self, count: int, states: Sequence[str], after: str | Found) -> list[Found]:
        if isinstance(after, Found):  # Its id may be the one that it had in another place.
            after = f"{after.partition}/{after.offset}"
        wish = {"Max": count} | ({"States": list(states)} if states else {}) | ({"After": after} if after else {})
        return [found_of(each) for each in (await self._ask("Peek", wish))["Messages"]]

    # The queue

    async def create(self, settings: dict[str, str], partitions: int | None, replicas: int | None) -> bool:
        wish: dict[str, Any] = {"Settings": settings}
        wish |= ({} if partitions is None else {"Partitions": partitions}) | ({} if replicas is None else {"Replicas": replicas})
        return bool((await self._ask("CreateQueue", wish))["IsNew"])

    async def configure(self, settings: dict[str, str]) -> None:
        await self._ask("ConfigureQueue", {"Settings": settings})

    async def describe(self) -> QueueView:
        return view_of(await self._ask("DescribeQueue", {}))

    async def delete(self) -> None:
        await self._ask("DeleteQueue", {})

    async def counts(self) -> Counts:
        return counts_of(await self._ask("Counts", {}))

    async def purge(self) -> None:
        await self._ask("Purge", {})

    async def pause(self) -> None:
        await self._ask("Pause", {})

    async def resume(self) -> None:
        await self._ask("Resume", {})

    async def rewind(self, where: dict[str, Any]) -> int:
        return int((await self._ask("Rewind", where))["Count"])

    # Dead letters

    async def redrive(self, wanted: Wanted) -> Progress:
        if len(wanted.ids) > IDS_MAX:
            raise ValueError(f"ids may be {IDS_MAX} at a time, not {len(wanted.ids)}: redrive them in several goes")
        try:
            return progress_of((await self._ask("Redrive", wanted_as_json(wanted), is_safe=wanted.is_dry_run))["Task"])
        except QueueMissing as missing:
            if not wanted.to or repr(wanted.to) not in missing.problem:
                raise
            raise refusal(missing.code, missing.problem, wanted.to) from None  # The advice is about the one that is not there.

    async def redrive_progress(self, handle: str) -> Progress:
        tasks = (await self._ask("RedriveTasks", {}))["Tasks"]
        found = [progress_of(task) for task in tasks if task["Handle"] == handle]
        if not found:
            raise Refused("the queue has forgotten this redrive: ten others came after it, or the queue is another one", "begin again")
        return found[0]

    async def redrives(self) -> list[Progress]:
        return [progress_of(task) for task in (await self._ask("RedriveTasks", {}))["Tasks"]]

    async def cancel_redrive(self, handle: str) -> Progress:
        told = await self._caller.call("Penstock.CancelRedrive", {"Handle": handle}, queue=self.queue)
        return progress_of(told.answer["Task"])

    async def _ask(self, action: str, wish: Wish, *, is_safe: bool = True) -> dict[str, Any]:
        return (await self._caller.call(f"Penstock.{action}", {"Queue": self.queue, **wish}, queue=self.queue, is_safe=is_safe)).answer

    def _sent(self, told: dict[str, Any]) -> str | QueueError:
        return refusal(told["Code"], told["Message"], self.queue) if "Code" in told else str(told["Id"])

    def _verdict(self, order: Order, told: dict[str, Any], *, may_be_done: bool) -> Verdict:
        """`may_be_done`: by an earlier try of ours, whose answer was lost. Had it finished the message, the message would be gone; what it
        gave back may be somebody else's by now."""
        if "Code" in told:
            return Verdict(failure=refusal(told["Code"], told["Message"], self.queue))
        outcome, ends_ms = told["Outcome"], told.get("DeadlineMs")
        if outcome == "ok" or (outcome == "gone" and order.verb == "done"):
            return Verdict(moment(ends_ms) if ends_ms else None)
        if may_be_done and (order.verb, outcome) in _TRACES:
            return Verdict()
        return Verdict(failure=_lost(self.queue, outcome))


async def names_of(caller: Caller) -> list[str]:
    """Of all queues, in order."""
    names: list[str] = []
    while True:
        told = (await caller.call("Penstock.ListQueues", {"Max": COUNT_MAX} | ({"After": names[-1]} if names else {}))).answer
        names += told["Queues"]
        if not told.get("HasMore") or not told["Queues"]:
            return names


def _lost(queue: str, outcome: str) -> QueueError:
    advice = "take longer leases (lease=), or keep them (heartbeat=True and `with message:`); what was done must bear being done again"
    match outcome:
        case "gone":
            return LeaseLost(f"a message of queue {queue!r} is finished already: by another worker, or by a purge", advice, outcome)
        case "lost":
            return LeaseLost(
                f"the lease of a message of queue {queue!r} has lapsed: another worker has it, or will have it", advice, outcome
            )
        case "too_long":
            problem = f"a lease of queue {queue!r} lasts twelve hours at most, all extensions included: it goes on as it was"
            return Refused(problem, "finish the message before, or release it and take it again", outcome)
        case _:
            return Refused(f"queue {queue!r} never lent that message", "settle messages on the queue that they came from", outcome)


def _order_as_json(order: Order) -> dict[str, Any]:
    wire: dict[str, Any] = {"Handle": order.receipt, "Verb": order.verb}
    return wire | ({} if order.delay_ms is None else {"DelayMs": order.delay_ms}) | ({"Reason": order.reason} if order.reason else {})


def _batches(messages: Sequence[dict[str, Any]]) -> list[tuple[list[dict[str, Any]], int]]:
    """As many as go into one request, and how many bytes they are."""
    batches: list[tuple[list[dict[str, Any]], int]] = []
    batch, size = list[dict[str, Any]](), 0
    for message in messages:
        own = len(as_bytes_on_the_wire(message))
        if batch and (size + own > REQUEST_BYTES_MAX or len(batch) == COUNT_MAX):
            batches.append((batch, size))
            batch, size = [], 0
        batch.append(message)
        size += own
    return [*batches, (batch, size)] if batch else batches
