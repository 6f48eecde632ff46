"""The actions `Penstock.*` on messages: Send, Receive, Settle, Cancel, Find, Peek.

Their requests and answers are described in native_shapes.py. What a queue may refuse it refuses itself (bounds of options, handles); here
only the form is looked at. Errors are QueueRefusals.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.broker.queues.calls import (
    WAIT_SECONDS_MAX,
    Code,
    Draft,
    Lent,
    Order,
    Peeked,
    QueueRefusal,
    Sent,
    State,
    Verb,
    Verdict,
    size_of_peeked,
)
from penstock.http.sqs.answers import Answer, messages_answer
from penstock.http.sqs.bytes_as_text import base64_text, text_of
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.native_shapes import COUNT_MAX
from penstock.queues.headers import TIME_MS_MAX

PEEK_DEFAULT = 10
_VERBS = {str(verb): verb for verb in Verb if verb is not Verb.UNDO}  # That one is said by nodes among themselves.

Headers = tuple[tuple[str, bytes | None], ...]


async def send(desk: Desk, call: Call) -> Answer:
    messages: list[dict[str, Any]] = call.body["Messages"]
    check_count("Messages", messages)
    results = await desk.queues.send(call.body["Queue"], [_draft(message) for message in messages])
    return {"Results": [_sent(result) for result in results]}


async def receive(desk: Desk, call: Call) -> Answer:
    body = call.body
    wait_ms = number(body, "WaitMs", 0, int(WAIT_SECONDS_MAX * 1_000), 0)
    taking = desk.queues.take(
        body["Queue"],
        number(body, "Max", 1, COUNT_MAX, 1),
        lease_ms=body.get("LeaseMs"),
        wait_s=wait_ms / 1_000,
        who=body.get("Who", call.who),
        attempt_id=body.get("AttemptId", ""),
        is_again=body.get("IsAgain", False),
        held=call.held,
    )
    lent = await (desk.waiting(call, taking) if wait_ms else taking)
    wall_ms = desk.env.wall_ms()
    size = sum(len(each.body) for each in lent)
    return await messages_answer(desk.env, lent, lambda each: _lent(each, wall_ms), size=size) if lent else {}


async def settle(desk: Desk, call: Call) -> Answer:
    entries: list[dict[str, Any]] = call.body["Orders"]
    check_count("Orders", entries)
    who, delay_ms_max = call.body.get("Who", call.who), TIME_MS_MAX - desk.env.wall_ms()
    verdicts = await desk.queues.settle(call.body["Queue"], [_order(entry, who, delay_ms_max) for entry in entries])
    return {"Verdicts": [_verdict(each) for each in verdicts]}


async def cancel(desk: Desk, call: Call) -> Answer:
    ids: list[str] = call.body["Ids"]
    check_count("Ids", ids)
    return {"Verdicts": [_verdict(each) for each in await desk.queues.cancel(call.body["Queue"], ids)]}


async def find(desk: Desk, call: Call) -> Answer:
    found = await desk.queues.find(call.body["Queue"], call.body["Id"])
    if found is not None and call.held is not None:
        call.held.add(size_of_peeked(found))
    return {} if found is None else {"Message": _peeked(found)}


async def peek(desk: Desk, call: Call) -> Answer:
    body = call.body
    states = [_state(text) for text in body.get("States", ())]
    count = number(body, "Max", 1, COUNT_MAX, PEEK_DEFAULT)
    after = await _place_of(desk, body["Queue"], body["After"]) if body.get("After") else None
    peeked = await desk.queues.peek(body["Queue"], states=states, count=count, after=after, held=call.held)
    return await messages_answer(desk.env, peeked, _peeked, size=sum(map(size_of_peeked, peeked)))


async def _place_of(desk: Desk, queue: str, message_id: str) -> tuple[int, int]:
    """Most ids say where their message is. That of a dead letter, or of one that came back, says where it was: such a one is looked for,
    as far as it is not finished. So there is a place, too."""
    partition, slash, offset = message_id.partition("/")
    if slash and all(text.isascii() and text.isdigit() and len(text) < 19 for text in (partition, offset)):
        return int(partition), int(offset)
    found = await desk.queues.find(queue, message_id)
    if found is None:
        raise wrong(f"After must be the id of a message of this queue, or its partition/offset, not {message_id!r}")
    return found.partition, found.offset


# Reading


def wrong(words: str) -> QueueRefusal:
    return QueueRefusal(Code.INVALID, words)


def check_count(name: str, items: Sequence[object]) -> None:
    if not 1 <= len(items) <= COUNT_MAX:
        raise wrong(f"{name} must have 1 to {COUNT_MAX} items, not {len(items)}")


def number(body: Mapping[str, Any], name: str, low: int, high: int, default: int) -> int:
    value: int = body.get(name, default)
    if not low <= value <= high:
        raise wrong(f"{name} must lie between {low} and {high}, not {value}")
    return value


def _draft(message: Mapping[str, Any]) -> Draft:
    if len(message) == 1 and message.get("Body") is not None:
        return Draft(message["Body"].encode())  # Most are.
    body = _bytes_of(message, "Body")
    if body is None:
        raise wrong("a message must have a Body or a BodyBase64")
    return Draft(
        body, _bytes_of(message, "Key"), _headers_of(message.get("Headers") or ()), message.get("Priority"), message.get("DelayMs"),
        message.get("DeliverAtMs"), message.get("TtlMs"), message.get("Group") or "", message.get("Dedup") or "",
    )  # fmt: skip


def _bytes_of(message: Mapping[str, Any], name: str) -> bytes | None:
    text: str | None
    text, blob = message.get(name), message.get(f"{name}Base64")
    if text is not None and blob is not None:
        raise wrong(f"{name} is given twice: as text and in base64")
    if blob is not None:
        return b64decode(blob)
    return None if text is None else text.encode()


def _headers_of(pairs: Sequence[Any]) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        match pair:
            case [str(name), None]:
                headers.append((name, None))
            case [str(name), str(text)]:
                headers.append((name, text.encode()))
            case [str(name), {"Base64": str(blob)}]:
                headers.append((name, _decoded(name, blob)))
            case _:
                raise wrong('a header is a pair of its name and its value: a string, null, or {"Base64": "…"}')
        if name.startswith("penstock."):
            raise wrong(f"the header {name!r} is written from the options of a message; give Priority, DelayMs, Group and so on instead")
    return tuple(headers)


def _decoded(name: str, blob: str) -> bytes:
    try:
        return b64decode(blob, validate=True)
    except ValueError:
        raise wrong(f"the header {name!r} is not base64") from None


def _order(entry: Mapping[str, Any], who: str, delay_ms_max: int) -> Order:
    verb = _VERBS.get(entry["Verb"])
    if verb is None:
        raise wrong(f"Verb must be one of {', '.join(_VERBS)}, not {entry['Verb']!r}")
    if entry.get("DelayMs") is not None:
        number(entry, "DelayMs", 0, delay_ms_max, 0)
    return Order(entry["Handle"], verb, entry.get("DelayMs"), entry.get("Reason") or "", who)


def _state(text: str) -> State:
    try:
        return State(text)
    except ValueError:
        raise wrong(f"a state is one of {', '.join(State)}, not {text!r}") from None


# Writing


def _sent(result: Sent | QueueRefusal) -> dict[str, Any]:
    if isinstance(result, QueueRefusal):
        return _refused(result)
    return {
        "Id": result.id, "Partition": result.partition, "Offset": result.offset, "SentMs": result.sent_ms,
        "IsDuplicate": result.is_duplicate,
    }  # fmt: skip


def _refused(refusal: QueueRefusal) -> dict[str, Any]:
    return {"Code": refusal.code, "Message": refusal.words}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    if verdict.refusal is not None:
        return _refused(verdict.refusal)
    return {"Outcome": verdict.outcome, "DeadlineMs": verdict.deadline_ms} if verdict.deadline_ms else {"Outcome": verdict.outcome}


def _lent(lent: Lent, wall_ms: int) -> dict[str, Any]:
    """With the time that is left of the lease: clients do not have our clock."""
    shown: dict[str, Any] = {
        "Id": lent.id, "Handle": lent.handle, "Partition": lent.partition, "Offset": lent.offset, "Attempt": lent.attempt,
        "DeadlineMs": lent.deadline_ms, "LeftMs": max(0, lent.deadline_ms - wall_ms), "FirstTakenMs": lent.first_taken_ms,
        "SentMs": lent.sent_ms, **_shown("Body", lent.body),
    }  # fmt: skip
    if lent.key is not None:
        shown |= _shown("Key", lent.key)
    if lent.headers:
        shown |= _shown_headers(lent.headers)
    return shown


def _peeked(peeked: Peeked) -> dict[str, Any]:
    history = [{"TakenMs": each.taken_ms, "EndedMs": each.ended_ms, "Who": each.who, "Reason": each.reason} for each in peeked.history]
    return {
        "Id": peeked.id, "Partition": peeked.partition, "Offset": peeked.offset, "State": peeked.state, "Attempts": peeked.attempts,
        "ReadyAtMs": peeked.ready_at_ms, "Who": peeked.who, "SentMs": peeked.sent_ms,
        **_shown("Body", peeked.body), **_shown("Key", peeked.key), **_shown_headers(peeked.headers),
        **({"History": history} if history else {}),
    }  # fmt: skip


def _shown(name: str, content: bytes | None) -> dict[str, str]:
    if content is None:
        return {}
    text = text_of(content)
    return {f"{name}Base64": base64_text(content)} if text is None else {name: text}


def _shown_headers(headers: Headers) -> dict[str, Any]:
    return {"Headers": [[name, _header_value(content)] for name, content in headers]} if headers else {}


def _header_value(content: bytes | None) -> object:
    text = None if content is None else text_of(content)
    return {"Base64": base64_text(content)} if text is None and content is not None else text
