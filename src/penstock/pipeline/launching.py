"""Runs a job in this process from beginning to end: the lock, the session, the pipeline, its progress in a file, and a clean stop.

SIGTERM and Ctrl-C stop the pipeline between two batches where they come in time; a second signal ends it at once, which loses nothing but
time. What Spark itself has to say goes to a file beside the checkpoints, not to the terminal.
Not here: what is printed (the command line) and what a stage does (running).
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.failures import told_by
from penstock.pipeline.metrics import MetricsServer, metrics_text
from penstock.pipeline.pipeline import BatchContext, Job, Pipeline
from penstock.pipeline.progress import DONE, FAILED, STOPPED, PipelineProgress
from penstock.pipeline.session import VALUE_BYTES_MAX, require_spark, session
from penstock.pipeline.state import RunDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATUS_SECONDS = 1.0
SPARK_LOG = "spark.log"
GRACE_SECONDS = 20.0  # Between the stop of a job that has no stages and the end of what Spark does for it.


@dataclass(frozen=True, slots=True)
class Launch:
    """How a job is run; what it does stands in the job."""

    bootstrap: str
    directory: str  # Of all pipelines of this user: locks, status and, where nothing else is said, checkpoints.
    options: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None  # Runs it under another name, with checkpoints and groups of its own.
    checkpoints: str | None = None
    is_once: bool = False
    trigger: str | None = None
    master: str | None = None
    remote: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    value_bytes_max: int | None = None
    metrics: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Watcher:
    """Whoever wants to see it: `started` once with what can be said then, `looked` every moment, `said` for a job's own lines."""

    started: Callable[[str], None]
    looked: Callable[[PipelineProgress], None]
    said: Callable[[str], None]


def launch(job: Job, how: Launch, watcher: Watcher) -> PipelineProgress:
    """Returns when it is done, or was stopped as asked; raises what it failed of. For the main thread alone, which gets the signals."""
    require_spark(needs_java=how.remote is None)
    return _Launched(job, how, watcher).run()


class _Launched:
    def __init__(self, job: Job, how: Launch, watcher: Watcher) -> None:
        self._job, self._how, self._watcher = job, how, watcher
        self._options = job.filled(how.options) if job.options else dict(how.options)
        self._pipeline = None if job.build is None else job.build(self._options)
        self._name = how.name or (job.name if self._pipeline is None else self._pipeline.name)
        self._directory = RunDirectory(how.directory, self._name)
        self._checkpoints = how.checkpoints or str(self._directory.path / "checkpoints")
        self._stopping = threading.Event()
        now_ms = _now_ms()
        self._progress = PipelineProgress(self._name, {}, started_ms=now_ms, at_ms=now_ms)
        self._written_at = 0.0

    def run(self) -> PipelineProgress:
        with ExitStack() as stack:
            metrics = ""
            if self._how.metrics is not None:
                metrics = stack.enter_context(MetricsServer(*self._how.metrics, lambda: metrics_text(self._progress))).address
            stack.enter_context(self._directory.taken(metrics=metrics))
            signals = stack.enter_context(StopSignals(self._stopping))
            log = self._directory.path / SPARK_LOG
            spark = stack.enter_context(_spark(self._name, self._how, log))
            signals.listen()  # Spark has just put a handler of its own in the place of ours.
            at = f"; metrics at http://{metrics}/metrics" if metrics else ""
            self._watcher.started(f"Spark {spark.version}; its log is {log}; checkpoints are in {self._checkpoints}{at}")
            try:
                self._run_on(spark)
                self._progress.state = STOPPED if self._stopping.is_set() else DONE
            except BaseException:
                self._progress.state = FAILED
                raise
            finally:
                self._look(is_last=True)
        return self._progress

    def _run_on(self, spark: "SparkSession") -> None:
        if self._pipeline is not None:
            self._run_stages(self._pipeline.renamed(self._name), spark)
        elif self._job.run is not None:
            with cut_short(spark, self._name, self._stopping) as look_for_stop:

                def look() -> None:
                    self._look()
                    look_for_stop()

                with _every(STATUS_SECONDS, look):
                    self._job.run(self._batch_context(spark))

    def _run_stages(self, pipeline: Pipeline, spark: "SparkSession") -> None:
        from penstock.pipeline.running import TRIGGER, Plan, Run

        how = self._how
        plan = Plan(how.bootstrap, self._checkpoints, self._options, is_once=how.is_once, trigger=how.trigger or TRIGGER)
        run = Run(pipeline, spark, plan)
        self._progress = run.progress
        run.start()
        try:
            run.wait(self._stopping, self._look)
        finally:
            run.stop()

    def _batch_context(self, spark: "SparkSession") -> BatchContext:
        def count(what: str, number: float) -> None:
            self._progress.counts[what] = self._progress.counts.get(what, 0) + number

        return BatchContext(
            spark, self._how.bootstrap, self._options, self._checkpoints, self._watcher.said, count, self._stopping.is_set
        )  # fmt: skip

    def _look(self, *, is_last: bool = False) -> None:
        """Called every moment; the file is written once a second."""
        if is_last or time.monotonic() - self._written_at >= STATUS_SECONDS:
            self._written_at = time.monotonic()
            self._progress.at_ms = _now_ms()
            self._directory.write(self._progress)
        self._watcher.looked(self._progress)


@contextmanager
def _spark(name: str, how: Launch, log: Path) -> Iterator["SparkSession"]:
    try:
        with _output_to(log):  # The JVM and its Python workers keep for life what they get here.
            spark = session(
                name,
                master=how.master,
                remote=how.remote,
                value_bytes_max=how.value_bytes_max or VALUE_BYTES_MAX,
                settings=how.settings,
            )
    except PipelineComplaint:
        raise
    except Exception as failure:
        raise PipelineComplaint(f"the start of Spark failed: {told_by(failure)[0]}", f"its own account stands in {log}") from failure
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def cut_short(
    spark: "SparkSession", group: str, stopping: threading.Event, grace_s: float = GRACE_SECONDS
) -> Iterator[Callable[[], None]]:
    """Gives what is to be called every moment, from another thread: it cancels what Spark does for this one, a while after the stop.

    What was not finished counts for nothing, so that a job that ends by it was stopped as asked and has not failed.
    """
    context = getattr(spark, "_sc", None)
    if context is not None:
        context.setJobGroup(group, group, interruptOnCancel=True)
    stopped_at: float | None = None
    is_cut = False

    def look() -> None:
        nonlocal stopped_at, is_cut
        if not stopping.is_set():
            return
        stopped_at = time.monotonic() if stopped_at is None else stopped_at
        if time.monotonic() - stopped_at >= grace_s:
            is_cut = True
            if context is not None:
                context.cancelJobGroup(group)
            else:
                spark.interruptAll()

    try:
        yield look
    except Exception as failure:
        if not is_cut or "cancel" not in str(failure).lower():
            raise
    finally:
        if context is not None:
            for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
                context.setLocalProperty(name, None)


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Processes that are started meanwhile write there. The file of the run before is kept beside it."""
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        for place, descriptor in enumerate(kept, start=1):
            os.dup2(descriptor, place)
            os.close(descriptor)
        os.close(target)


class StopSignals:
    """Sets an event at SIGTERM and at Ctrl-C; a second signal ends the process at once. For the main thread.

    A thread sets the event. A signal handler runs in the main thread, possibly inside `stopping.wait()`, and would wait forever for the
    lock that this call holds.
    """

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._is_asked = False
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe()
        self._setter = threading.Thread(target=self._set_when_asked, name="stop signals", daemon=True)
        self._setter.start()
        self.listen()
        return self

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._writing)
        self._setter.join()
        os.close(self._reading)

    def listen(self) -> None:
        """Installs the handlers, again where something else has replaced them."""
        for number in self._before:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_asked:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._is_asked = True
        os.write(self._writing, b"!")

    def _set_when_asked(self) -> None:
        if os.read(self._reading, 1):  # Empty when the pipe was closed.
            self._stopping.set()


@contextmanager
def _every(seconds: float, look: Callable[[], None]) -> Iterator[None]:
    """Looks from a thread of its own while the main one is busy with a job."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(seconds):
            look()

    watching = threading.Thread(target=watch, name="progress", daemon=True)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
