"""The node as a test sees it: started, used, stopped, nothing left behind.

It is a process of its own (see docs/decisions): a test that hogs its interpreter does not starve the broker, a broker that breaks
does not take the test run along, and nothing of it (threads, loops, log records, limits) shows up in the process under test.
Everything it says goes to a file that nobody else sees; `said()` reads it, and a failure quotes it.

It belongs to the process that started it. A fork of that process (multiprocessing, a test's own os.fork) can use the node through its
address, but has no hand in its life: it neither stops the node nor keeps it alive.

Not here: what is in the node's process (child.py).
"""

import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self, Unpack
from uuid import uuid4

from penstock.testing.names import node_texts, topic_texts

if TYPE_CHECKING:
    from penstock.client.queues import Queue
    from penstock.client.queues.choices import Choices

# Each takes a fraction of a second as a rule. A crowded machine may take long, and that must not fail a test: these end a hang.
READY_SECONDS_MAX = 120.0
ANSWER_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 120.0
QUOTED_LINES = 20

# `-P` keeps the test's working directory off the path: a file called logging.py there is the test's business.
ENTRY = "import sys; sys.path.append(sys.argv[1]); from penstock.testing.child import main; sys.exit(main())"
PACKAGE_ROOT = str(Path(__file__).parents[2])

# What differs from a node in production, each because a test would only wait for it.
TEST_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",  # A production node waits three seconds for more members of a new group.
    "offsets.topic.num.partitions": "1",  # Fifty logs take longer to make than most tests run.
    "transaction.state.log.num.partitions": "1",
    "disk.reserve.bytes": "0",  # What is written here is needed for a moment only.
}


class BrokerFailed(Exception):
    """The node could not start, did not do what it was asked for, or did not end as it should. What it said stands in the message."""


def broker(*, flush: str = "ack", directory: str | os.PathLike[str] | None = None, **settings: object) -> "Broker":
    """A node for `with`, or for `start()` and `stop()`.

    Settings go by their names with `_` for `.`: `broker(num_partitions=3, topic_retention_ms=60_000)`. `flush` is when an acknowledged
    record is forced to the disk: "ack" as in production, "os" for tests that write much and never pull the plug. A `directory` of the
    test's own is kept afterwards, so that another broker can be started on it; without one it is temporary.
    """
    return Broker({"topic.flush": flush} | node_texts(settings), directory)


class Broker:
    """One node process. `bootstrap` is what Kafka clients want to know, `http_url` what clients of queues do."""

    def __init__(self, settings: dict[str, str], directory: str | os.PathLike[str] | None = None) -> None:
        self.bootstrap = ""  # HOST:PORT once it has started.
        self.http_url = ""  # http://HOST:PORT, likewise.
        self.directory = None if directory is None else Path(directory)
        self._settings = TEST_SETTINGS | settings
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 # It lives as long as this does.
        self._asking = threading.Lock()
        self._end: Callable[[], int | None] = lambda: None

    def start(self) -> Self:
        """Returns when clients may come."""
        if self._process is not None:
            raise BrokerFailed("a broker is started once; make another one, with the same directory to find the same records")
        is_temporary = self.directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-")) if self.directory is None else self.directory
        flags = {"data.dir": str(self.directory), "kafka": "127.0.0.1:0", "http": "127.0.0.1:0"} | self._settings
        self._process = _spawn({"flags": flags, "is_temporary": is_temporary}, self._log)
        # Also when it is forgotten, and when the interpreter ends.
        self._end = weakref.finalize(self, _end, self._process, self.directory if is_temporary else None, os.getpid())
        told = self._wait_until_ready(self._process)
        self.bootstrap, self.http_url = told["kafka"], f"http://{told['http']}"
        return self

    def stop(self) -> None:
        """Stops the node, and removes its directory where that was temporary. A second time does nothing."""
        code = self._end()
        if code:
            raise BrokerFailed(f"the node ended with code {code} instead of stopping cleanly{self._quoted()}")

    def create_topic(self, name: str | None = None, *, partitions: int = 1, **config: object) -> str:
        """Makes a topic, `retention_ms=1000` being the setting `retention.ms`, and returns its name: a fresh one when none is given."""
        name = name or f"topic-{uuid4().hex[:12]}"
        wanted = {"bootstrap": self.bootstrap, "topic": name, "partitions": partitions, "config": topic_texts(config)}
        told = self._ask(wanted)
        if told:
            raise BrokerFailed(f"{told['problem']}\n  {told['advice']}")
        return name

    def queue(self, name: str | None = None, **choices: Unpack["Choices"]) -> "Queue":
        """A queue that is there, `lease=5` being how long its messages are lent for, and has a fresh name when none is given."""
        from penstock.client.queues import Queue

        queue = Queue(name or f"queue-{uuid4().hex[:12]}", url=self.http_url)
        queue.ensure(**choices)
        return queue

    @property
    def pid(self) -> int:
        """For tests that send it signals."""
        if self._process is None:
            raise BrokerFailed("the broker was not started")
        return self._process.pid

    def said(self) -> str:
        """What the node has printed on standard error so far."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.stop()
        except BrokerFailed:
            if failure is None:  # What the test itself died of is the better story.
                raise

    def _ask(self, wanted: dict[str, object]) -> dict[str, str]:
        """One question at a time, whichever thread asks."""
        process = self._process
        if process is None or process.stdin is None or process.stdin.closed:
            raise BrokerFailed("the broker is not running; start() it, or use it in `with`")
        with self._asking:
            try:
                process.stdin.write(json.dumps(wanted).encode() + b"\n")
                process.stdin.flush()
                answer: dict[str, str] = json.loads(_read_line(process, ANSWER_SECONDS_MAX))
            except (OSError, ValueError):
                raise BrokerFailed(f"the node does not answer{self._quoted()}") from None
        return answer

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]") -> dict[str, str]:
        line = _read_line(process, READY_SECONDS_MAX)
        if not line.startswith("penstock ready "):
            self._end()
            raise BrokerFailed(f"the node did not start{self._quoted()}")
        return dict(pair.split("=", 1) for pair in shlex.split(line)[2:])

    def _quoted(self) -> str:
        words = self.said().strip().splitlines()[-QUOTED_LINES:]
        return "".join(f"\n  {line}" for line in words)


def _spawn(told: dict[str, object], log: IO[bytes]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-P", "-c", ENTRY, PACKAGE_ROOT, json.dumps(told)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,  # Ctrl-C in a terminal is for the tests; the node must outlive their last words.
    )
    _running.add(process)
    return process


def _read_line(process: "subprocess.Popen[bytes]", seconds: float) -> str:
    """The node's next line; less than one when it ended, or time is up, before that."""
    assert process.stdout is not None
    deadline, line = time.monotonic() + seconds, b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(process.stdout.fileno(), 4096) if ready else b""
        if not piece:
            break
        line += piece
    return line.decode()


def _end(process: "subprocess.Popen[bytes]", temporary: Path | None, owner_pid: int) -> int:
    """Stops the node and waits until it is gone; its exit code. One that was killed leaves its directory to us.

    By a signal: others may hold the pipe open. It is closed afterwards, because closing it is a signal too, and a second one means at once.
    """
    assert process.stdin is not None and process.stdout is not None
    if os.getpid() != owner_pid:
        return 0
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
    finally:
        _close(process.stdin)
        process.stdout.close()
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _close(pipe: IO[bytes]) -> None:
    with suppress(BrokenPipeError):  # A question that a node which died could not take any more.
        pipe.close()


def _let_go_after_fork() -> None:
    """In the fork: its copies of the pipes lead nowhere. They stay open, since their owners there would close whatever has their number."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for process in list(_running):
        for pipe in (process.stdin, process.stdout):
            if pipe is not None and not pipe.closed:
                os.dup2(nowhere, pipe.fileno(), inheritable=False)
    os.close(nowhere)


_running: "weakref.WeakSet[subprocess.Popen[bytes]]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_let_go_after_fork)
