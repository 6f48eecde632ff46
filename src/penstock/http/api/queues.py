"""Work queues: listed, and shown with their settings, partitions and redrives. Messages and changes are the SQS door's business.

A queue's messages are counted by the leaders of its partitions, wherever they are. Who cannot be asked at once has no counts: nobody waits
for an election to look at a list. An answer has the counts of so many queues at most.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.broker.node import Node
from penstock.broker.queues.calls import Code, Counts, QueueRefusal, QueueView, RedriveTask, added_up
from penstock.errors import ErrorCode, Refusal
from penstock.http.answers import OK, Answer
from penstock.http.api.paging import NEXT, page_of
from penstock.http.api.requests import ApiRequest
from penstock.http.api.schemas import Schema, flag, integer, listing, named, or_null, shape, text, texts_by_name
from penstock.vocabulary import NO_NODE

COUNTED_MAX = 200  # Queues whose messages one list counts: each asks the leaders of its partitions.
COUNTED_AT_ONCE = 20
COUNTED_SECONDS = 2.0

_COUNTS: Mapping[str, Schema] = {
    "ready": or_null(integer("Messages that can be taken; null, as all counts, where a leader cannot be asked.")),
    "leased": or_null(integer("Those that workers have.")),
    "delayed": or_null(integer("Those that wait for their time.")),
    "burying": or_null(integer("Those on their way to the dead letters, or to wherever they are sent back.")),
    "finished": or_null(integer("Those that were finished since the queue was made.")),
    "dropped": or_null(integer("Those that were lost with their log before anybody finished them.")),
    "oldest_ms": or_null(integer("When the oldest that is not finished was sent; null: there is none.")),
}
_QUEUE: Mapping[str, Schema] = {
    "name": text("The queue's name, which is its topic's."),
    "id": text("The topic's id."),
    "partition_count": integer("How many partitions it has."),
    "is_fifo": flag("Whether messages of a group come one after the other."),
    "is_paused": flag("Whether nothing is lent now."),
    "dead_letter": or_null(text("The queue for messages that fail too often.")),
    **_COUNTS,
}
QUEUE_SUMMARY = shape(_QUEUE)
QUEUES = shape({"queues": listing(named("QueueSummary")), "next": NEXT})
QUEUE_PARTITION = shape(
    {"partition": integer("Its number."), "leader": or_null(integer("The node that leads it; null: nobody does.")), **_COUNTS}
)
REDRIVE = shape(
    {
        "handle": text("By which it is cancelled."),
        "status": text("running, completed, cancelling, cancelled or failed."),
        "target": or_null(text("The queue that all go to; null: each to where it came from.")),
        "started_ms": integer("When it began."),
        "moved": integer("How many went so far."),
        "to_move": integer("How many are to go, about."),
        "failure": or_null(text("Why it failed.")),
    }
)
QUEUE = shape(
    {
        **_QUEUE,
        "settings": texts_by_name("The topic's settings of its own, by name."),
        "partitions": listing(named("QueuePartition")),
        "redrives": or_null(listing(named("Redrive"), "The one that runs and the last few, the latest first; null: nobody can be asked.")),
    }
)


async def list_queues(node: Node, request: ApiRequest) -> Answer:
    names, next_name = page_of(node.queues.names(), request.query)
    counts: list[Counts | None] = []
    for first in range(0, min(len(names), COUNTED_MAX), COUNTED_AT_ONCE):
        chosen = names[first : min(first + COUNTED_AT_ONCE, COUNTED_MAX)]
        counts += [_whole(each) for each in await asyncio.gather(*(_counted(node, name) for name in chosen))]
    counts += [None] * (len(names) - len(counts))
    rows = [_summary(node, view, each) for name, each in zip(names, counts, strict=True) if (view := _view(node, name)) is not None]
    return Answer(OK, {"queues": rows, "next": next_name}, is_large=True)


async def get_queue(node: Node, request: ApiRequest) -> Answer:
    name = request.parts["queue"]
    view = _view(node, name)
    if view is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no queue called {name!r}")
    counts, tasks = await asyncio.gather(_counted(node, name), _tasks(node, name))
    states = [node.image.partition(view.topic_id, index) for index in range(view.partitions)]
    partitions = [
        {"partition": index, "leader": None if state is None or state.leader == NO_NODE else int(state.leader), **_shown(each)}
        for index, (state, each) in enumerate(zip(states, counts, strict=True))
    ]
    whole = _summary(node, view, _whole(counts))
    redrives = None if tasks is None else [_task(task) for task in tasks]
    return Answer(OK, {**whole, "settings": dict(view.settings), "partitions": partitions, "redrives": redrives})


def _view(node: Node, name: str) -> QueueView | None:
    try:
        return node.queues.describe(name)
    except QueueRefusal:
        return None  # It may go while others have their turn.


async def _counted(node: Node, name: str) -> list[Counts | None]:
    """Of each partition."""
    view = _view(node, name)
    try:
        async with asyncio.timeout(COUNTED_SECONDS):
            return await node.queues.counts_by_partition(name)
    except (QueueRefusal, TimeoutError):
        return [None] * (0 if view is None else view.partitions)


async def _tasks(node: Node, name: str) -> list[RedriveTask] | None:
    try:
        async with asyncio.timeout(COUNTED_SECONDS):
            return await node.queues.tasks(name)
    except TimeoutError:
        return None
    except QueueRefusal as refusal:
        if refusal.code is Code.NOT_AVAILABLE:
            return None
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, refusal.words) from None


def _whole(counts: Sequence[Counts | None]) -> Counts | None:
    known = [each for each in counts if each is not None]
    return added_up(known) if known and len(known) == len(counts) else None


def _summary(node: Node, view: QueueView, counts: Counts | None) -> dict[str, Any]:
    return {
        "name": view.name,
        "id": view.topic_id.hex(),
        "partition_count": view.partitions,
        "is_fifo": view.settings.get("queue.fifo") == "true",
        "is_paused": view.settings.get("queue.paused") == "true" or (counts is not None and counts.is_paused),
        "dead_letter": view.settings.get("queue.dead.letter") or None,
        **_shown(counts),
    }


def _shown(counts: Counts | None) -> dict[str, Any]:
    names = ("ready", "leased", "delayed", "burying", "finished", "dropped")
    if counts is None:
        return {**dict.fromkeys(names), "oldest_ms": None}
    return {**{name: getattr(counts, name) for name in names}, "oldest_ms": counts.oldest_ms or None}


def _task(task: RedriveTask) -> dict[str, Any]:
    return {
        "handle": task.handle,
        "status": str(task.status),
        "target": task.wish.target or None,
        "started_ms": task.started_ms,
        "moved": task.moved,
        "to_move": task.to_move,
        "failure": task.failure or None,
    }
