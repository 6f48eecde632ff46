"""The actions `Penstock.*` on queues: make, set, list and delete them, look after them, send dead letters back.

Their requests and answers are described in native_shapes.py. Errors are QueueRefusals.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.broker.queues.calls import Filter, Redrive, RedriveTask
from penstock.http.sqs.answers import Answer
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.native_messages import number, wrong
from penstock.http.sqs.native_shapes import COUNT_MAX
from penstock.http.sqs.queue_records import FIFO
from penstock.queues.headers import TIME_MS_MAX
from penstock.queues.ids import OFFSET_MAX, PARTITION_MAX
from penstock.settings import INT_MAX

PARTITIONS_MAX = 1_000
IDS_MAX = 100_000  # Of one redrive.


async def create_queue(desk: Desk, call: Call) -> Answer:
    body = call.body
    partitions = number(body, "Partitions", 1, PARTITIONS_MAX, 1)
    async with desk.changing:
        is_new = await desk.queues.create(
            body["Queue"], body.get("Settings", {}), partitions=partitions, replicas=body.get("Replicas")
        )  # fmt: skip
    return {"IsNew": is_new}


async def configure_queue(desk: Desk, call: Call) -> Answer:
    async with desk.changing:
        await desk.queues.configure(call.body["Queue"], call.body["Settings"])
    return {}


async def delete_queue(desk: Desk, call: Call) -> Answer:
    """The name may be used again at once."""
    await desk.queues.delete(call.body["Queue"])
    return {}


async def describe_queue(desk: Desk, call: Call) -> Answer:
    view = desk.queues.describe(call.body["Queue"])
    return {"Queue": view.name, "TopicId": str(view.topic_id), "Partitions": view.partitions, "Settings": dict(view.settings)}


async def list_queues(desk: Desk, call: Call) -> Answer:
    count = number(call.body, "Max", 1, COUNT_MAX, COUNT_MAX)
    prefix = call.body.get("Prefix", "")
    names = [name for name in desk.queues.names() if name.startswith(prefix)]
    begin = bisect_right(names, call.body["After"]) if "After" in call.body else 0
    return {"Queues": names[begin : begin + count], "HasMore": begin + count < len(names)}


async def purge(desk: Desk, call: Call) -> Answer:
    await desk.queues.purge(call.body["Queue"])
    return {}


async def pause(desk: Desk, call: Call) -> Answer:
    await desk.queues.pause(call.body["Queue"])
    return {}


async def resume(desk: Desk, call: Call) -> Answer:
    await desk.queues.resume(call.body["Queue"])
    return {}


async def rewind(desk: Desk, call: Call) -> Answer:
    body, queue = call.body, desk.queues.describe(call.body["Queue"]).name
    if sum(name in body for name in ("ToMs", "ToId", "ToOffset")) != 1:
        raise wrong("say where to: by one of ToMs, ToId and ToOffset")
    if "ToId" in body:
        return {"Count": await desk.queues.rewind_to_id(queue, body["ToId"])}
    if "ToOffset" in body:
        partition = number(body, "Partition", 0, PARTITION_MAX, 0)
        return {"Count": await desk.queues.rewind_to(queue, partition, number(body, "ToOffset", 0, OFFSET_MAX, 0))}
    return {"Count": await desk.queues.rewind(queue, to_ms=number(body, "ToMs", 0, TIME_MS_MAX, 0))}


async def counts(desk: Desk, call: Call) -> Answer:
    found = asdict(await desk.queues.counts(call.body["Queue"]))
    return {"".join(part.capitalize() for part in name.split("_")): value for name, value in found.items()}


# Dead letters


async def redrive(desk: Desk, call: Call) -> Answer:
    """Where a target is named that is FIFO, the letters' queue must be, too. The other way round a group is of use all the same."""
    body = call.body
    if body.get("Target"):
        _check_target(desk, body["Queue"], body["Target"])
    wish = Redrive(
        target=body.get("Target", ""),
        filter=_filter(body.get("Filter", {})),
        per_second_max=number(body, "PerSecondMax", 0, INT_MAX, 0),
        count_max=number(body, "Max", 0, INT_MAX, 0),
        is_dry_run=body.get("IsDryRun", False),
    )
    return {"Task": _task(await desk.queues.redrive(body["Queue"], wish))}


def _check_target(desk: Desk, queue: str, target: str) -> None:
    held, wanted = (desk.queues.describe(name).settings.get(FIFO) for name in (queue, target))
    if wanted == "true" and held != "true":
        raise wrong(
            f"the queue {target!r} is FIFO and {queue!r} is not: its messages may have no group to be in order with; without a target each "
            "goes back to where it came from"
        )


async def redrive_tasks(desk: Desk, call: Call) -> Answer:
    queue = desk.queues.describe(call.body["Queue"])
    return {"Tasks": [_task(task) for task in await desk.queues.tasks(queue.name)]}


async def cancel_redrive(desk: Desk, call: Call) -> Answer:
    return {"Task": _task(await desk.queues.cancel_task(call.body["Handle"]))}


def _filter(given: Mapping[str, Any]) -> Filter:
    ids: list[str] = given.get("Ids") or []
    if len(ids) > IDS_MAX:
        raise wrong(f"Ids of a filter may have {IDS_MAX} items at most, not {len(ids)}")
    return Filter(
        reason=given.get("Reason") or "",
        source=given.get("Source") or "",
        failed_after_ms=given.get("FailedAfterMs") or 0,
        failed_before_ms=given.get("FailedBeforeMs") or 0,
        ids=frozenset(ids),
    )


def _task(task: RedriveTask) -> dict[str, Any]:
    return {
        "Handle": task.handle, "Queue": task.queue, "Target": task.wish.target, "Status": task.status, "StartedMs": task.started_ms,
        "ToMove": task.to_move, "Moved": task.moved, "Failure": task.failure, "ByTarget": dict(task.by_target),
        "IsDryRun": task.wish.is_dry_run, "PerSecondMax": task.wish.per_second_max,
    }  # fmt: skip
