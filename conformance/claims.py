"""How players that are driven from here claim things: a claim that does not hold becomes the feature's outcome."""

import subprocess
import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0


class NotSo(Exception):
    """A claim that did not hold."""


def claim(holds: bool, what: str) -> None:
    if not holds:
        raise NotSo(f"not so: {what}")


def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise NotSo(f"waited in vain until {what}")
        time.sleep(0.05)


def outcome(scenario: Callable[[], None]) -> str:
    """Plays it: "ok", or what went wrong on one line."""
    try:
        scenario()
    except (NotSo, subprocess.SubprocessError, OSError, ValueError, LookupError) as failure:
        return " ".join(str(failure).split())[:600] or type(failure).__name__
    return "ok"
