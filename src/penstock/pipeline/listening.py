"""Listens to the queries of a pipeline: every batch that Spark tells of is added up, and the end of a query is noted.

Spark calls from a thread of its own, in the order in which things happened: whoever has seen a query's end has seen all of its batches.
A failure in here would be printed by Spark and forgotten, so that there is little that could fail.
"""

import json
import threading
from uuid import UUID

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.pipeline.progress import PipelineProgress, StageProgress


class Listener(StreamingQueryListener):
    """Queries are known by their name, which is their stage's group; those of others are not looked at."""

    def __init__(self, progress: PipelineProgress, stages_by_query: dict[str, str]) -> None:
        self._progress = progress
        self._stages = stages_by_query
        self._ended: set[str] = set()
        self._changed = threading.Condition()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Whoever started it knows."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        stage = self._stage(event.progress.name)
        if stage is not None:
            with self._changed:
                stage.absorb(json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing came for ten seconds: what was told last still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()

    def has_heard_the_end_of(self, run_id: UUID | str, seconds: float) -> bool:
        """Waits until the query's end was told, and with it everything before."""
        with self._changed:
            return self._changed.wait_for(lambda: str(run_id) in self._ended, seconds)

    def _stage(self, query: str | None) -> StageProgress | None:
        return self._progress.stages.get(self._stages.get(query or "", ""))
