"""Running `penstock` as a person would: a process, what it printed, how it ended.

Most commands are forked from a process that has Penstock's modules already (warm.py): importing them took longer than what they do.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from tempfile import TemporaryFile
from typing import NamedTuple

from warm import warm

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
    variables = clean_environment(environment)
    if any(name.startswith("PYTHON") for name in environment or ()):  # They are for the interpreter.
        done = subprocess.run([*PENSTOCK, *arguments], input=content, capture_output=True, env=variables, timeout=seconds, check=False)
        return Ended(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    with TemporaryFile() as out, TemporaryFile() as err:
        reading, writing = os.pipe()
        running = warm().start(arguments, [reading, out.fileno(), err.fileno()], variables, os.getcwd())
        os.close(reading)
        giving = threading.Thread(target=give, args=(writing, content))
        giving.start()
        try:
            code = running.wait(seconds)
        finally:
            running.kill()
            giving.join()
        said = [os.pread(stream.fileno(), os.fstat(stream.fileno()).st_size, 0).decode(errors="replace") for stream in (out, err)]
    return Ended(code, *said)


def give(writing: int, content: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(writing, "wb") as pipe:
        pipe.write(content)


def succeed(*arguments: str, given: str | bytes = "", environment: Mapping[str, str] | None = None) -> str:
    ended = penstock(*arguments, given=given, environment=environment)
    assert ended.code == 0, ended.err
    return ended.out
