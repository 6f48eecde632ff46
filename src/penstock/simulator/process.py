"""One life of a simulated host: what it has ready to run, and whether it still runs at all.

A process is carried in a context variable, so that every callback, timer and task belongs to the one that made it. A dead process is simply
never run again: no cancellation, no `finally`, as after a power cut. Its tasks are kept, because a task that is forgotten would be closed
by the garbage collector, and closing runs `finally`.
"""

from asyncio import Handle, Task
from collections import deque
from contextlib import suppress
from contextvars import Context, ContextVar
from typing import Any, Protocol
from warnings import catch_warnings, simplefilter
from weakref import ref

_TASKS_MIN = 100


class Flushable(Protocol):
    """A transport that has something to send when its process's turn ends."""

    def flush(self) -> None: ...


class Process:
    __slots__ = (
        "__weakref__",
        "_tasks",
        "_tasks_max",
        "buried",
        "context",
        "flushes",
        "index",
        "is_dead",
        "is_paused",
        "is_queued",
        "is_resting",
        "name",
        "ready",
        "turn_seconds",
    )

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.index = index  # Across the whole run, in order of birth: what the trace calls it.
        self.ready: deque[Handle] = deque()
        self.flushes: list[Flushable] = []
        self.is_dead = False
        self.is_paused = False  # As by SIGSTOP: callbacks gather and run when it is resumed.
        self.is_queued = False  # The loop knows that there is something to run.
        self.is_resting = False  # Between two turns of a slow process.
        self.turn_seconds = 0.0  # How long a turn of its loop takes; 0 is a machine of infinite speed.
        self._tasks: list[ref[Task[Any]]] = []  # And some that are gone. A WeakSet would call back for each task that ends.
        self._tasks_max = _TASKS_MIN  # Where those that are gone are taken out.
        self.buried: list[Task[Any]] = []
        self.context = Context()
        self.context.run(CURRENT.set, self)

    def adopt(self, task: Task[Any]) -> None:
        """Counts it among the tasks that are buried with this process, if they are still there then."""
        tasks = self._tasks
        tasks.append(ref(task))
        if len(tasks) > self._tasks_max:
            self._tasks = [kept for kept in tasks if kept() is not None]
            self._tasks_max = max(_TASKS_MIN, 2 * len(self._tasks))

    def die(self) -> None:
        self.is_dead = True
        for kept in self._tasks:
            if (task := kept()) is not None:
                self.bury(task)
        self._tasks.clear()
        self.ready.clear()
        self.flushes.clear()

    def bury(self, task: Task[Any]) -> None:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # It is meant to be pending for ever.
        self.buried.append(task)

    def decompose(self) -> None:
        """Closes what its tasks left open, once the run is over and `finally` can do no harm; quietly, unlike the garbage collector."""
        while self.buried:
            coroutine = self.buried.pop().get_coro()
            with catch_warnings(), suppress(BaseException):
                simplefilter("ignore", RuntimeWarning)  # Its `finally` may begin what nobody will go on with.
                coroutine.close()

    def __repr__(self) -> str:
        return f"<{self.name}>"


CURRENT: ContextVar[Process] = ContextVar("process")
