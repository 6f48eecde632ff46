"""Messages and settings of queues, as people and programs read them.

Bytes that are not UTF-8 are written as {"hex": "…"} in JSON, so that nothing is lost; for people they are shown as Python would.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from penstock.cli.tables import bytes_as_json, print_table
from penstock.cli.times import spoken
from penstock.client.queues import AsyncQueueMessage, Attempt, DeadLetter, Found

BODY_SHOWN_MAX = 60


def received_as_json(message: AsyncQueueMessage) -> dict[str, Any]:
    return {
        "id": message.id,
        "attempt": message.attempt,
        "sent": _time(message.sent_at),
        "deadline": _time(message.deadline),
        "receipt": message.receipt,
        "key": bytes_as_json(message.key),
        "body": bytes_as_json(message.body),
        "headers": {name: bytes_as_json(value) for name, value in message.headers.items()},
        "priority": message.priority,
        "group": message.group or None,
        **_dead_as_json(message.dead_letter),
    }


def found_as_json(found: Found) -> dict[str, Any]:
    return {
        "id": found.id,
        "state": found.state,
        "attempts": found.attempts,
        "sent": _time(found.sent_at),
        "ready_at": None if found.ready_at is None else _time(found.ready_at),
        "worker": found.worker or None,
        "partition": found.partition,
        "offset": found.offset,
        "key": bytes_as_json(found.key),
        "body": bytes_as_json(found.body),
        "headers": {name: bytes_as_json(value) for name, value in found.headers.items()},
        "history": [_attempt_as_json(each) for each in found.history],
        **_dead_as_json(found.dead_letter),
    }


def print_found(founds: Sequence[Found]) -> None:
    """A line for each."""
    rows = [[each.id, each.state, each.attempts, _time(each.sent_at), _last_reason(each), shown(each.body)] for each in founds]
    print_table(["id", "state", "attempts", "sent", "last failure", "body"], rows)


def print_history(found: Found) -> None:
    """One message, with what happened to it."""
    click.echo(
        f"{found.id}  {found.state}  {found.attempts} attempt{'s' if found.attempts != 1 else ''}  sent {_time(found.sent_at)}  "
        f"partition {found.partition} offset {found.offset}"
    )
    if found.ready_at is not None:
        ends = "leased until" if found.state == "leased" else "ready at"
        click.echo(f"{ends} {_time(found.ready_at)}" + (f" by {found.worker}" if found.worker and found.state == "leased" else ""))
    if found.dead_letter is not None:
        click.echo(f"from {found.dead_letter.source}: {found.dead_letter.reason}")
    click.echo(f"body: {shown(found.body, length_max=1_000)}")
    attempts = found.history or (found.dead_letter.attempts if found.dead_letter is not None else ())
    if attempts:
        print_table(["attempt", "taken", "took", "worker", "reason"], [_attempt_row(place, each) for place, each in enumerate(attempts, 1)])


def shown(body: bytes | None, length_max: int = BODY_SHOWN_MAX) -> str:
    if body is None:
        return "(not in the log any more)"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = repr(body)[2:-1]
    text = " ".join(text.split())
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"


def shown_setting(name: str, value: str) -> str:
    """Milliseconds with what they are."""
    return f"{value} ({spoken(int(value))})" if name.endswith(".ms") and value.isdigit() and value != "0" else value


def _last_reason(found: Found) -> str | None:
    if found.history:
        return found.history[-1].reason
    return found.dead_letter.reason if found.dead_letter is not None else None


def _attempt_row(place: int, attempt: Attempt) -> list[object]:
    took = spoken(round((attempt.ended_at - attempt.taken_at).total_seconds() * 1000))
    return [place, _time(attempt.taken_at), took, attempt.worker or None, attempt.reason or None]


def _attempt_as_json(attempt: Attempt) -> dict[str, Any]:
    return {"taken": _time(attempt.taken_at), "ended": _time(attempt.ended_at), "worker": attempt.worker, "reason": attempt.reason}


def _dead_as_json(dead: DeadLetter | None) -> dict[str, Any]:
    if dead is None:
        return {}
    failed = None if dead.failed_at is None else _time(dead.failed_at)
    attempts = [_attempt_as_json(each) for each in dead.attempts]
    told = {"source": dead.source, "reason": dead.reason, "failed": failed, "deliveries": dead.deliveries, "attempts": attempts}
    return {"dead_letter": told}


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
