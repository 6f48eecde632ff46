"""A frame staged as files of a table, for a driver that commits them by itself.

The format "penstock-lake" adds batches; whoever replaces rows (jobs/snapshot.py) stages first, and says then what the files replace.
Files of attempts that lost are not told and stay orphans until the table is cleaned.
"""

import pickle
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from penstock.pipeline.lake.layout import FileNames, Partition, StagedFile
from penstock.pipeline.lake.sink import arrow_schema
from penstock.pipeline.lake.staging import stage
from penstock.pipeline.lake.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOLD = pa.schema([("staged", pa.binary())])


def stage_frame(frame: "DataFrame", table: Table, *, within: Partition) -> list[StagedFile]:
    """Every row into files of this partition of the table, whose columns the frame does not have."""
    schema, directory, query = arrow_schema(frame.schema), table.directory, f"staged-{uuid4()}"

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None, "rows are staged in tasks"
        names = FileNames(query=query, batch=0, task=task.partitionId(), attempt=task.attemptNumber())
        files = stage((batch.cast(schema) for batch in batches), directory, within=within, names=names)
        yield pa.RecordBatch.from_pylist([{"staged": pickle.dumps(file)} for file in files], TOLD)

    rows = frame.mapInArrow(write, "staged binary").collect()
    return [pickle.loads(row.staged) for row in rows]
