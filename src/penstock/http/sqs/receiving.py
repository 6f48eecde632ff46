"""ReceiveMessage.

The answer has no `Messages` where there are none. What an attribute's digest covers is what is returned.
A record that came through another door may have a body that is no text: it is given in base64, and an attribute says so. Its own headers
show as attributes, as far as AWS's ten allow.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.broker.queues.calls import Lent
from penstock.http.sqs.addresses import ACCOUNT, queue_arn
from penstock.http.sqs.answers import LARGE_BYTES, Answer, messages_answer
from penstock.http.sqs.bytes_as_text import base64_text, text_of
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.errors import invalid
from penstock.http.sqs.message_attributes import (
    ATTRIBUTES_MAX,
    Attribute,
    Attributes,
    NameFilter,
    body_digest,
    body_digests,
    digest,
    shown,
    unpack_attributes,
)
from penstock.http.sqs.queue_records import SqsQueue
from penstock.http.sqs.sending import TRACE_HEADER, WRONG_QUEUE_TYPE, sequence_number
from penstock.http.sqs.texts import MESSAGES_MAX, VISIBILITY_SECONDS_MAX, WAIT_SECONDS_MAX, check_name, number_of
from penstock.queues import headers as names

BODY_ENCODING = "penstock.body-encoding"
NONE_PICKED = NameFilter(())
TIME_DIGITS_MAX = len(str(names.TIME_MS_MAX))
_OWN_PREFIXES = ("penstock.", "sqs.")


async def receive_message(desk: Desk, call: Call) -> Answer:
    queue, body = desk.queue_of(call), call.body
    count = body.get("MaxNumberOfMessages")
    if count is not None and not 1 <= count <= MESSAGES_MAX:
        raise invalid("MaxNumberOfMessages", count, f"Must be between 1 and {MESSAGES_MAX}, if provided.")
    wait_s = number_of(body, "WaitTimeSeconds", 0, WAIT_SECONDS_MAX)
    lease_s = number_of(body, "VisibilityTimeout", 0, VISIBILITY_SECONDS_MAX)
    if wait_s is None:
        wait_s = queue.wait_s
    lease_ms = None if lease_s is None else lease_s * 1_000
    attempt_id = _attempt_id(queue, body["ReceiveRequestAttemptId"]) if "ReceiveRequestAttemptId" in body else ""
    taking = desk.queues.take(
        queue.name, count or 1, lease_ms=lease_ms, wait_s=wait_s, who=call.who, attempt_id=attempt_id, held=call.held
    )  # fmt: skip
    lent = await (desk.waiting(call, taking) if wait_s else taking)
    if not lent:
        return {}
    names_none = "AttributeNames" not in body and "MessageSystemAttributeNames" not in body
    if names_none and (plain := _plain_messages(lent)) is not None:
        return {"Messages": plain}
    return await _answer(desk, queue, body, lent)


async def _answer(desk: Desk, queue: SqsQueue, body: Mapping[str, Any], lent: Sequence[Lent]) -> Answer:
    system = frozenset((*body.get("AttributeNames", ()), *body.get("MessageSystemAttributeNames", ())))
    picked = NameFilter(body["MessageAttributeNames"]) if "MessageAttributeNames" in body else NONE_PICKED
    size = sum(len(each.body) for each in lent)
    return await messages_answer(desk.env, lent, lambda each: _message(queue, each, system, picked), size=size)


def _attempt_id(queue: SqsQueue, attempt_id: str) -> str:
    if not queue.is_fifo:
        raise invalid("ReceiveRequestAttemptId", attempt_id, WRONG_QUEUE_TYPE)
    check_name("ReceiveRequestAttemptId", attempt_id)
    return attempt_id


def _plain_messages(lent: Sequence[Lent]) -> list[dict[str, str]] | None:
    """What `_message` would show of each where no attributes are asked for. None: look closer, since one of them has headers or is no text,
    or they are long."""
    bodies = [each.body for each in lent]
    if any([each.headers for each in lent]) or sum(map(len, bodies)) > LARGE_BYTES:
        return None
    try:
        return [
            {"MessageId": each[0], "ReceiptHandle": each[1], "MD5OfBody": digest, "Body": body.decode()}
            for each, digest, body in zip(lent, body_digests(bodies), bodies, strict=True)
        ]
    except UnicodeDecodeError:
        return None


def _message(queue: SqsQueue, lent: Lent, system: frozenset[str], picked: NameFilter) -> dict[str, Any]:
    text = text_of(lent.body)
    body = base64_text(lent.body) if text is None else text
    message: dict[str, Any] = {
        "MessageId": lent.id,
        "ReceiptHandle": lent.handle,
        "MD5OfBody": body_digest(lent.body if text is not None else body.encode()),
        "Body": body,
    }
    if system:
        attributes = _system_attributes(queue, lent)
        is_all = any(name.lower() == "all" for name in system)
        if wanted := attributes if is_all else {name: value for name, value in attributes.items() if name in system}:
            message["Attributes"] = wanted
    own = picked.pick(_attributes(lent)) if lent.headers else {}
    if text is None:
        own = {**own, BODY_ENCODING: Attribute("String", "base64")}
    if own:
        message["MessageAttributes"] = shown(own)
        message["MD5OfMessageAttributes"] = digest(own)
    return message


def _system_attributes(queue: SqsQueue, lent: Lent) -> dict[str, str]:
    texts = {name: text_of(content) or "" for name, content in lent.headers if content is not None and name.startswith(_OWN_PREFIXES)}
    found = {
        "SenderId": texts.get(names.SQS_SENDER, ACCOUNT),
        "SentTimestamp": _sent_at(queue, lent, texts),
        "ApproximateReceiveCount": str(lent.attempt + _attempts_before(texts)),
        "ApproximateFirstReceiveTimestamp": str(lent.first_taken_ms),
    }
    if queue.is_fifo:
        found["SequenceNumber"] = sequence_number(lent.offset)
        if dedup := texts.get(names.DEDUP) or texts.get(names.SENT_DEDUP):
            found["MessageDeduplicationId"] = dedup
    if group := texts.get(names.GROUP):
        found["MessageGroupId"] = group
    if trace := texts.get(names.SQS_SYSTEM):
        found[TRACE_HEADER] = trace
    if source := texts.get(names.SOURCE):
        found["DeadLetterQueueSourceArn"] = queue_arn(source)
    return found


def _sent_at(queue: SqsQueue, lent: Lent, texts: Mapping[str, str]) -> str:
    """A dead letter keeps the time of its sending, but for FIFO queues, where the move is a new one; as AWS has it."""
    noted = "" if queue.is_fifo or names.SOURCE not in texts else texts.get(names.SENT_AT, "")
    is_time = noted.isascii() and noted.isdigit() and len(noted) <= TIME_DIGITS_MAX  # Anybody may write headers.
    return noted if is_time else str(lent.sent_ms)


def _attempts_before(texts: Mapping[str, str]) -> int:
    """How often a dead letter was received before it became one: the count goes on."""
    if names.SOURCE not in texts or names.ATTEMPTS not in texts:
        return 0
    try:
        count = json.loads(texts[names.ATTEMPTS])["count"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0  # Anybody may write headers.
    return count if isinstance(count, int) else 0


def _attributes(lent: Lent) -> Attributes:
    attributes: Attributes = {}
    for name, content in lent.headers:
        if content is None:
            continue
        if name == names.SQS_ATTRIBUTES:
            attributes |= unpack_attributes(content)
        elif not name.startswith(_OWN_PREFIXES) and content and len(attributes) < ATTRIBUTES_MAX:
            text = text_of(content)
            attributes[name] = Attribute("Binary", content) if text is None else Attribute("String", text)
    return attributes
