"""SendMessage and SendMessageBatch.

A message becomes a draft: the body is the record's value, attributes are one header (message_attributes.py), group, deduplication id and
delay are options of the queue. Extensions `penstock.priority`, `.delay` and `.ttl` (seconds), `.deliver-at` (milliseconds), `.dedup` and
`.key` travel as attributes of either kind; they are not stored as such, do not count, and no receiver sees them.
In a batch each message succeeds or fails by itself, except for what AWS refuses as a whole: the entries' ids, the size of all of them
together, and what a FIFO queue must be told.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.broker.queues.calls import Draft, QueueRefusal, Sent
from penstock.http.sqs.answers import Answer
from penstock.http.sqs.batches import Failures, check_entries
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.errors import BATCH_TOO_LONG, INVALID_PARAMETER_VALUE, SqsError, invalid, missing
from penstock.http.sqs.message_attributes import (
    ATTRIBUTES_MAX,
    Attributes,
    body_digest,
    body_digests,
    digest,
    pack_attributes,
    read_attributes,
    weight,
)
from penstock.http.sqs.queue_attributes import EXTENSION_PREFIX
from penstock.http.sqs.queue_records import SqsQueue
from penstock.http.sqs.refusals import as_error
from penstock.http.sqs.texts import DELAY_SECONDS_MAX, check_body, check_name, is_xml_text
from penstock.queues.headers import SQS_ATTRIBUTES, SQS_SENDER, SQS_SYSTEM, TIME_MS_MAX

BATCH_BYTES_MAX = 1 << 20
TRACE_HEADER = "AWSTraceHeader"
SECONDS_MAX = TIME_MS_MAX // 1_000

PLAIN_MEMBERS = 2  # QueueUrl and MessageBody; in a batch Id and MessageBody.
_PLAIN = Draft(b"")[1:]
_new_tuple = tuple.__new__  # Half the cost of calling a named tuple's class.

WRONG_QUEUE_TYPE = "The request include parameter that is not valid for this queue type."
NO_DEDUP = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"


class Options(NamedTuple):
    """Extensions of one message."""

    priority: int | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    ttl_ms: int | None = None
    dedup: str = ""
    key: bytes | None = None


# A message that is fit to be sent, and the answer that its sender gets, as far as it is known: the entry's id, digests.
Letter = tuple[Draft, dict[str, str]]


async def send_message(desk: Desk, call: Call) -> Answer:
    queue = desk.queue_of(call)
    letter = letter_of(queue, call.body, call, {})
    (result,) = await desk.queues.send(queue.name, [letter[0]])
    if isinstance(result, QueueRefusal):
        raise as_error(result)
    return _success(queue, letter, result)


async def send_message_batch(desk: Desk, call: Call) -> Answer:
    queue = desk.queue_of(call)
    entries: list[dict[str, Any]] = call.body["Entries"]
    check_entries(entries, "SendMessageBatchRequestEntry")
    _check_whole(queue, entries, call)
    failures = Failures()
    letters = _plain_letters(queue, entries, call) or _letters(queue, entries, call, failures)
    results = await desk.queues.send(queue.name, [draft for draft, _ in letters]) if letters else []
    successful = []
    for letter, result in zip(letters, results, strict=True):
        if isinstance(result, QueueRefusal):
            failures.add(letter[1]["Id"], as_error(result))
        else:
            successful.append(_success(queue, letter, result))
    return failures.beside(successful)


def _letters(queue: SqsQueue, entries: list[dict[str, Any]], call: Call, failures: Failures) -> list[Letter]:
    letters = []
    for entry in entries:
        try:
            letters.append(letter_of(queue, entry, call, {"Id": entry["Id"]}))
        except SqsError as error:
            failures.add(entry["Id"], error)
    return letters


def _plain_letters(queue: SqsQueue, entries: list[dict[str, Any]], call: Call) -> list[Letter] | None:
    """A quick yes to what `letter_of` would say to each: nothing but bodies, as most batches are. None: look closer."""
    if queue.is_fifo or call.key_id or max(map(len, entries)) != PLAIN_MEMBERS:
        return None
    texts = [entry["MessageBody"] for entry in entries]
    bodies = [text.encode() for text in texts]
    if not all(bodies) or max(map(len, bodies)) > queue.size_max or not (call.is_plain or is_xml_text("".join(texts))):
        return None
    return [
        (_new_tuple(Draft, (body, *_PLAIN)), {"Id": entry["Id"], "MD5OfMessageBody": digest})
        for entry, body, digest in zip(entries, bodies, body_digests(bodies), strict=True)
    ]


def letter_of(queue: SqsQueue, entry: Mapping[str, Any], call: Call, answer: dict[str, str]) -> Letter:
    """The message of a request or of a batch's entry; `answer` is how its answer begins, in a batch with an id. Raises SqsError."""
    text: str = entry["MessageBody"]
    if not text:
        raise missing("MessageBody")
    if not call.is_plain:
        check_body(text)
    body = text.encode()
    is_in_batch = bool(answer)
    answer["MD5OfMessageBody"] = body_digest(body)
    if len(entry) == PLAIN_MEMBERS and len(body) <= queue.size_max and not call.key_id and not queue.is_fifo:
        return _new_tuple(Draft, (body, *_PLAIN)), answer  # Most are: nothing but a body.
    headers: list[tuple[str, bytes | None]] = []
    size, options = len(body), Options()
    if given := (entry.get("MessageAttributes") or entry.get("MessageSystemAttributes")):
        size += _add_attributes(entry, headers, answer)
        options = _options(given, entry.get("MessageSystemAttributes") or {})
    if size > queue.size_max:
        what = "cannot be validated" if is_in_batch else "are invalid"
        raise SqsError(
            INVALID_PARAMETER_VALUE, f"One or more parameters {what}. Reason: Message must be shorter than {queue.size_max} bytes."
        )
    if call.key_id:
        headers.append((SQS_SENDER, call.key_id.encode()))
    group, dedup = _group(queue, entry), _dedup(queue, entry, body) or options.dedup
    delay_ms = options.delay_ms if options.delay_ms is not None or options.deliver_at_ms is not None else _delay_ms(queue, entry)
    draft = Draft(body, options.key, tuple(headers), options.priority, delay_ms, options.deliver_at_ms, options.ttl_ms, group, dedup)
    return draft, answer


def _success(queue: SqsQueue, letter: Letter, sent: Sent) -> dict[str, str]:
    answer = letter[1]
    answer["MessageId"] = sent.id
    if queue.is_fifo:
        answer["SequenceNumber"] = sequence_number(sent.offset)
    return answer


def sequence_number(offset: int) -> str:
    """Twenty digits, and larger for every later message of a group: the groups of a FIFO queue stay in their partitions."""
    return f"{offset:020d}"


# Attributes


def _add_attributes(entry: Mapping[str, Any], headers: list[tuple[str, bytes | None]], digests: dict[str, str]) -> int:
    """Returns how many bytes count."""
    counted = 0
    given = read_attributes(entry.get("MessageAttributes") or {})
    own = {name: each for name, each in given.items() if not name.startswith(EXTENSION_PREFIX)}
    if given:
        digests["MD5OfMessageAttributes"] = digest(given)
    if own:
        if len(own) > ATTRIBUTES_MAX:
            words = f"Number of message attributes [{len(own)}] exceeds the allowed maximum [{ATTRIBUTES_MAX}]."
            raise SqsError(INVALID_PARAMETER_VALUE, words)
        headers.append((SQS_ATTRIBUTES, pack_attributes(own)))
        counted = weight(own)
    system = read_attributes(entry.get("MessageSystemAttributes") or {}, is_system=True)
    known = {name: each for name, each in system.items() if not name.startswith(EXTENSION_PREFIX)}
    if known:
        _check_system(known)
        digests["MD5OfMessageSystemAttributes"] = digest(known)
        headers.append((SQS_SYSTEM, known[TRACE_HEADER].content))
    return counted


def _check_system(attributes: Attributes) -> None:
    for name, each in attributes.items():
        if name != TRACE_HEADER:
            raise SqsError(INVALID_PARAMETER_VALUE, f"Message system attribute name '{name}' is invalid.")
        if each.type != "String":
            raise SqsError(INVALID_PARAMETER_VALUE, f"Message system attribute '{name}' must be of type 'String'.")


def _options(*maps: Mapping[str, Mapping[str, Any]]) -> Options:
    texts = {name: str(each.get("StringValue", "")) for given in maps for name, each in given.items() if name.startswith(EXTENSION_PREFIX)}
    found: dict[str, Any] = {}
    for name, text in texts.items():
        match name.removeprefix(EXTENSION_PREFIX):
            case "priority":
                found["priority"] = _number(name, text, 9)
            case "delay":
                found["delay_ms"] = _milliseconds(name, text)
            case "ttl":
                found["ttl_ms"] = _milliseconds(name, text)
            case "deliver-at":
                found["deliver_at_ms"] = _number(name, text, TIME_MS_MAX)
            case "dedup":
                check_name(name, text)
                found["dedup"] = text
            case "key":
                found["key"] = text.encode()
            case _:
                raise invalid(name, text, "Penstock has no such option for messages.")
    return Options(**found)


def _number(name: str, text: str, high: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) > high:
        raise invalid(name, text, f"Must be a whole number from 0 to {high}.")
    return int(text)


def _milliseconds(name: str, text: str) -> int:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= SECONDS_MAX:  # Also where it is no number at all.
        raise invalid(name, text, f"Must be a number of seconds from 0 to {SECONDS_MAX}.")
    return round(seconds * 1_000)


# What FIFO queues want, and others do not


def _group(queue: SqsQueue, entry: Mapping[str, Any]) -> str:
    group: str | None = entry.get("MessageGroupId")
    if group is None:
        if queue.is_fifo:
            raise missing("MessageGroupId")
        return ""
    check_name("MessageGroupId", group)
    return group


def _dedup(queue: SqsQueue, entry: Mapping[str, Any], body: bytes) -> str:
    dedup: str | None = entry.get("MessageDeduplicationId")
    if dedup is not None:
        check_name("MessageDeduplicationId", dedup)
        if not queue.is_fifo:
            raise invalid("MessageDeduplicationId", dedup, WRONG_QUEUE_TYPE)
        return dedup
    if not queue.is_fifo:
        return ""
    if not queue.hashes_bodies:
        raise SqsError(INVALID_PARAMETER_VALUE, NO_DEDUP)
    return hashlib.sha256(body).hexdigest()


def _delay_ms(queue: SqsQueue, entry: Mapping[str, Any]) -> int | None:
    seconds: int | None = entry.get("DelaySeconds")
    if seconds is None:
        return None
    if queue.is_fifo:
        if seconds:
            raise invalid("DelaySeconds", seconds, WRONG_QUEUE_TYPE)
        return None  # 0 is the queue's own delay here, as AWS has it.
    if not 0 <= seconds <= DELAY_SECONDS_MAX:
        raise invalid("DelaySeconds", seconds, f"DelaySeconds must be >= 0 and <= {DELAY_SECONDS_MAX}.")
    return seconds * 1_000


def _check_whole(queue: SqsQueue, entries: list[dict[str, Any]], call: Call) -> None:
    """What AWS refuses a whole batch for, besides the ids."""
    if queue.is_fifo:
        if not queue.hashes_bodies and any(entry.get("MessageDeduplicationId") is None for entry in entries):
            raise SqsError(INVALID_PARAMETER_VALUE, NO_DEDUP)
        if any(entry.get("MessageGroupId") is None for entry in entries):
            raise SqsError(INVALID_PARAMETER_VALUE, "The request must contain the parameter MessageGroupId.")
    if call.size > BATCH_BYTES_MAX and (size := sum(map(_entry_bytes, entries))) > BATCH_BYTES_MAX:
        raise SqsError(BATCH_TOO_LONG, f"Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. You have sent {size} bytes.")


def _entry_bytes(entry: Mapping[str, Any]) -> int:
    """Before anything is checked: a value in base64 has three bytes for four characters."""
    size = len(entry["MessageBody"].encode())
    for name, value in (entry.get("MessageAttributes") or {}).items():
        if not name.startswith(EXTENSION_PREFIX):
            size += len(name.encode()) + len((value.get("DataType") or "").encode())
            size += len((value.get("StringValue") or "").encode())
            blob = value.get("BinaryValue") or ""
            size += len(blob) // 4 * 3 - blob[-2:].count("=")
    return size
