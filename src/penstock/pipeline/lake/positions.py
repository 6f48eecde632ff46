"""Which offsets of a topic an archive holds, and in which files: from the log where it can tell, otherwise from two columns of a file.

A file that was staged by one task holds one range of one partition, and the smallest and largest offset in the log say all. Files that were
joined may hold several partitions; of those the columns `partition` and `offset` are read.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.lake.layout import StagedFile
from penstock.pipeline.lake.staging import open_directory
from penstock.pipeline.lake.table import Snapshot

TOPIC = "topic"  # The partition column that an archive must have.


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


def spans_of(snapshot: Snapshot, topic: str) -> list[Span]:
    """By partition and offset."""
    return sorted(span for file in snapshot.files if topic_of(file) == topic for span in _spans_of_file(file, snapshot.directory))


def ends_of(snapshot: Snapshot, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    """For each topic and partition, the offset after the last one that is held."""
    ends: dict[str, dict[int, int]] = {topic: {} for topic in topics}
    for topic, known in ends.items():
        for span in spans_of(snapshot, topic):
            known[span.partition] = max(span.end, known.get(span.partition, 0))
    return ends


def _spans_of_file(file: StagedFile, directory: str) -> Iterator[Span]:
    stats = json.loads(file.stats or "{}")
    least, most = stats.get("minValues", {}), stats.get("maxValues", {})
    if "offset" in least and "partition" in least and least["partition"] == most["partition"]:
        yield Span(least["partition"], least["offset"], most["offset"] + 1, file.rows, file.path)
        return
    filesystem, root = open_directory(directory)
    columns = pq.read_table(f"{root}/{file.path}", columns=["partition", "offset"], filesystem=filesystem, partitioning=None)
    groups = pa.TableGroupBy(columns, "partition").aggregate([("offset", "min"), ("offset", "max"), ("offset", "count")])
    for group in groups.to_pylist():
        yield Span(group["partition"], group["offset_min"], group["offset_max"] + 1, group["offset_count"], file.path)
