"""GetQueueAttributes and SetQueueAttributes."""

from collections.abc import Mapping
from dataclasses import replace

from penstock.broker.queues.calls import Counts
from penstock.http.sqs.addresses import queue_arn
from penstock.http.sqs.answers import Answer
from penstock.http.sqs.changing import change
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.making import allowed_by
from penstock.http.sqs.queue_attributes import (
    COUNTED,
    EXTENSION_PREFIX,
    KNOWN,
    PARTITIONS,
    REPLICAS,
    bad_value,
    check_attributes,
    extensions_in,
    unknown,
)
from penstock.http.sqs.queue_records import SqsQueue, held, settings_of, with_room
from penstock.http.sqs.redrive_policies import check_target, read_redrive_policy


async def get_queue_attributes(desk: Desk, call: Call) -> Answer:
    """Extensions are shown to whoever asks for them by name."""
    queue = desk.queue_of(call)
    wanted: list[str] = call.body.get("AttributeNames", [])
    is_all = any(name.lower() == "all" for name in wanted)
    for name in wanted:
        if name not in KNOWN and name.lower() != "all" and not name.startswith(EXTENSION_PREFIX):
            raise unknown(name)
    counts = await desk.queues.counts(queue.name) if is_all or any(name in COUNTED for name in wanted) else None
    shown = _shown(queue, held(queue, desk.queues.config_of(queue.name)), counts)
    found = shown if is_all else {name: shown[name] for name in wanted if name in shown}
    found = {**found, **_extensions(desk, queue, wanted)}
    return {"Attributes": found} if found else {}


def _shown(queue: SqsQueue, attributes: Mapping[str, str], counts: Counts | None) -> dict[str, str]:
    shown = {**attributes, "QueueArn": queue_arn(queue.name)}
    for name, time_s in (("CreatedTimestamp", queue.created_s), ("LastModifiedTimestamp", queue.modified_s)):
        if time_s:  # Nobody has written down when a topic was made: then there is no such attribute, rather than 1970.
            shown[name] = str(time_s)
    if counts is not None:
        shown["ApproximateNumberOfMessages"] = str(counts.ready)
        shown["ApproximateNumberOfMessagesNotVisible"] = str(counts.leased)
        shown["ApproximateNumberOfMessagesDelayed"] = str(counts.delayed)
    return shown


def _extensions(desk: Desk, queue: SqsQueue, wanted: list[str]) -> dict[str, str]:
    names = [name for name in wanted if name.startswith(EXTENSION_PREFIX)]
    if not names:
        return {}
    view = desk.queues.describe(queue.name)
    held = {
        EXTENSION_PREFIX + setting.removeprefix("queue."): value for setting, value in view.settings.items() if setting.startswith("queue.")
    }
    held[PARTITIONS] = str(view.partitions)
    return {name: held[name] for name in names if name in held}


async def set_queue_attributes(desk: Desk, call: Call) -> Answer:
    await change(desk, call, lambda queue: _set(desk, queue, call.body["Attributes"]))
    return {}


def _set(desk: Desk, queue: SqsQueue, given: Mapping[str, str]) -> Mapping[str, str | None]:
    changed = _changes(queue, given)
    if policy := changed.get("RedrivePolicy"):
        check_target(queue.name, read_redrive_policy(policy), lambda target: allowed_by(desk, target))
    _check_one_partition(desk, queue, changed)
    if not given:
        return {}
    room = with_room(changed, desk.queues.config_of(queue.name))
    return {**settings_of(changed, replace(queue, modified_s=desk.now_s)), **room, **extensions_in(given)}


def _changes(queue: SqsQueue, given: Mapping[str, str]) -> dict[str, str]:
    for name in (PARTITIONS, REPLICAS):
        if name in given:
            raise bad_value(name, "It can be chosen only when the queue is created.")
    changed = check_attributes(given, is_fifo=queue.is_fifo)
    if changed.get("FifoQueue") == "false":
        raise bad_value("FifoQueue", "Modifying queue type is not supported.")
    return changed


def _check_one_partition(desk: Desk, queue: SqsQueue, changed: Mapping[str, str]) -> None:
    if changed.get("DeduplicationScope") == "queue" and desk.queues.describe(queue.name).partitions > 1:
        raise bad_value("DeduplicationScope", "This queue has several partitions, which do not know of each other's deduplication ids.")
