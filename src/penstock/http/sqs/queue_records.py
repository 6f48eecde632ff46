"""A queue as this door sees it: AWS's attributes, from the settings of a topic and back.

`queue.sqs` is a JSON object: `attributes` (those that no other setting stands for), `tags`, `created` and `modified` (seconds). A queue
that was made elsewhere has none of it. Whoever changes it reads, changes and writes the whole object (changing.py).
What the topic's other settings decide (times, how large a message may be) is read from those that hold, defaults of the node among them,
when somebody asks (`held`): nothing that is done for each message needs it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.broker.queues.calls import QueueView
from penstock.broker.queues.plain_sending import RECORD_OVERHEAD_BYTES
from penstock.http.sqs.addresses import queue_arn
from penstock.http.sqs.errors import OVER_LIMIT, SqsError
from penstock.http.sqs.queue_attributes import NUMBERS, SIZE_DEFAULT, bad_value, check_attributes
from penstock.http.sqs.redrive_policies import RedriveAllowPolicy, RedrivePolicy, read_redrive_allow_policy, read_redrive_policy
from penstock.settings import TopicConfig
from penstock.wire.batches import HEADER_BYTES

SQS_SETTING = "queue.sqs"
LEASE, DELAY, TTL = "queue.lease.ms", "queue.delay.ms", "queue.ttl.ms"
DEAD_LETTER, DELIVERIES = "queue.dead.letter", "queue.deliveries.max"
FIFO, DEDUP_SCOPE, DEDUP_BY_CONTENT = "queue.fifo", "queue.dedup.scope", "queue.dedup.by.content"

BATCH_BYTES_MAX = 2 << 20  # A message of 1 MiB whose attributes take a third more as text, at most (message_attributes.py).
SIZE = "max.message.bytes"
FRAME_BYTES = HEADER_BYTES + RECORD_OVERHEAD_BYTES  # What a message takes in the log beside its body.

# What makes a queue behave as AWS's do.
_AWS_WAYS = {"queue.backoff.min.ms": "0", SIZE: str(BATCH_BYTES_MAX)}
_FIFO_WAYS = {FIFO: "true"}
_STANDARD_WAYS = {"queue.inflight.refuse": "true", "queue.fair": "true", "queue.back.after": "3"}

SETTING_BYTES_MAX = 64_000  # A policy of the largest size, and fifty tags of theirs.

# Seconds here, milliseconds there.
_SPANS = {"VisibilityTimeout": LEASE, "DelaySeconds": DELAY, "MessageRetentionPeriod": TTL}
# Not shown when they are as if nobody had set them.
_SILENT = {"KmsMasterKeyId": "", "KmsDataKeyReusePeriodSeconds": "300", "Policy": "", "RedrivePolicy": "", "RedriveAllowPolicy": ""}


@dataclass(frozen=True, slots=True)
class SqsQueue:
    name: str
    is_fifo: bool
    attributes: Mapping[str, str]  # All that can be set and that no other setting decides, with defaults.
    tags: Mapping[str, str] = field(default_factory=dict)
    created_s: int = 0  # 0: it was made by another door, which keeps no such time.
    modified_s: int = 0
    # Read once, for every message.
    size_max: int = SIZE_DEFAULT
    wait_s: int = 0
    hashes_bodies: bool = False

    @property
    def redrive(self) -> RedrivePolicy | None:
        text = self.attributes.get("RedrivePolicy")
        return read_redrive_policy(text) if text else None

    @property
    def redrive_allow(self) -> RedriveAllowPolicy:
        text = self.attributes.get("RedriveAllowPolicy")
        return read_redrive_allow_policy(text) if text else RedriveAllowPolicy()


def read_queue(view: QueueView) -> SqsQueue:
    is_fifo = view.settings.get(FIFO) == "true"
    own = _own(view.settings, is_fifo=is_fifo)
    attributes = {name: str(numbers.default) for name, numbers in NUMBERS.items() if name not in _SILENT and name not in _SPANS}
    attributes["SqsManagedSseEnabled"] = "true"
    if is_fifo:
        attributes |= {"FifoQueue": "true", "FifoThroughputLimit": "perQueue"}
        attributes["ContentBasedDeduplication"] = view.settings.get(DEDUP_BY_CONTENT, "false")
        attributes["DeduplicationScope"] = "messageGroup" if view.settings.get(DEDUP_SCOPE) == "group" else "queue"
    attributes |= own["attributes"]
    attributes["RedrivePolicy"] = _redrive_text(view.settings, attributes.get("RedrivePolicy", ""))
    return SqsQueue(
        view.name,
        is_fifo,
        {name: value for name, value in attributes.items() if _SILENT.get(name) != value},
        own["tags"],
        own["created"],
        own["modified"],
        int(attributes["MaximumMessageSize"]),
        int(attributes["ReceiveMessageWaitTimeSeconds"]),
        attributes.get("ContentBasedDeduplication") == "true",
    )


def held(queue: SqsQueue, config: TopicConfig) -> dict[str, str]:
    """All that can be set, as it holds. Messages of a topic without a time to live stay for ever, which AWS cannot say: it is the longest
    time that AWS has. A message is no larger than the topic takes: a body without attributes."""
    never_s = NUMBERS["MessageRetentionPeriod"].high
    return {
        **queue.attributes,
        "VisibilityTimeout": str(config.queue_lease_ms // 1_000),
        "DelaySeconds": str(config.queue_delay_ms // 1_000),
        "MessageRetentionPeriod": str(-(-config.queue_ttl_ms // 1_000) or never_s),
        "MaximumMessageSize": str(min(queue.size_max, body_bytes_max(config))),
    }


def body_bytes_max(config: TopicConfig) -> int:
    return max(0, config.max_message_bytes - FRAME_BYTES)


def with_room(changed: Mapping[str, str], config: TopicConfig) -> dict[str, str]:
    """What to set besides so that messages of the size that is wanted fit into the log."""
    wanted = int(changed.get("MaximumMessageSize", "0"))
    return {SIZE: str(BATCH_BYTES_MAX)} if wanted > body_bytes_max(config) else {}


def new_queue(name: str, attributes: Mapping[str, str], tags: Mapping[str, str], now_s: int) -> dict[str, str]:
    """The settings of a topic that is to be this queue."""
    is_fifo = attributes.get("FifoQueue") == "true"
    spans = {item: attributes.get(item, str(NUMBERS[item].default)) for item in _SPANS}
    settings = settings_of({**attributes, **spans}, SqsQueue(name, is_fifo, {}, tags, now_s, now_s))
    ways = {**_AWS_WAYS, **(_FIFO_WAYS if is_fifo else _STANDARD_WAYS)}
    return {**ways, **{setting: value for setting, value in settings.items() if value is not None}}


def settings_of(changed: Mapping[str, str], queue: SqsQueue) -> dict[str, str | None]:
    """What to set so that these attributes hold; those that are not named stay as they are in `queue`."""
    settings: dict[str, str | None] = {}
    for name, setting in _SPANS.items():
        if name in changed:
            settings[setting] = str(int(changed[name]) * 1_000)
    if "ContentBasedDeduplication" in changed:
        settings[DEDUP_BY_CONTENT] = changed["ContentBasedDeduplication"]
    if "DeduplicationScope" in changed:
        settings[DEDUP_SCOPE] = "group" if changed["DeduplicationScope"] == "messageGroup" else "queue"
    if "RedrivePolicy" in changed:
        policy = read_redrive_policy(changed["RedrivePolicy"]) if changed["RedrivePolicy"] else None
        settings[DEAD_LETTER] = policy.target if policy else None
        settings[DELIVERIES] = str(policy.receives_max) if policy else None
    merged = {**queue.attributes, **changed}
    _check_together(merged)
    settings[SQS_SETTING] = _written(replace(queue, attributes=_encrypted(merged, changed)))
    return settings


def tagged(queue: SqsQueue, tags: Mapping[str, str]) -> dict[str, str | None]:
    return {SQS_SETTING: _written(replace(queue, tags=tags))}


def _check_together(attributes: Mapping[str, str]) -> None:
    if attributes.get("FifoThroughputLimit") == "perMessageGroupId" and attributes.get("DeduplicationScope", "queue") != "messageGroup":
        raise bad_value("FifoThroughputLimit", "perMessageGroupId is allowed only when DeduplicationScope is messageGroup.")


def _encrypted(merged: dict[str, str], changed: Mapping[str, str]) -> dict[str, str]:
    """One kind of encryption puts the other one away, as far as that is written down."""
    if changed.get("KmsMasterKeyId"):
        return {**merged, "SqsManagedSseEnabled": "false"}
    if changed.get("SqsManagedSseEnabled") == "true":
        return {name: value for name, value in merged.items() if not name.startswith("Kms")}
    return merged


def _written(queue: SqsQueue) -> str:
    of_others = (*_SPANS, "FifoQueue", "DeduplicationScope", "ContentBasedDeduplication")
    attributes = {name: value for name, value in queue.attributes.items() if name not in of_others and _SILENT.get(name) != value}
    content: dict[str, Any] = {"attributes": attributes, "tags": dict(queue.tags), "created": queue.created_s, "modified": queue.modified_s}
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    size = len(text.encode())
    if size > SETTING_BYTES_MAX:
        raise SqsError(OVER_LIMIT, f"Policies and tags of a queue may take {SETTING_BYTES_MAX} bytes together, not {size}.")
    return text


def _own(settings: Mapping[str, str], *, is_fifo: bool) -> dict[str, Any]:
    """Anybody may write the setting, so that what makes no sense in it is passed over."""
    try:
        found = json.loads(settings.get(SQS_SETTING, "{}"))
    except (ValueError, RecursionError):
        found = {}
    own = found if isinstance(found, dict) else {}
    texts = {name: _texts(own.get(name)) for name in ("attributes", "tags")}
    times = {name: value if isinstance(value := own.get(name), int) else 0 for name in ("created", "modified")}
    return {**texts, **times, "attributes": dict(_sound(texts["attributes"], is_fifo=is_fifo))}


def _texts(found: object) -> dict[str, str]:
    return {name: value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def _sound(attributes: Mapping[str, str], *, is_fifo: bool) -> Iterator[tuple[str, str]]:
    for name, value in attributes.items():
        with suppress(SqsError):
            yield from check_attributes({name: value}, is_fifo=is_fifo).items()


def _redrive_text(settings: Mapping[str, str], kept: str) -> str:
    """As it was given, where that still holds: settings may have been changed through another door."""
    target, count = settings.get(DEAD_LETTER, ""), settings.get(DELIVERIES, "0")
    if not target or count == "0":
        return ""
    if kept:
        policy = read_redrive_policy(kept)
        if (policy.target, str(policy.receives_max)) == (target, count):
            return kept
    return json.dumps({"deadLetterTargetArn": queue_arn(target), "maxReceiveCount": int(count)}, separators=(",", ":"))
