"""What the door's actions look like on the wire, in and out: JSON here, plain values there.

Bytes that are text travel as text, others in base64 under another name. `penstock.*` headers are options and notes of Penstock's own,
`sqs.*` those of its SQS door: they are read here, and are not among a message's headers.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from penstock.client.queues.redriving import Progress, Wanted
from penstock.client.queues.spans import milliseconds, moment, wall_ms
from penstock.client.queues.values import Attempt, Counts, DeadLetter, Delivery, Draft, Found, QueueView, as_bytes

DIGITS_MAX = 19
OWN_PREFIXES = ("penstock.", "sqs.")
GROUP, PRIORITY = "penstock.group", "penstock.priority"
PRIORITY_DEFAULT, PRIORITY_MAX = 4, 9
SOURCE, REASON, FAILED_AT, ATTEMPTS = "penstock.source", "penstock.reason", "penstock.failed-at", "penstock.attempts"

Json = dict[str, Any]


def draft_as_json(draft: Draft) -> Json:
    if draft.delay is not None and draft.at is not None:
        raise ValueError("delay and at exclude each other: say one of them")
    wire = {**_content("Body", as_bytes(draft.body, "body"))}
    if draft.key is not None:
        wire |= _content("Key", as_bytes(draft.key, "key"))
    if draft.headers:
        wire["Headers"] = [[name, _header_value(as_bytes(value, f"header {name!r}"))] for name, value in draft.headers.items()]
    if draft.priority is not None:
        wire["Priority"] = draft.priority
    if draft.delay is not None:
        wire["DelayMs"] = milliseconds(draft.delay, "delay")
    if draft.at is not None:
        wire["DeliverAtMs"] = wall_ms(draft.at, "at")
    if draft.ttl is not None:
        wire["TtlMs"] = milliseconds(draft.ttl, "ttl")
    return wire | ({"Group": draft.group} if draft.group else {}) | ({"Dedup": draft.dedup} if draft.dedup else {})


def delivery_of(told: Json, lease_ms: int | None) -> Delivery:
    """`lease_ms`: what was asked for; without it, the lease is as long as what is left of it."""
    headers = _headers(told)
    return Delivery(
        id=told["Id"],
        receipt=told["Handle"],
        body=_bytes(told, "Body") or b"",
        key=_bytes(told, "Key"),
        headers=_senders(headers),
        attempt=told["Attempt"],
        sent_at=moment(told["SentMs"]),
        deadline=moment(told["DeadlineMs"]),
        lease_ms=told["LeftMs"] if lease_ms is None else lease_ms,
        priority=_priority(headers.get(PRIORITY)),
        group=headers.get(GROUP, b"").decode(errors="replace"),
        dead_letter=_dead_letter(headers),
    )


def found_of(told: Json) -> Found:
    headers = _headers(told)
    return Found(
        id=told["Id"],
        state=told["State"],
        partition=told["Partition"],
        offset=told["Offset"],
        attempts=told["Attempts"],
        ready_at=moment(told["ReadyAtMs"]) if told.get("ReadyAtMs") else None,
        worker=told.get("Who") or "",
        sent_at=moment(told["SentMs"]),
        key=_bytes(told, "Key"),
        body=_bytes(told, "Body"),
        headers=_senders(headers),
        history=tuple(_attempt(each) for each in told.get("History") or ()),
        dead_letter=_dead_letter(headers),
    )


def counts_of(told: Json) -> Counts:
    return Counts(
        ready=told["Ready"],
        leased=told["Leased"],
        delayed=told["Delayed"],
        burying=told["Burying"],
        finished=told["Finished"],
        dropped=told["Dropped"],
        oldest_at=moment(told["OldestMs"]) if told["OldestMs"] else None,
        is_paused=told["IsPaused"],
    )


def view_of(told: Json) -> QueueView:
    return QueueView(told["Queue"], told["Partitions"], dict(told["Settings"]))


def wanted_as_json(wanted: Wanted) -> Json:
    filters = {
        "Reason": wanted.reason,
        "Source": wanted.source,
        "FailedAfterMs": wanted.failed_after_ms,
        "FailedBeforeMs": wanted.failed_before_ms,
        "Ids": list(wanted.ids),
    }
    wire = {"Target": wanted.to, "Filter": _given(filters), "PerSecondMax": wanted.rate, "Max": wanted.limit}
    return _given(wire) | {"IsDryRun": wanted.is_dry_run}


def progress_of(task: Json) -> Progress:
    return Progress(task["Handle"], task["Status"], task["Moved"], task["ToMove"], dict(task["ByTarget"]), task["Failure"])


def _given(members: Json) -> Json:
    return {name: value for name, value in members.items() if value}


def _content(name: str, content: bytes) -> Json:
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": b64encode(content).decode()}


def _header_value(content: bytes) -> object:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"Base64": b64encode(content).decode()}


def _bytes(told: Json, name: str) -> bytes | None:
    text = told.get(name)
    if text is not None:
        return bytes(text, "utf-8")
    encoded = told.get(f"{name}Base64")
    return None if encoded is None else b64decode(encoded)


def _headers(told: Json) -> dict[str, bytes]:
    pairs: Iterable[tuple[str, Any]] = told.get("Headers") or ()
    return {name: b64decode(value["Base64"]) if isinstance(value, dict) else (value or "").encode() for name, value in pairs}


def _senders(headers: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: value for name, value in headers.items() if not name.startswith(OWN_PREFIXES)}


def _number(text: bytes | None) -> int | None:
    return int(text) if text is not None and len(text) <= DIGITS_MAX and text.isdigit() else None


def _priority(text: bytes | None) -> int:
    """As the ledger reads it: what is no priority is as good as none."""
    number = _number(text)
    return PRIORITY_DEFAULT if number is None or number > PRIORITY_MAX else number


def _noted_moment(text: bytes | None) -> datetime | None:
    """Any Kafka client may have written it: what is no moment is as good as none."""
    number = _number(text)
    try:
        return None if number is None else moment(number)
    except (ValueError, OverflowError, OSError):
        return None


def _attempt(told: Json) -> Attempt:
    return Attempt(moment(told["TakenMs"]), moment(told["EndedMs"]), told.get("Who") or "", told.get("Reason") or "")


def _dead_letter(headers: Mapping[str, bytes]) -> DeadLetter | None:
    if SOURCE not in headers:
        return None
    return DeadLetter(
        source=headers[SOURCE].decode(errors="replace"),
        reason=headers.get(REASON, b"").decode(errors="replace"),
        failed_at=_noted_moment(headers.get(FAILED_AT)),
        **_attempts(headers.get(ATTEMPTS)),
    )


def _attempts(text: bytes | None) -> Json:
    """A note that makes no sense is as good as none: any Kafka client may have written it."""
    try:
        told = json.loads(text or b"")
        failed = tuple(Attempt(moment(one["taken"]), moment(one["ended"]), str(one["who"]), str(one["reason"])) for one in told["failures"])
        return {"deliveries": int(told["count"]), "attempts": failed}
    except (ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError):
        return {"deliveries": 0, "attempts": ()}
