"""Which offsets of a topic an archive holds, and in which files: from the log where it can tell, otherwise from two columns of a file.

A file that was staged by one task holds one range of one partition, and the smallest and largest offset in the log say all. Files that were
joined may hold several partitions; of those the columns `partition` and `offset` are read. Where only a time is asked for, files of other
dates are left out, and of the others `timestamp` is read as well, so that spans are of the records asked for and no others.
"""

import functools
import json
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.lake.layout import StagedFile
from penstock.pipeline.lake.staging import open_directory
from penstock.pipeline.lake.table import Snapshot

TOPIC = "topic"  # The partition column that an archive must have.
DATE = "date"  # The one that it may have beside.
EPOCH = date(1970, 1, 1)
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The offsets of one partition that one file holds. There may be gaps: `rows` of them are there."""

    partition: int
    first: int
    end: int
    rows: int
    path: str


def topic_of(file: StagedFile) -> str:
    found = dict(file.partition).get(TOPIC)
    if found is None:
        raise PipelineComplaint(
            f"{file.path} is not in a directory topic=…, so the table is not an archive of topics", "give the path that `archive` wrote to"
        )
    return found


def topics_of(snapshot: Snapshot) -> list[str]:
    return sorted({topic_of(file) for file in snapshot.files})


@dataclass(frozen=True, slots=True)
class Times:
    """Records from this moment on, and before that one."""

    from_ms: int | None = None
    until_ms: int | None = None

    def expression(self) -> pc.Expression | None:
        bounds = [
            compare(pc.field("timestamp"), pa.scalar(moment_ms * 1000, pa.timestamp("us", tz="UTC")))
            for moment_ms, compare in ((self.from_ms, pc.greater_equal), (self.until_ms, pc.less))
            if moment_ms is not None
        ]
        return functools.reduce(operator.and_, bounds) if bounds else None

    def may_hold(self, file: StagedFile) -> bool:
        """By the file's date, which may be of any time zone and so a day off; files without a date may hold everything.

        The first date that there is holds all that is older, and the last one all that is younger.
        """
        day = _day_of(file)
        if day is None:
            return True
        starts_ms = (day - EPOCH).days * DAY_MS
        is_too_old = self.from_ms is not None and starts_ms + 2 * DAY_MS <= self.from_ms and day != date.max
        is_too_young = self.until_ms is not None and starts_ms - DAY_MS >= self.until_ms and day != date.min
        return not is_too_old and not is_too_young


def _day_of(file: StagedFile) -> date | None:
    found = dict(file.partition).get(DATE)
    try:
        return None if found is None else date.fromisoformat(found)
    except ValueError:
        return None  # Somebody else's directory, or one from before dates were kept in bounds.


ALWAYS = Times()


def spans_of(snapshot: Snapshot, topic: str, times: Times = ALWAYS) -> list[Span]:
    """By partition and offset."""
    files = [file for file in snapshot.files if topic_of(file) == topic and times.may_hold(file)]
    return sorted(span for file in files for span in _spans_of_file(file, snapshot.directory, times))


def ends_of(snapshot: Snapshot, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    """For each topic and partition, the offset after the last one that is held."""
    ends: dict[str, dict[int, int]] = {topic: {} for topic in topics}
    for topic, known in ends.items():
        for span in spans_of(snapshot, topic):
            known[span.partition] = max(span.end, known.get(span.partition, 0))
    return ends


def _spans_of_file(file: StagedFile, directory: str, times: Times) -> Iterator[Span]:
    stats = json.loads(file.stats or "{}")
    least, most = stats.get("minValues", {}), stats.get("maxValues", {})
    wanted = times.expression()
    if wanted is None and "offset" in least and "partition" in least and least["partition"] == most["partition"]:
        yield Span(least["partition"], least["offset"], most["offset"] + 1, file.rows, file.path)
        return
    filesystem, root = open_directory(directory)
    columns = ds.dataset(f"{root}/{file.path}", format="parquet", filesystem=filesystem).to_table(["partition", "offset"], filter=wanted)
    groups = pa.TableGroupBy(columns, "partition").aggregate([("offset", "min"), ("offset", "max"), ("offset", "count")])
    for group in groups.to_pylist():
        yield Span(group["partition"], group["offset_min"], group["offset_max"] + 1, group["offset_count"], file.path)
