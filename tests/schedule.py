"""Which worker runs which test file, and when: the longest first, those that wait beside those that compute.

A file is never divided, because its tests share a node or a JVM. Files that use the shared Spark session all go to the first worker, which
starts that session once, and takes other files when they are done. The second worker prefers files that compute, the others files
that wait for processes and clocks, so that two cores are kept busy by four workers or five.
`durations.json` has the seconds of each file, and of each test that takes more than a moment. `make test RECORD=1` writes it anew; a
wrong figure makes the suite longer and nothing else.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

DURATIONS = Path(__file__).parent / "durations.json"
COMPUTES = 0.6  # The share of its time in which a file that computes uses a core.
UNKNOWN_S = 5.0  # A file that was never measured begins early: late it might be the last to end.
SPARK = re.compile(r"mark\.spark\b")
END = "::end"  # What follows the file in the id of its end, which is dealt out with it (whole_files.py).


class Schedule(LoadScopeScheduling):
    """Deals out whole files."""

    def _split_scope(self, nodeid: str) -> str:
        return file_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node not in self.registered_collections:  # It replaces a dead worker, and asks for work itself when it has collected.
            return
        rank = sorted(map(number_of, self.nodes)).index(number_of(node))
        file = choose(self.workqueue, rank)
        if file is None:
            node.shutdown()
            return
        unit = self.workqueue.pop(file)
        self.assigned_work[node][file] = unit
        indices = {nodeid: index for index, nodeid in enumerate(self.registered_collections[node])}
        node.send_runtest_some([indices[nodeid] for nodeid, is_done in unit.items() if not is_done])

    def _reschedule(self, node: WorkerController) -> None:
        """Assigns the next file when one test is left: a worker starts a test only when it knows which comes after it."""
        if node.shutting_down:
            return
        if not self.workqueue:
            node.shutdown()
        elif self._pending_of(self.assigned_work[node]) < 2:
            self._assign_work_unit(node)


def number_of(node: WorkerController) -> int:
    return int(node.gateway.id.removeprefix("gw"))


def choose(files: Iterable[str], rank: int) -> str | None:
    """Returns the file that a worker takes next; None if all that is left belongs to the first. `rank`: 0 is the first of those at work."""

    def order(file: str) -> tuple[bool, bool, float]:
        seconds, cpu = durations().files.get(file, (UNKNOWN_S, 0.0))
        computes = cpu > COMPUTES * seconds
        return not is_spark(file), rank > 0 and computes != (rank == 1), -seconds

    return min((file for file in files if rank == 0 or not is_spark(file)), key=order, default=None)


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@cache
def is_spark(file: str) -> bool:
    path = Path(__file__).parents[1] / file
    return path.exists() and SPARK.search(path.read_text()) is not None


class Durations:
    def __init__(self, recorded: Mapping[str, Mapping[str, list[float] | float]]) -> None:
        self.files: dict[str, tuple[float, float]] = {file: (wall, cpu) for file, (wall, cpu) in recorded.get("files", {}).items()}  # type: ignore[misc]
        self.tests: dict[str, float] = dict(recorded.get("tests", {}))  # type: ignore[arg-type]


@cache
def durations() -> Durations:
    return Durations(json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {})
