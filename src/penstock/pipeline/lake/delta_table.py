"""A Delta table that counts each batch once: tasks write the Parquet files, the driver adds them in one commit through `deltalake`.

The commit carries an app transaction (name, number) for each mark, as Delta's protocol has them for exactly this: it stands in the same
entry of Delta's log as the files, and survives checkpoints of that log. Of two drivers that commit the same mark one is refused by
the log and looks again. Any reader of Delta sees whole batches only; `compact` is Delta's OPTIMIZE and `clean` its VACUUM.
On a file system writers also take turns by a lock: two that compact at once were seen to keep the rows of both. Object stores have no such
lock; there let one process compact a table.
Not here: merging rows by key (jobs/snapshot.py replaces a partition as a whole).
"""

import fcntl
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.lake.layout import Partition, StagedFile
from penstock.pipeline.lake.staging import FILE_BYTES, open_directory
from penstock.pipeline.lake.table import NO_MARKS, RETAIN_S, Joined, Snapshot, check_same_schema, may_commit

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

COMMIT_ATTEMPTS = 8  # Each failure means that another writer has committed meanwhile; appends of others do not clash, so few are needed.
LOCK = ".penstock-turn"  # Beside Delta's log, where readers pass over names that they don't know.


class LakeDelta:
    format = "delta"

    def __init__(self, path: str, *, partition_by: Sequence[str] = ()) -> None:
        require_deltalake()
        self.path = path if "://" in path else open_directory(path)[1]
        self._partition_by = list(partition_by)

    @property
    def directory(self) -> str:
        return self.path

    def exists(self) -> bool:
        from deltalake import DeltaTable

        return DeltaTable.is_deltatable(self.path)

    def mark(self, name: str) -> int | None:
        return self._open().transaction_version(name) if self.exists() else None

    def check_schema(self, schema: pa.Schema) -> None:
        from deltalake import Schema

        if self.exists():
            table = self._open()
            check_same_schema(self.path, _described(table.schema()), _described(Schema.from_arrow(schema)))
            held = ", ".join(table.metadata().partition_columns) or "nothing"
            if held != (wanted := ", ".join(self._partition_by) or "nothing"):
                raise PipelineComplaint(
                    f"the Delta table at {self.path} is partitioned by {held}, not by {wanted}",
                    "write it with the partition columns that it has, or another table",
                )

    def commit(
        self,
        files: Sequence[StagedFile],
        *,
        schema: pa.Schema,
        marks: Mapping[str, int],
        replace: Partition | None = None,
        seen: Mapping[str, int | None] = NO_MARKS,
    ) -> bool:
        self.check_schema(schema)
        with self._turn():
            return self._commit(files, schema, marks, replace, seen)

    def _commit(
        self,
        files: Sequence[StagedFile],
        schema: pa.Schema,
        marks: Mapping[str, int],
        replace: Partition | None,
        seen: Mapping[str, int | None],
    ) -> bool:
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.exceptions import CommitFailedError

        for attempt in range(COMMIT_ATTEMPTS):
            if not self.exists():
                DeltaTable.create(self.path, schema, mode="ignore", partition_by=self._partition_by)
            table = self._open()
            if not may_commit(table.transaction_version, marks, seen):
                return False
            try:
                table.create_write_transaction(
                    [_as_action(file) for file in files],
                    mode="append" if replace is None else "overwrite",
                    schema=schema,
                    partition_by=self._partition_by,
                    partition_filters=[(column, "=", value or "") for column, value in replace] if replace else None,
                    commit_properties=CommitProperties(app_transactions=[Transaction(name, number) for name, number in marks.items()]),
                )
                return True
            except CommitFailedError:
                if attempt == COMMIT_ATTEMPTS - 1:
                    raise
        return False

    def snapshot(self, partition: Partition | None = None) -> Snapshot:
        if not self.exists():
            return Snapshot(self.path, ())
        files = [_as_file(action, self.path) for action in pa.table(self._open().get_add_actions(flatten=True)).to_pylist()]
        return Snapshot(self.path, tuple(file for file in files if partition is None or file.partition == partition))

    def compact(self, *, file_bytes: int = FILE_BYTES) -> Joined:
        if not self.exists():
            return Joined()
        with self._turn():
            done = self._open().optimize.compact(target_size=file_bytes, max_concurrent_tasks=1)
        return Joined(done["numFilesRemoved"], done["numFilesAdded"])

    def clean(self, *, retain_s: float = RETAIN_S) -> int:
        if not self.exists():
            return 0
        hours = math.ceil(retain_s / 3600)  # Delta counts in hours; never fewer than asked for.
        return len(self._open().vacuum(retention_hours=hours, enforce_retention_duration=False, dry_run=False, full=True))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Whoever dies in its turn gives it up with its process."""
        if "://" in self.path:
            yield
            return
        log = os.path.join(self.path, "_delta_log")
        os.makedirs(log, exist_ok=True)
        with open(os.path.join(log, LOCK), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _open(self) -> "DeltaTable":
        from deltalake import DeltaTable

        return DeltaTable(self.path)


def require_deltalake() -> None:
    from importlib.util import find_spec

    if find_spec("deltalake") is None:
        raise PipelineComplaint(
            "Delta tables need the package deltalake, which is not installed here",
            "pip install 'penstock[lake]', or take the format parquet",
        )


def _as_action(file: StagedFile) -> "AddAction":
    from deltalake.transaction import AddAction

    return AddAction(file.path, file.size_bytes, dict(file.partition), int(time.time() * 1000), True, file.stats)


def _as_file(action: dict[str, Any], root: str) -> StagedFile:
    """What Delta's log says of a file. Other writers may leave out how many rows it has; then its footer says so."""
    values = tuple((name.removeprefix("partition."), _text(value)) for name, value in action.items() if name.startswith("partition."))
    least = {name.removeprefix("min."): value for name, value in action.items() if name.startswith("min.") and isinstance(value, int)}
    most = {name.removeprefix("max."): value for name, value in action.items() if name.startswith("max.") and isinstance(value, int)}
    path, rows = unquote(action["path"]), action.get("num_records")  # Delta's log encodes paths as addresses.
    if rows is None:
        filesystem, directory = open_directory(root)
        rows = pq.read_metadata(f"{directory}/{path}", filesystem=filesystem).num_rows
    return StagedFile(path, values, rows, action["size_bytes"], json.dumps({"minValues": least, "maxValues": most}))


def _described(schema: object) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema.fields)  # type: ignore[attr-defined]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
