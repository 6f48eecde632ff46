"""Processes of group members and what they have told so far; see worker.py for what one does."""

import json
import os
import signal
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from waiting import NEVER_MS, PATIENCE_S
from warm import Warm

PROGRAM = Path(__file__).with_name("worker.py")
LIBRARIES = ("confluent", "kafka-python", "aiokafka")
# Of members that are killed. One that lives and is too slow for it joins again.
MORTAL_SESSION_MS = 500


@cache
def ready() -> Warm:
    return Warm(str(PROGRAM))


class Worker:
    """One process with one or more members of a group, all of one library. Their session does not lapse unless it is told to."""

    def __init__(
        self,
        library: str,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        members: int = 1,
        strategy: str = "range",
        session_ms: int = NEVER_MS,
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
        said, says = os.pipe()
        with open(os.devnull, "rb") as nothing, open(says, "wb") as output:
            streams = [nothing.fileno(), output.fileno(), 2]
            self._process = ready().start([json.dumps(options)], streams, os.environ, str(PROGRAM.parent))
        self._listener = threading.Thread(target=self._listen, args=(said,), daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self.kill()
        self._listener.join()

    def _listen(self, said: int) -> None:
        with open(said) as lines:
            for line in lines:
                if line.endswith("\n"):  # One that was killed may have told half of something.
                    self._note(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
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
        self._process.wait(PATIENCE_S)

    def stop(self) -> None:
        """In order: the member says good-bye, unless it is static."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)
        self._listener.join()


def share(workers: Iterable[Worker], partitions: int) -> bool:
    """Whether all partitions are owned, each by one member."""
    owned = [one for worker in workers for owned in worker.owned_by_each() for one in owned]
    return sorted(owned) == list(range(partitions))
