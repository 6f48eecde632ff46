"""Data that is gone: aged out before it was read, cut off, or its topic deleted or made again.

With `failOnDataLoss`, which is the default, that ends the query with what is gone and why. Without it the query goes on behind the gap,
which is logged, and recorded in the dead-letter topic where there is one: a gap is never passed over without a trace.
"""

import logging
from dataclasses import dataclass

from penstock.pipeline.complaints import PipelineComplaint
from penstock.vocabulary import TopicPartition

log = logging.getLogger("penstock.pipeline")

AGED_OUT = "they were deleted (retention, or DeleteRecords) before they were read"
CUT_OFF = "the partition ends before them: records were lost at the brokers, or the topic was made again"
REPLACED = "the topic was deleted and made again, and its old records went with it"
DELETED = "the topic or the partition was deleted"

_ADVICE = {
    AGED_OUT: "give the topic a longer retention.ms or read it more often; to go on without them, set failOnDataLoss to false",
    CUT_OFF: "look what happened to the topic; to go on without them, set failOnDataLoss to false",
    REPLACED: "start the query with a new checkpoint; or set failOnDataLoss to false to read the new topic from its beginning",
    DELETED: "set failOnDataLoss to false to go on without it (should it come back, it is read from its beginning); or take it out of the "
    "subscription and start the query with a new checkpoint",
}


class DataLost(PipelineComplaint):
    """What should have been read is not there."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that no row will come from. Where the end is not known it is the start."""

    where: TopicPartition
    start: int
    end: int
    reason: str

    def __str__(self) -> str:
        offsets = f"offsets {self.start} to {self.end - 1} are" if self.end > self.start else f"what follows offset {self.start} is"
        return f"{self.where}: {offsets} gone: {self.reason}"


class Losses:
    """Raises for a gap, or keeps it until it is recorded."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self._gaps: list[Gap] = []

    def report(self, gap: Gap) -> None:
        if self._fails:
            raise DataLost(str(gap), _ADVICE.get(gap.reason, ""))
        log.warning("%s", gap)
        self._gaps.append(gap)

    def take(self) -> list[Gap]:
        """What was reported since the last time."""
        gaps, self._gaps = self._gaps, []
        return gaps
