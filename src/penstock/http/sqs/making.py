"""CreateQueue, DeleteQueue, GetQueueUrl, ListQueues and PurgeQueue.

A queue made here behaves as AWS's do: no backoff, AWS's limits, one partition unless the attribute `penstock.partitions` asks for more. A
FIFO queue whose deduplication ids count queue-wide always has one: two partitions would not know of each other's.
Creating a queue that is there succeeds where every attribute that is given is the one that holds.
"""

import json
from collections.abc import Mapping

from penstock.broker.queues.calls import Code, QueueRefusal
from penstock.http.sqs.addresses import check_queue_name
from penstock.http.sqs.answers import Answer
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.errors import (
    PURGE_QUEUE_IN_PROGRESS,
    QUEUE_DELETED_RECENTLY,
    QUEUE_NAME_EXISTS,
    SqsError,
    no_such_queue,
)
from penstock.http.sqs.labels import check_tags
from penstock.http.sqs.paging import page_of
from penstock.http.sqs.queue_attributes import (
    EXTENSION_PREFIX,
    PARTITIONS,
    REPLICAS,
    bad_value,
    check_attributes,
    extensions_in,
    unknown,
    whole_number,
)
from penstock.http.sqs.queue_records import SqsQueue, held, new_queue
from penstock.http.sqs.redrive_policies import RedriveAllowPolicy, check_target, read_redrive_policy

PARTITIONS_MAX = 1_000
REPLICAS_MAX = 100
PURGE_PAUSE_MS = 60_000  # As AWS.


async def create_queue(desk: Desk, call: Call) -> Answer:
    name: str = call.body["QueueName"]
    given: dict[str, str] = call.body.get("Attributes", {})
    tags: dict[str, str] = call.body.get("tags", {})
    is_fifo = given.get("FifoQueue", "").lower() == "true"
    check_queue_name(name, is_fifo=is_fifo)
    if given.get("FifoQueue", "true").lower() == "false":
        raise unknown("FifoQueue")
    attributes = check_attributes(given, is_fifo=is_fifo)
    check_tags(tags)
    async with desk.changing:
        found = find_or_none(desk, name)
        if found is not None:
            _compare(desk, found, attributes, given)
        else:
            await _make(desk, name, attributes, given, tags)
    return {"QueueUrl": desk.url(call, name)}


async def _make(desk: Desk, name: str, attributes: Mapping[str, str], given: Mapping[str, str], tags: Mapping[str, str]) -> None:
    if desk.queues.deletions.is_recent(name):
        words = "You must wait 60 seconds after deleting a queue before you can create another with the same name."
        raise SqsError(QUEUE_DELETED_RECENTLY, words)
    _refuse_topic(desk, name)
    if policy := attributes.get("RedrivePolicy"):
        check_target(name, read_redrive_policy(policy), lambda target: allowed_by(desk, target))
    settings = {**new_queue(name, attributes, tags, desk.now_s), **extensions_in(given)}
    partitions = whole_number(PARTITIONS, given.get(PARTITIONS, "1"), 1, PARTITIONS_MAX)
    if partitions > 1 and attributes.get("FifoQueue") == "true" and attributes.get("DeduplicationScope") != "messageGroup":
        raise bad_value(PARTITIONS, "A FIFO queue has one partition, unless its DeduplicationScope is messageGroup.")
    replicas = whole_number(REPLICAS, given[REPLICAS], 1, REPLICAS_MAX) if REPLICAS in given else None
    await desk.queues.create(name, settings, partitions=partitions, replicas=replicas)


def _refuse_topic(desk: Desk, name: str) -> None:
    try:
        desk.queues.describe(name)
    except QueueRefusal as refusal:
        if refusal.code == Code.NOT_A_QUEUE:
            words = f"There is a topic '{name}' that is not a queue. Choose another name, or set its queue.enabled to true."
            raise SqsError(QUEUE_NAME_EXISTS, words) from None


def _compare(desk: Desk, queue: SqsQueue, attributes: Mapping[str, str], given: Mapping[str, str]) -> None:
    there = held(queue, desk.queues.config_of(queue.name))
    for name, value in attributes.items():
        if not _is_same(name, value, there.get(name, "")):
            raise _differs(name)
    view = desk.queues.describe(queue.name)
    if PARTITIONS in given and given[PARTITIONS] != str(view.partitions):
        raise _differs(PARTITIONS)
    for setting, value in extensions_in(given).items():
        if view.settings.get(setting) != value:
            raise _differs(EXTENSION_PREFIX + setting.removeprefix("queue."))


def _differs(name: str) -> SqsError:
    return SqsError(QUEUE_NAME_EXISTS, f"A queue already exists with the same name and a different value for attribute {name}")


def _is_same(name: str, given: str, held: str) -> bool:
    if given == held or (name == "KmsDataKeyReusePeriodSeconds" and (given, held) == ("300", "")):
        return True
    if not given or not held or "Policy" not in name:
        return False
    if name == "RedrivePolicy":  # A count may be a text or a number.
        return read_redrive_policy(given)[:2] == read_redrive_policy(held)[:2]
    return bool(json.loads(given) == json.loads(held))


def find_or_none(desk: Desk, name: str) -> SqsQueue | None:
    try:
        return desk.find(name)
    except SqsError as error:
        if error.kind == no_such_queue().kind:
            return None
        raise


def allowed_by(desk: Desk, target: str) -> RedriveAllowPolicy | None:
    queue = find_or_none(desk, target)
    return None if queue is None else queue.redrive_allow


async def delete_queue(desk: Desk, call: Call) -> Answer:
    queue = desk.queue_of(call)
    async with desk.changing:
        await desk.queues.delete(queue.name)
    return {}


async def get_queue_url(desk: Desk, call: Call) -> Answer:
    return {"QueueUrl": desk.url(call, desk.find(call.body["QueueName"]).name)}


async def list_queues(desk: Desk, call: Call) -> Answer:
    prefix = call.body.get("QueueNamePrefix", "")
    names = [name for name in desk.queues.names() if name.startswith(prefix)]
    page = page_of(names, call.body)
    answer = {"QueueUrls": [desk.url(call, name) for name in page.names]} if page.names else {}
    return {**answer, **page.token}


async def purge_queue(desk: Desk, call: Call) -> Answer:
    queue = desk.queue_of(call)
    try:
        await desk.queues.purge(queue.name, pause_ms=PURGE_PAUSE_MS)
    except QueueRefusal as refusal:
        if refusal.code is not Code.BUSY:
            raise
        words = f"Only one PurgeQueue operation on {queue.name} is allowed every 60 seconds."
        raise SqsError(PURGE_QUEUE_IN_PROGRESS, words) from None
    return {}
