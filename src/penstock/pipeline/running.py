"""Runs a pipeline: one streaming query for each stage, all in one session, each with a checkpoint of its own.

    run = Run(pipeline, spark, plan)
    run.start(); run.wait(stopping, each_second); run.stop()

Always on, all stages run side by side. With `is_once`, each stage takes what there is and ends, one after the other, so that what the first
found comes out of the last. A restarted pipeline goes on from its checkpoints. One stage that fails ends the pipeline: the others would run
on with what is left, and nobody would look. To stop cleanly, a query is stopped between two batches where it gets there in time; one that
is stopped in the middle loses nothing, and its batch is done again at the next start.
Not here: what stages become in Spark (ends), and processes, signals and files (state, the command line).
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.ends import whole_stage
from penstock.pipeline.failures import told_by
from penstock.pipeline.listening import Listener
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.progress import DONE, FAILED, RUNNING, STOPPED, PipelineProgress, StageProgress
from penstock.pipeline.stage import Context, Stage
from penstock.pipeline.topics import make_topics, topics_written, wait_until_stable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TRIGGER = "1 second"  # Shorter ones fill two cores with four stages; a batch takes some 50 ms of work that does not shrink.
LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Plan:
    """Where and how a pipeline is run."""

    bootstrap: str
    checkpoints: str  # A directory; on a cluster, one that all machines reach.
    options: Mapping[str, str] = field(default_factory=dict)
    is_once: bool = False
    trigger: str = TRIGGER
    grace_s: float = 30.0  # How long a stop waits for the batches that run.


class Run:
    def __init__(self, pipeline: Pipeline, spark: "SparkSession", plan: Plan) -> None:
        self.pipeline = pipeline
        self.plan = plan
        self._spark = spark
        self._queries: dict[str, StreamingQuery] = {}
        self._waiting: list[Stage] = []
        self._is_listening = False
        now_ms = time.time_ns() // 1_000_000
        self.progress = PipelineProgress(
            pipeline.name, {stage.name: StageProgress(stage.name) for stage in pipeline.stages}, started_ms=now_ms, at_ms=now_ms
        )
        self._listener = Listener(self.progress, {pipeline.group(stage): stage.name for stage in pipeline.stages})

    def start(self) -> None:
        """Makes the topics that are missing and starts the queries; with `is_once` the first of them."""
        make_topics(self.pipeline, self.plan.bootstrap)
        self._spark.streams.addListener(self._listener)
        self._is_listening = True
        self._waiting = list(self.pipeline.stages)
        try:
            while self._waiting:
                self._start(self._waiting.pop(0))
                if self.plan.is_once:
                    break
        except BaseException:
            self.stop()
            raise

    def wait(self, stopping: threading.Event, each_look: Callable[[], None] = lambda: None) -> None:
        """Returns when all is done, or when somebody asks to stop. Raises what a stage failed of, after the others were stopped."""
        while not stopping.is_set():
            if not self._look():
                break
            each_look()
            stopping.wait(LOOK_SECONDS)

    def stop(self) -> None:
        """Stops what still runs. A second time does nothing."""
        deadline = time.monotonic() + self.plan.grace_s
        self._waiting.clear()
        for name, query in self._queries.items():
            if not query.isActive:
                continue
            _wait_for_a_gap(query, deadline)
            query.stop()
            self._end(name, query, STOPPED)
        if self._is_listening:
            self._spark.streams.removeListener(self._listener)
            self._is_listening = False
        self._queries.clear()

    def _start(self, stage: Stage) -> None:
        checkpoint = f"{self.plan.checkpoints.rstrip('/')}/{stage.name}"
        context = Context(self._spark, self.plan.bootstrap, self.pipeline.name, stage.name, self.plan.options, checkpoint)
        self._take_turns(stage)
        writer = whole_stage(stage, self.pipeline, context).queryName(self.pipeline.group(stage)).option("checkpointLocation", checkpoint)
        interval = stage.trigger or self.plan.trigger
        try:
            self._queries[stage.name] = self._triggered(writer, interval).start()
        except Exception as failure:
            raise self._failed(stage.name, failure) from failure
        self.progress.stages[stage.name].state = RUNNING

    def _triggered(self, writer: "DataStreamWriter", interval: str) -> "DataStreamWriter":
        try:
            return writer.trigger(availableNow=True) if self.plan.is_once else writer.trigger(processingTime=interval)
        except Exception as failure:
            raise PipelineComplaint(
                f"batches should follow each other every {interval!r}, which is no span of time", "write one like 10 seconds or 5 minutes"
            ) from failure

    def _take_turns(self, stage: Stage) -> None:
        """Queries of different pools share the cores evenly. A Connect session has no context to say so to, and its server decides."""
        context = getattr(self._spark, "_sc", None)
        if context is not None:
            context.setLocalProperty("spark.scheduler.pool", self.pipeline.group(stage))

    def _look(self) -> bool:
        """Whether there is still something to wait for."""
        for name, query in list(self._queries.items()):
            if query.isActive or self.progress.stages[name].state == DONE:
                continue
            failure = query.exception()
            if failure is not None:
                self._end(name, query, FAILED)
                complaint = self._failed(name, failure)
                self.stop()
                raise complaint
            self._end(name, query, DONE if self.plan.is_once else STOPPED)
            if self._waiting:
                self._start_next()
        return any(query.isActive for query in self._queries.values())

    def _start_next(self) -> None:
        """What those before it have written is what it finds. Transactions of others do not hold it up for ever."""
        stage = self._waiting.pop(0)
        written = topics_written(self.pipeline)
        if topics := [topic for topic in stage.topics_read() if topic in written]:
            wait_until_stable(topics, self.plan.bootstrap)
        self._start(stage)

    def _end(self, name: str, query: "StreamingQuery", state: str) -> None:
        self._listener.hear_out(query)
        self.progress.stages[name].state = state
        self.progress.stages[name].rows_per_second = 0.0

    def _failed(self, name: str, failure: Exception) -> PipelineComplaint:
        problem, advice = told_by(failure)
        self.progress.stages[name].state = FAILED
        self.progress.stages[name].failure = problem
        return PipelineComplaint(f"stage {name!r} of the pipeline {self.pipeline.name!r} failed: {problem}", advice)


def _wait_for_a_gap(query: "StreamingQuery", deadline: float) -> None:
    while time.monotonic() < deadline and query.isActive and query.status["isTriggerActive"]:
        time.sleep(0.01)
