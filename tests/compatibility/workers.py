"""Processes of group members and what they have told so far; see worker.py for what one does."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROGRAM = Path(__file__).with_name("worker.py")
LIBRARIES = ("confluent", "kafka-python", "aiokafka")
PATIENCE_SECONDS = 40.0


class Worker:
    """One process with one or more members of a group, all of one library."""

    def __init__(
        self,
        library: str,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        members: int = 1,
        strategy: str = "range",
        session_ms: int = 2_000,
        instance_ids: Iterable[str] = (),
    ) -> None:
        options = {
            "library": library, "bootstrap": bootstrap, "group": group, "topic": topic, "members": members, "strategy": strategy,
            "session_ms": session_ms, "instance_ids": list(instance_ids),
        }  # fmt: skip
        self.library = library
        self.events: list[dict[str, Any]] = []
        self._owned: list[set[int]] = [set() for _ in range(members)]
        self._lock = threading.Lock()
        self._process = subprocess.Popen([sys.executable, str(PROGRAM), json.dumps(options)], stdout=subprocess.PIPE, text=True)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self.kill()
        self._listener.join()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            with self._lock:
                self.events.append(event)
                owned = self._owned[event["who"]]
                if event["what"] == "assigned":
                    owned |= set(event["partitions"])
                elif event["what"] in ("revoked", "lost"):
                    owned -= set(event["partitions"])

    def owned(self, who: int = 0) -> set[int]:
        with self._lock:
            return set(self._owned[who])

    def owned_by_each(self) -> list[set[int]]:
        with self._lock:
            return [set(owned) for owned in self._owned]

    def told(self, *what: str) -> list[dict[str, Any]]:
        with self._lock:
            return [event for event in self.events if event["what"] in what]

    def values(self) -> list[str]:
        return [value for event in self.told("read") for _, _, value in event["records"]]

    def places(self) -> set[tuple[int, int]]:
        """Partition and offset of all that was read."""
        return {(partition, offset) for event in self.told("read") for partition, offset, _ in event["records"]}

    def kill(self) -> None:
        """kill -9: the group has to find out by itself."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """In order: the member says good-bye, unless it is static."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_SECONDS)
        self._listener.join()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)


def eventually(claim: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)


def share(workers: Iterable[Worker], partitions: int) -> bool:
    """Whether all partitions are owned, each by one member."""
    owned = [one for worker in workers for owned in worker.owned_by_each() for one in owned]
    return sorted(owned) == list(range(partitions))
