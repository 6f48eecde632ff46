"""A table of plain Parquet files that counts each batch once and can be compacted while it is read.

    archive/
      topic=orders/date=2026-11-15/*.parquet      the tree: for any reader of Parquet (view.py)
      _penstock/log/                              what counts (log.py)
      _penstock/files/topic=…/date=…/*.parquet    the same files under the names that the log uses; they never move

A write is staged below `_penstock/files`, counts from its change in the log on, and then shows in the tree. Killed before the change: the
files are orphans, and `clean` removes them. Killed after: whoever changes the table next settles the tree. There is no step between.
Spark, Arrow and Hive leave out directories whose names begin with an underscore, so the files below `_penstock` are not read twice.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as altered

import pyarrow as pa

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.lake.compaction import groups_to_join, rows_of
from penstock.pipeline.lake.layout import SUFFIX, FileNames, Partition, StagedFile
from penstock.pipeline.lake.log import CHECKPOINT_EVERY, Change, Log, NumberTaken, State
from penstock.pipeline.lake.staging import FILE_BYTES, discard, stage
from penstock.pipeline.lake.table import NO_MARKS, RETAIN_S, Joined, Snapshot, check_same_schema, describe, landed_after_all, may_commit
from penstock.pipeline.lake.view import View

INNER = "_penstock"
COMPACTION = "compaction"  # Stands where a query stands in the names of joined files.


class ParquetTable:
    format = "parquet"

    def __init__(self, path: str) -> None:
        if "://" in path and not path.startswith("file://"):
            raise PipelineComplaint(
                f"a Parquet table cannot live at {path}: it needs a file system with hard links that every executor sees",
                "give a path on such a file system, or write a Delta table (format delta)",
            )
        self.path = os.path.abspath(path.removeprefix("file://"))
        inner = os.path.join(self.path, INNER)
        self._files = os.path.join(inner, "files")
        self._log = Log(os.path.join(inner, "log"))
        self._view = View(self.path, inner=inner, files=self._files, log=self._log)

    @property
    def directory(self) -> str:
        return self._files

    def exists(self) -> bool:
        return self._log.exists()

    def mark(self, name: str) -> int | None:
        return self._log.load().marks.get(name)

    def check_schema(self, schema: pa.Schema) -> None:
        check_same_schema(self.path, self._log.load().schema, describe(schema))

    def commit(
        self,
        files: Sequence[StagedFile],
        *,
        schema: pa.Schema,
        marks: Mapping[str, int],
        replace: Partition | None = None,
        seen: Mapping[str, int | None] = NO_MARKS,
    ) -> bool:
        described = describe(schema)

        def decide(state: State) -> Change | None:
            check_same_schema(self.path, state.schema, described)
            if not may_commit(state.marks.get, marks, seen):
                return None
            removed = [path for path, file in state.files.items() if replace is not None and file.partition == replace]
            return Change(added=tuple(files), removed=tuple(removed), marks=marks, schema=described)

        return self.change(decide)

    def snapshot(self, partition: Partition | None = None) -> Snapshot:
        files = [file for file in self._log.load().files.values() if partition is None or file.partition == partition]
        return Snapshot(self._files, tuple(files))

    def compact(self, *, file_bytes: int = FILE_BYTES) -> Joined:
        joined = Joined()
        for group in groups_to_join(self._log.load().files.values(), file_bytes=file_bytes):
            result = self._join(group)
            joined = Joined(joined.files_before + len(group), joined.files_after + len(result)) if result else joined
        return joined

    def clean(self, *, retain_s: float = RETAIN_S) -> int:
        """Orphans are known by their age: what is still being written was touched lately, and a batch is committed within that time."""
        if not self._log.exists():
            return 0
        self._view.settle()  # What the log forgets below must not be needed any more to tell our own files in the tree from others'.
        before_ms = int((time.time() - retain_s) * 1000)
        state = self._log.load()
        retired = [path for path, at_ms in state.removed_at_ms.items() if at_ms <= before_ms]
        orphans = [path for path in self._old_files(before_ms) if path not in state.files and path not in state.removed_at_ms]
        discard([*retired, *orphans], self._files)
        if retired:
            self.change(lambda _: Change(forgotten=tuple(retired)))
        self._log.trim()
        return len(retired) + len(orphans)

    def change(self, decide: Callable[[State], Change | None]) -> bool:
        """Makes the change that `decide` wants in view of the state; asks again where another writer was faster."""
        while True:
            state = self._log.load()
            change = decide(state)
            if change is None:
                break
            change = altered(change, at_ms=int(time.time() * 1000))
            try:
                self._log.append(change, state.next_number)
            except NumberTaken:
                continue
            if (state.next_number + 1) % CHECKPOINT_EVERY == 0:
                state.replay(change)
                self._log.checkpoint(state)
            break
        if self._log.exists():
            self._view.settle()
        return change is not None

    def _join(self, group: Sequence[StagedFile]) -> list[StagedFile]:
        """Replaces a group of files by one with the same rows; nothing where somebody else has replaced one of them meanwhile."""
        names = FileNames(query=COMPACTION, batch=0, task=0, attempt=0)
        rows = rows_of(os.path.join(self._files, file.path) for file in group)
        made = stage(rows, self._files, within=group[0].partition, names=names)
        paths = [file.path for file in group]

        def decide(state: State) -> Change | None:
            return Change(added=tuple(made), removed=tuple(paths)) if all(path in state.files for path in paths) else None

        return made if self.change(decide) or landed_after_all(self, made) else []

    def _old_files(self, before_ms: int) -> Iterable[str]:
        for path, _, names in os.walk(self._files):
            for name in names:
                full = os.path.join(path, name)
                if name.endswith(SUFFIX) and os.stat(full).st_mtime * 1000 <= before_ms:
                    yield os.path.relpath(full, self._files)
