"""What a report on dead letters is asked for, read from the job's options and refused by name where it cannot be done."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.pipeline.options import Options, WrongOption

IDS_MAX = 100_000  # A node takes so many of one redrive.


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters are to be sent back: those that fit everything that is given."""

    queue: str = ""  # Where they came from.
    reason: str = ""  # A part of the reason as it was given.
    kind: str = ""  # A part of the reason without ids and numbers, as the report shows it.
    worker: str = ""  # One in whose hands it failed, whether the last time or before.
    after_ms: int = 0
    before_ms: int = 0


@dataclass(frozen=True, slots=True)
class Wishes:
    queues: list[str]  # Those that hold the dead letters.
    report: str
    redrive: str  # The file for the list; "": none is wanted.
    window_s: int | None  # None: one that suits the time span.
    last_s: float | None  # None: everything.
    choice: Choice
    limit: int  # Of the list.


def wishes(options: Mapping[str, str]) -> Wishes:
    """Options that are empty count as not given."""
    given = {name: text.strip() for name, text in options.items() if text.strip()}
    queues = [name.strip() for name in given.get("queues", "").split(",") if name.strip()]
    if not queues:
        raise WrongOption("no queue of dead letters was named", "add --set queues=NAME,NAME")
    window_s = _seconds(given, "window")
    if window_s is not None and (window_s < 1 or window_s % 1):
        raise WrongOption(f"window is {given['window']!r}", "write whole seconds, for example 60s")
    choice = Choice(
        given.get("source", ""), given.get("reason", ""), given.get("kind", ""), given.get("worker", ""),
        _moment_ms(given, "failed-after"), _moment_ms(given, "failed-before"),
    )  # fmt: skip
    return Wishes(
        queues,
        given.get("report", "dead-letters.html"),
        given.get("redrive", ""),
        None if window_s is None else int(window_s),
        _seconds(given, "last"),
        choice,
        Options(given).whole("limit", IDS_MAX, low=1, high=IDS_MAX),
    )


def _seconds(given: Mapping[str, str], name: str) -> float | None:
    if given.get(name, "").isdigit():
        raise WrongOption(f"{name} is {given[name]!r}, without a unit", f"write {given[name]}s, or a number and ms, m, h or d")
    return Options(given).seconds(name, None)


def _moment_ms(given: Mapping[str, str], name: str) -> int:
    text = given.get(name)
    if text is None:
        return 0
    if text.startswith("@") and text[1:].isascii() and text[1:].isdigit():
        return int(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongOption(f"{name} is {text!r}, not a time", "write 2026-01-31T12:00:00Z, or @ and milliseconds") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
