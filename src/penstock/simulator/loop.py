"""An asyncio event loop whose clock jumps to the next event, for many processes at once.

Each process has a ready queue of its own, in asyncio's order: first called, first run, and a turn runs what was ready when it began. Which
process has the next turn is drawn from the seed. Timers and arrivals wait in one heap; when nothing is ready, the clock jumps there.

Rules:
- Time stands still while anything is ready; a process that never lets go of an instant is stopped by `TURNS_PER_INSTANT_MAX`.
- A callback belongs to the process in its context. Callbacks of a dead process are dropped, those of a paused one wait.
- The network is the loop's own (network.py). Threads, real sockets, names, signals and child processes are refused. A server that wants
  a socket which is bound already gets a `SimSocket`.

The hot path is `call_soon`, `_run_once` and the heap: plain tuples and few calls there on purpose.
"""

import asyncio
import gc
import heapq
from asyncio import Handle, TimerHandle, format_helpers
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from penstock.simulator.fence import Fence
from penstock.simulator.process import CURRENT, Process
from penstock.simulator.trace import Trace
from penstock.vocabulary import Instant

if TYPE_CHECKING:
    from penstock.simulator.network import Network

T = TypeVar("T")

FIRST_INSTANT = 1_000.0  # Not zero: code that takes "never" and "at zero" for the same shall be found.
TURNS_PER_INSTANT_MAX = 100_000
_CANCELLED_TIMERS_MAX = 1_000
_TURNS_PER_COLLECTION = 20_000


class Stuck(Exception):
    """The run cannot go on: nothing is left that could happen, or time does not move."""


class Refused(RuntimeError):
    """Something that has no place in virtual time."""


class _SimHandle(Handle):
    """asyncio's handle without its checks for debugging: one is made for each callback."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], loop: "SimLoop", context: Context) -> None:
        self._context = context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _SimTimer(TimerHandle):
    """The same of timers. Nearly every one is cancelled, since what it limits comes in time."""

    __slots__ = ()

    def __init__(self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: "SimLoop", context: Context) -> None:
        self._context = context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = False

    def cancel(self) -> None:
        if not self._cancelled:
            self._loop._timer_handle_cancelled(self)
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]


class SimLoop(asyncio.BaseEventLoop):
    network: "Network"  # Given by the world, once both are made.

    def __init__(self, rng: Random, trace: Trace) -> None:
        super().__init__()
        self.trace = trace
        self.complaints: list[str] = []  # What nobody caught, with the process and the time.
        self.turns = 0
        self.running: Process | None = None  # Whose turn it is.
        self.outside = Process("outside", 0)  # Whatever runs in no process: tests, the nemesis.
        self.now = Instant(FIRST_INSTANT)  # As `time()` tells it; read by what is called for every event.
        self._rng = rng
        self._turns_at_instant = 0
        self._events: list[tuple[float, int, Process | None, Any]] = []
        self._next_event = 0
        self._runnable: list[Process] = []
        self._cancelled_timers = 0
        self._fence = Fence()

    # Time.

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> TimerHandle:  # type: ignore[override]
        if context is None:
            context = copy_context()
        timer = _SimTimer(when, callback, args, self, context)
        process = context.get(CURRENT, self.outside)
        if not process.is_dead:
            timer._scheduled = True
            self._push(when, process, timer)
        return timer

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> TimerHandle:  # type: ignore[override]
        return self.call_at(self.now + delay, callback, *args, context=context)

    def happen_at(self, when: float, event: Callable[[], object]) -> None:
        """An event of the world itself (an arrival, a fault): belongs to no process, is never paused, and runs as the clock gets there."""
        self._push(when, None, event)

    def run_for(self, seconds: float) -> None:
        self.happen_at(self.now + seconds, self.stop)
        self.run_forever()

    # Callbacks.

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        if context is None:
            context = copy_context()
        handle = _SimHandle(callback, args, self, context)
        process = context.get(CURRENT, self.outside)
        if not process.is_dead:  # As `enqueue` does; each await that waits comes by here.
            process.ready.append(handle)
            if not (process.is_queued or process.is_paused or process.is_resting):
                process.is_queued = True
                self._runnable.append(process)
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    def enqueue(self, process: Process, handle: Handle) -> None:
        if process.is_dead:
            return
        process.ready.append(handle)
        if not (process.is_queued or process.is_paused or process.is_resting):
            process.is_queued = True
            self._runnable.append(process)

    def handle_for(self, process: Process, callback: Callable[[], object]) -> Handle:
        """A callback that can be enqueued many times."""
        return _SimHandle(callback, (), self, process.context)

    def resume(self, process: Process) -> None:
        """Lets a process run again whose pause or rest has just ended."""
        if process.ready and not (process.is_dead or process.is_queued or process.is_paused or process.is_resting):
            process.is_queued = True
            self._runnable.append(process)

    def unqueue(self, process: Process) -> None:
        """Takes back a process that was about to run."""
        process.is_queued = False
        if process in self._runnable:
            self._runnable.remove(process)

    def create_task(
        self, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name if name is None else str(name), context=context)
        process = CURRENT.get(self.outside) if context is None else context.get(CURRENT, self.outside)
        if process.is_dead:  # It is still in the turn that it dies in, or its remains are being cleared away.
            process.bury(task)
        else:
            process.adopt(task)
        return task

    get_debug = staticmethod(bool)  # Never; asyncio asks for each future and each task, and a function of Python's would take its time.

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        who = self.running or CURRENT.get(self.outside)
        if not who.is_dead:  # Whatever a power cut tears out of it is no complaint.
            self.complaints.append(f"{self.now:.6f} {who.name}: {context['message']}: {context.get('exception')!r}")

    # The network's door.

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        _refuse_options(options)
        return await self.network.connect(CURRENT.get(self.outside), protocol_factory, str(host), int(port))

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        sock = options.pop("sock", None)
        _refuse_options(options)
        port = int(port or 0) if sock is None else self.network.port_of(sock)
        return self.network.listen(CURRENT.get(self.outside), protocol_factory, port)

    # The turn of the wheel.

    def run_forever(self) -> None:
        # Collected by count of turns, not of allocations, so that what a finalizer does comes at the same moment in every run.
        was_collecting = gc.isenabled()
        gc.disable()
        try:
            with self._fence:
                super().run_forever()
        finally:
            if was_collecting:
                gc.enable()

    def _run_once(self) -> None:
        """Takes turns until the loop is told to stop. asyncio asks for one at a time and would call this for each."""
        runnable, draw = self._runnable, self._rng.random
        while True:
            while not runnable:
                if self._stopping:  # type: ignore[attr-defined]
                    return
                self._jump()
            count = len(runnable)
            if count > 1:
                at = int(draw() * count)
                runnable[at], runnable[-1] = runnable[-1], runnable[at]
            process = runnable.pop()
            self._take_turn(process)
            self._turns_at_instant += 1
            if self._turns_at_instant > TURNS_PER_INSTANT_MAX:
                raise Stuck(f"{process.name} has had the last of {TURNS_PER_INSTANT_MAX} turns at {self.now}")
            self.turns += 1
            if self.turns % _TURNS_PER_COLLECTION == 0:
                gc.collect(0)
            if self._stopping:  # type: ignore[attr-defined]
                return

    def _take_turn(self, process: Process) -> None:
        self.running = process
        ready = process.ready
        handle: Any
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            try:  # As `Handle._run` does.
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._hear_of(error, handle)
            if process.is_dead:
                break
        if process.flushes:
            process.context.run(_flush_all, process)
        self.running = None
        process.is_queued = False  # Only now: what it made ready meanwhile waits for its next turn.
        if process.turn_seconds:
            self._rest(process)
        if ready:
            self.resume(process)

    def _hear_of(self, error: BaseException, handle: Any) -> None:
        """Reports what a callback raised, in asyncio's words."""
        source = format_helpers._format_callback_source(handle._callback, handle._args)
        self.call_exception_handler({"message": f"Exception in callback {source}", "exception": error, "handle": handle})

    def _rest(self, process: Process) -> None:
        process.is_resting = True

        def wake() -> None:
            process.is_resting = False
            self.resume(process)

        self.happen_at(self.now + process.turn_seconds, wake)

    def _jump(self) -> None:
        """Moves the clock to the next event and makes ready all that is due then."""
        events = self._events
        if not events:
            raise Stuck("nothing is left that could happen")
        now = events[0][0]
        if now > self.now:
            self.now = now  # type: ignore[assignment]  # Nothing is called here that need not be.
            self._turns_at_instant = 0
        else:
            now = self.now
        while events and events[0][0] <= now:
            _, _, process, event = heapq.heappop(events)
            if process is None:
                event()
                continue
            event._scheduled = False
            if event._cancelled:
                self._cancelled_timers -= 1
            elif not process.is_dead:
                self.trace.note(now, process.index, "timer")
                self.enqueue(process, event)

    def _push(self, when: float, process: Process | None, event: Any) -> None:
        number = self._next_event
        self._next_event = number + 1
        heapq.heappush(self._events, (when, number, process, event))

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        if handle._scheduled:  # type: ignore[attr-defined]
            self._cancelled_timers += 1
            if self._cancelled_timers > max(_CANCELLED_TIMERS_MAX, len(self._events) // 2):
                self._events = [event for event in self._events if event[2] is None or not event[3]._cancelled]
                heapq.heapify(self._events)
                self._cancelled_timers = 0

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none; asyncio's runner asks for it."""


def _flush_all(process: Process) -> None:
    flushes, process.flushes = process.flushes, []
    for transport in flushes:
        transport.flush()


def _refuse_options(options: dict[str, Any]) -> None:
    for name in ("ssl", "sock"):
        if options.get(name) is not None:
            raise Refused(f"{name} has no place in virtual time")


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **options: object) -> NoReturn:
        raise Refused(f"{name} has no place in virtual time")

    return refuse


for _name in (
    *("run_in_executor", "set_default_executor", "getaddrinfo", "getnameinfo", "start_tls", "sendfile", "connect_accepted_socket"),
    *("create_datagram_endpoint", "create_unix_connection", "create_unix_server", "connect_read_pipe", "connect_write_pipe"),
    *("subprocess_shell", "subprocess_exec", "add_reader", "remove_reader", "add_writer", "remove_writer", "add_signal_handler"),
    *("remove_signal_handler", "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendto"),
    *("sock_connect", "sock_accept", "sock_sendfile"),
):
    setattr(SimLoop, _name, _refusal(_name))
