"""Listens to the queries of a pipeline: every batch that Spark tells of is added up, once.

Spark calls from a thread of its own, for all listeners of a session one after the other, in the order in which things happened. It may be
late without bound (a busy machine, a slow listener before this one), so that its calls are for those who watch a query run. When one has
ended, whoever has heard of the end has heard of all its batches; otherwise the rest is taken from the query itself, which keeps the last
hundred. A failure in here would be printed by Spark and forgotten, so that there is little that could fail.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.pipeline.progress import PipelineProgress, StageProgress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LAST_WORDS_SECONDS = 1.0  # How long the end of a query is waited for: it mostly takes milliseconds. No count hangs on it.


@dataclass(slots=True)
class _Heard:
    """How much of one run of a query was added up."""

    stage: StageProgress
    last_batch: int = -1
    is_over: bool = False

    def absorb(self, told: Mapping[str, Any]) -> None:
        self.stage.absorb(told)
        if "addBatch" in (told.get("durationMs") or {}):  # A quiet moment has the number of the batch that comes next.
            self.last_batch = told["batchId"]


class Listener(StreamingQueryListener):
    """Queries are known by their name, which is their stage's group, when they start; those of others are not looked at."""

    def __init__(self, progress: PipelineProgress, stages_by_query: dict[str, str]) -> None:
        self._progress = progress
        self._stages = stages_by_query
        self._runs: dict[str, _Heard] = {}  # Those that were not heard out yet.
        self._changed = threading.Condition()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """The one call that Spark makes at once: nobody has the query in hand before it returns."""
        stage = self._stage(event.name)
        if stage is not None:
            with self._changed:
                self._runs[str(event.runId)] = _Heard(stage)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        with self._changed:
            heard = self._runs.get(str(event.progress.runId))
            if heard is not None:
                heard.absorb(json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing came for ten seconds: what was told last still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._changed:
            heard = self._runs.get(str(event.runId))
            if heard is not None:
                heard.is_over = True
                self._changed.notify_all()

    def hear_out(self, query: "StreamingQuery") -> None:
        """For a query that has ended: adds up what it told and nobody has brought. What is brought later is not listened to."""
        run_id = str(query.runId)
        with self._changed:
            self._changed.wait_for(lambda: run_id not in self._runs or self._runs[run_id].is_over, LAST_WORDS_SECONDS)
            heard = self._runs.pop(run_id, None)
        if heard is None or heard.is_over:
            return
        for told in query.recentProgress:
            if told.batchId > heard.last_batch:
                heard.absorb(json.loads(told.json))

    def _stage(self, query: str | None) -> StageProgress | None:
        return self._progress.stages.get(self._stages.get(query or "", ""))
