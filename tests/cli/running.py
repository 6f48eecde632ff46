"""Running `penstock` as a person would: a process, what it printed, how it ended."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

PENSTOCK = [sys.executable, "-m", "penstock"]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's variables without any that a node or a command would listen to."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")} | dict(extra or {})


def penstock(*arguments: str, given: str | bytes = "", environment: Mapping[str, str] | None = None, seconds: float = 60) -> Ended:
    content = given.encode() if isinstance(given, str) else given
    done = subprocess.run(
        [*PENSTOCK, *arguments], input=content, capture_output=True, env=clean_environment(environment), timeout=seconds, check=False
    )
    return Ended(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def succeed(*arguments: str, given: str | bytes = "", environment: Mapping[str, str] | None = None) -> str:
    ended = penstock(*arguments, given=given, environment=environment)
    assert ended.code == 0, ended.err
    return ended.out
