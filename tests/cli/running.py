"""Running `penstock` as a person would: a process, what it printed, how it ended.

Most commands are forked from a process that has Penstock's modules already (warm.py): importing them took longer than what they do.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple, TextIO

from waiting import PATIENCE_S
from warm import Forked, warm

PENSTOCK = [sys.executable, "-m", "penstock"]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Started(NamedTuple):
    """A command that goes on: lines can be given to it and read from it. Its pipes are closed by whoever started it."""

    process: Forked
    given: TextIO
    out: TextIO
    errors: Path | int

    def err(self) -> str:
        assert isinstance(self.errors, Path)
        return self.errors.read_text(errors="replace")

    def end(self) -> Ended:
        """Waits until it has ended by itself; the rest of what it printed."""
        out = self.out.read()
        return Ended(self.process.wait(PATIENCE_S), out, self.err())


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's variables without any that a node or a command would listen to, and all the time that a node may need to answer."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return kept | {"PENSTOCK_CONNECT_TIMEOUT": str(PATIENCE_S)} | dict(extra or {})


@contextmanager
def started(*arguments: str, errors: Path | int, environment: Mapping[str, str] | None = None) -> Iterator[Started]:
    """Starts a command, and kills it at the end if it still runs. Its standard error goes to a file, or to what is open by that number."""
    (reading, given), (out, writing) = os.pipe(), os.pipe()
    with open(given, "w", encoding="utf-8") as to_it, open(out, encoding="utf-8") as from_it:
        with open(errors, "ab", closefd=isinstance(errors, Path)) as err:
            process = warm().start(arguments, [reading, writing, err.fileno()], clean_environment(environment), os.getcwd())
        os.close(reading)
        os.close(writing)
        try:
            yield Started(process, to_it, from_it, errors)
        finally:
            process.kill()
            process.wait(PATIENCE_S)


def penstock(*arguments: str, given: str | bytes = "", environment: Mapping[str, str] | None = None) -> Ended:
    content = given.encode() if isinstance(given, str) else given
    variables = clean_environment(environment)
    if any(name.startswith("PYTHON") for name in environment or ()):  # They are for the interpreter.
        done = subprocess.run([*PENSTOCK, *arguments], input=content, capture_output=True, env=variables, check=False)
        return Ended(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    with TemporaryFile() as out, TemporaryFile() as err:
        reading, writing = os.pipe()
        running = warm().start(arguments, [reading, out.fileno(), err.fileno()], variables, os.getcwd())
        os.close(reading)
        giving = threading.Thread(target=give, args=(writing, content))
        giving.start()
        try:
            code = running.wait(PATIENCE_S)
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
