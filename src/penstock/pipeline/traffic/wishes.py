"""What a report is asked for, read from the job's options and refused by name where it cannot be done."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.pipeline.options import Options, WrongOption


@dataclass(frozen=True, slots=True)
class Wishes:
    topics: list[str]
    report: str
    window_s: int | None  # None: one that suits the time span.
    last_s: float | None  # None: everything.
    expected_rate: float | None  # Records a second; None: as the windows before say.
    watch_s: float
    every_s: float
    groups: list[str]  # None named means all.
    samples: str
    event_time: str
    keys: int


def wishes(options: Mapping[str, str]) -> Wishes:
    """Options that are empty count as not given."""
    given = {name: text.strip() for name, text in options.items() if text.strip()}
    topics = _names(given.get("topics", ""))
    if not topics:
        raise WrongOption("no topic was named to report on", "add --set topics=NAME,NAME")
    window_s = _seconds(given, "window", None)
    if window_s is not None and (window_s < 1 or window_s % 1):
        raise WrongOption(f"window is {given['window']!r}", "write whole seconds, for example 10s")
    return Wishes(
        topics,
        _writable(given.get("report", "traffic.html")),
        None if window_s is None else int(window_s),
        _seconds(given, "last", None),
        _rate(given.get("expected")),
        _seconds(given, "watch", 0.0) or 0.0,
        _seconds(given, "every", 1.0) or 1.0,
        _names(given.get("groups", "")),
        given.get("samples", "penstock.traffic"),
        given.get("event-time", ""),
        Options(given).whole("keys", 20, low=1, high=1_000),
    )


def _writable(report: str) -> str:
    """Asked before the work, which may take an hour."""
    directory = os.path.dirname(os.path.abspath(report))
    if not os.path.isdir(directory):
        raise WrongOption(f"report is {report!r}, and there is no directory {directory}", "make the directory, or name a file in another")
    if os.path.isdir(report) or not os.access(report if os.path.exists(report) else directory, os.W_OK):
        raise WrongOption(f"report is {report!r}, which cannot be written", "name a file that can")
    return report


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _seconds(given: Mapping[str, str], name: str, default: float | None) -> float | None:
    if given.get(name, "0") not in ("0", "") and given[name].isdigit():
        raise WrongOption(f"{name} is {given[name]!r}, without a unit", f"write {given[name]}s, or a number and ms, m, h or d")
    return Options(given).seconds(name, default)


def _rate(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        rate = float(text)
    except ValueError:
        raise WrongOption(f"expected is {text!r}, not a number", "write records a second, for example 250") from None
    if not 0 < rate < float("inf"):
        raise WrongOption(f"expected is {text!r}", "write a number above 0")
    return rate
