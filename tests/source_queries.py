"""How tests ask the source without Spark: the readers that Spark would call, in this process, on a real node."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from penstock.pipeline.source.batch import BatchReader
from penstock.pipeline.source.ranges import Range
from penstock.pipeline.source.schema import schema_of
from penstock.pipeline.source.stream import StreamReader

Rows = list[dict[str, Any]]


class Batch:
    """A batch query, planned when it is made."""

    def __init__(self, options: Mapping[str, str], *, schema: StructType | None = None, filters: tuple[Filter, ...] = ()) -> None:
        self.reader = BatchReader(options, schema or schema_of(options))
        self.left = list(self.reader.pushFilters(list(filters)))
        self.partitions = self.reader.partitions()

    @property
    def ranges(self) -> list[Range]:
        return [partition.value for partition in self.partitions]

    @property
    def planned(self) -> dict[int, list[tuple[int, int]]]:
        """By partition, from where to where its tasks read."""
        found: dict[int, list[tuple[int, int]]] = {}
        for each in self.ranges:
            found.setdefault(each.where.partition, []).append((each.start, each.end))
        return found

    def arrow(self) -> Iterator[pa.RecordBatch]:
        for partition in self.partitions:
            yield from self.reader.read(partition)

    def rows(self) -> Rows:
        found: Rows = []
        for batch in self.arrow():
            batch.validate(full=True)
            found += batch.to_pylist()
        return found

    def values(self) -> list[bytes | None]:
        return [row["value"] for row in self.rows()]


class Stream:
    """A streaming query, asked as Spark asks it."""

    def __init__(self, options: Mapping[str, str], *, start: dict[str, Any] | None = None) -> None:
        self.reader = StreamReader(options, schema_of(options))
        self.at = self.reader.initialOffset() if start is None else start
        self.limit = self.reader.getDefaultReadLimit()

    def next(self) -> Rows:
        """The next micro-batch; no rows where there is none."""
        end = self.reader.latestOffset(self.at, self.limit)
        rows = self.between(self.at, end) if end != self.at else []
        self.at = end
        return rows

    def between(self, start: dict[str, Any], end: dict[str, Any]) -> Rows:
        partitions = self.reader.partitions(start, end)
        return [row for partition in partitions for batch in self.reader.read(partition) for row in batch.to_pylist()]

    def values(self) -> list[bytes | None]:
        return [row["value"] for row in self.next()]
