"""Rows of an archive, and tables to put them into, for tests that need no Spark."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from penstock.pipeline.lake.layout import FileNames, StagedFile
from penstock.pipeline.lake.staging import stage
from penstock.pipeline.lake.table import Table, open_table

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
        ("date", pa.date32()),
    ]
)
PARTITION_BY = ("topic", "date")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def rows(first: int, count: int, *, topic: str = "orders", days: int = 1) -> pa.RecordBatch:
    """Rows with the offsets from `first` on, spread over so many days; every third has no key, every second a header."""
    offsets = range(first, first + count)
    times = [NOON + timedelta(days=offset % days) for offset in offsets]
    return pa.record_batch(
        {
            "key": pa.array([None if offset % 3 == 0 else b"k%d" % (offset % 5) for offset in offsets], pa.binary()),
            "value": pa.array([b"v%d" % offset for offset in offsets], pa.binary()),
            "topic": pa.array([topic] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(list(offsets), pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
            "headers": pa.array([[("h", b"x")] if offset % 2 else None for offset in offsets], HEADERS),
            "date": pa.array([time.date() for time in times], pa.date32()),
        },
        schema=SCHEMA,
    )


def table_at(path: Path | str, format: str) -> Table:
    return open_table(str(path), format, partition_by=PARTITION_BY)


def staged(table: Table, batches: Sequence[pa.RecordBatch], *, query: str = "q", batch: int = 0, attempt: int = 0) -> list[StagedFile]:
    names = FileNames(query=query, batch=batch, task=0, attempt=attempt)
    return stage(batches, table.directory, partition_by=PARTITION_BY, names=names)


def write(table: Table, batches: Sequence[pa.RecordBatch], *, query: str = "q", batch: int = 0) -> bool:
    return table.commit(staged(table, batches, query=query, batch=batch), schema=SCHEMA, marks={query: batch})


def held(table: Table) -> list[int]:
    """The offsets that the table's own reader sees, sorted."""
    return sorted(offset for path in table.snapshot().locations() for offset in ds.dataset(path).to_table(["offset"])["offset"].to_pylist())


def seen(path: Path | str) -> list[int]:
    """The offsets that a plain reader of the directory sees, sorted."""
    found = ds.dataset(str(path), format="parquet", partitioning="hive").to_table(["offset"])
    return sorted(found["offset"].to_pylist())
