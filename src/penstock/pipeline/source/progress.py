"""A query's progress, committed to a consumer group, so that its lag shows where every other group's does (`penstock groups`).

Spark tells a source which offsets are done only when it builds the next batch, and never for the last batch of a run that ends. But
whenever it asks for something new, it says from where: everything before that is done, and that is what is committed here.
The offsets serve those who look; the query itself reads on from its checkpoint. So a coordinator that is away for a moment holds
nothing up, but a group that refuses for good (it has members, or may not be written) ends the query: nobody would see its lag.
"""

import concurrent.futures
import logging
from collections.abc import Mapping

from penstock.peers.failures import GaveUp, PeerFailure
from penstock.pipeline.brokers import Broker
from penstock.pipeline.complaints import PipelineComplaint
from penstock.vocabulary import TopicPartition

log = logging.getLogger("penstock.pipeline")

COMMIT_S = 10.0  # Later the next commit says more anyway.


class GroupProgress:
    def __init__(self, broker: Broker, group: str) -> None:
        self._broker = broker
        self._group = group
        self._committed: dict[TopicPartition, int] = {}
        self._running: concurrent.futures.Future[None] | None = None

    def begin(self, done: Mapping[TopicPartition, int]) -> None:
        """Starts to commit what has changed since the last time."""
        changed = {where: offset for where, offset in done.items() if self._committed.get(where) != offset}
        if changed:
            self._running = self._broker.start(self._broker.client.commit_offsets(self._group, changed, deadline_s=COMMIT_S))
            self._committed |= changed

    def finish(self) -> None:
        """Waits for what was begun."""
        running, self._running = self._running, None
        if running is None:
            return
        try:
            self._broker.wait(running, deadline_s=COMMIT_S)
        except PeerFailure as failure:
            self._committed.clear()
            if not failure.is_retriable and not isinstance(failure, GaveUp):
                problem = f"the query's progress cannot be committed to group {self._group!r}: {failure.problem}"
                raise PipelineComplaint(problem, failure.advice or "give the query a group of its own in groupId") from failure
            log.warning("the progress of group %r was not committed, and will be with the next batch: %s", self._group, failure.problem)
