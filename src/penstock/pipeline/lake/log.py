"""The log of a Parquet table: what belongs to it, as changes that are numbered and never altered.

    _penstock/log/00000000000000000041.json            one change: files added, files removed, marks
    _penstock/log/00000000000000000032.checkpoint.json  everything up to 32 in one file

A change takes effect when its file appears, and it appears whole or not at all: it is written beside, flushed, and linked to its number.
The link fails where the number is taken, so of two writers one loses, looks at what the other did, and decides anew.
A mark is a number kept under a name (the last batch of a query, the next offset of a partition); it only grows, and a change that
would not make it grow was made already. This is what makes a batch count once, however often it is committed.
State is a replay of the log. A state can be rebuilt by anybody at any time; nothing but the log is believed.
Not here: the files that it names (staging.py), and the tree that plain readers see (view.py).
"""

import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.lake.layout import StagedFile, directory_of, partition_of
from penstock.pipeline.lake.staging import flush

FORMAT = 1
CHECKPOINT_EVERY = 32  # Changes between two checkpoints: what a reader has to replay at most, beside a few.

_CHANGE = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.json")


@dataclass(frozen=True, slots=True)
class Change:
    added: tuple[StagedFile, ...] = ()
    removed: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()  # Removed earlier, and since deleted from the disk.
    marks: Mapping[str, int] = field(default_factory=dict)
    schema: str = ""  # Of the rows added, as `table.describe` writes it.
    at_ms: int = 0


@dataclass(slots=True)
class State:
    """What a log says up to a number."""

    next_number: int = 0
    files: dict[str, StagedFile] = field(default_factory=dict)  # By path, in the order in which they were added.
    removed_at_ms: dict[str, int] = field(default_factory=dict)  # Files that readers of an earlier state may still have open.
    marks: dict[str, int] = field(default_factory=dict)
    schema: str = ""

    def replay(self, change: Change) -> None:
        for path in change.removed:
            if self.files.pop(path, None) is not None:
                self.removed_at_ms[path] = change.at_ms
        for path in change.forgotten:
            self.removed_at_ms.pop(path, None)
        self.files.update((file.path, file) for file in change.added)
        self.marks.update(change.marks)
        self.schema = change.schema or self.schema
        self.next_number += 1


class NumberTaken(Exception):
    """Another writer was faster; the change was not made."""


class Log:
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def exists(self) -> bool:
        return os.path.isdir(self._directory)

    def load(self) -> State:
        while True:
            names = sorted(self._names())
            try:
                return self._load(names)
            except FileNotFoundError as missing:
                if names == sorted(self._names()):
                    raise PipelineComplaint(
                        f"the log of the table has a hole: {missing.filename} is missing",
                        "bring that file back from a copy of the table; without it nobody can tell which files count",
                    ) from None  # Otherwise it was trimmed between the listing and the reading, and there is a newer checkpoint.

    def append(self, change: Change, number: int) -> None:
        os.makedirs(self._directory, exist_ok=True)
        self._publish(f"{number:020d}.json", _change_as_json(change))

    def checkpoint(self, state: State) -> None:
        """Spares later readers the changes up to this state. Two that do it at once write the same."""
        try:
            self._publish(f"{state.next_number - 1:020d}.checkpoint.json", _state_as_json(state))
        except NumberTaken:
            return

    def trim(self) -> int:
        """Deletes what the last checkpoint but one covers: a reader that has just listed the log still finds what it needs."""
        numbers = sorted(int(match[1]) for name in self._names() if (match := _CHECKPOINT.fullmatch(name)))
        if len(numbers) < 2:
            return 0
        gone = [name for name in self._names() if int(name[:20]) <= numbers[-2] and name != f"{numbers[-2]:020d}.checkpoint.json"]
        for name in gone:
            os.unlink(os.path.join(self._directory, name))
        return len(gone)

    def directories_changed_since(self, number: int) -> set[str] | None:
        """Directories of the files that changes from this number on name; None where the log does not go back that far."""
        changed: set[str] = set()
        names = set(self._names())
        end = max((int(name[:20]) + 1 for name in names), default=0)
        for at in range(number, end):
            try:
                change = _change_from_json(self._read(f"{at:020d}.json"))
            except FileNotFoundError:
                return None
            changed.update(directory_of(file.partition) for file in change.added)
            changed.update(path.rpartition("/")[0] for path in change.removed)
        return changed

    def _load(self, names: list[str]) -> State:
        checkpoints = [name for name in names if _CHECKPOINT.fullmatch(name)]
        state = _state_from_json(self._read(max(checkpoints))) if checkpoints else State()
        last = max((int(name[:20]) for name in names if _CHANGE.fullmatch(name)), default=-1)
        while state.next_number <= last:
            state.replay(_change_from_json(self._read(f"{state.next_number:020d}.json")))
        return state

    def _names(self) -> list[str]:
        if not os.path.isdir(self._directory):
            return []
        return [name for name in os.listdir(self._directory) if _CHANGE.fullmatch(name) or _CHECKPOINT.fullmatch(name)]

    def _read(self, name: str) -> dict[str, Any]:
        path = os.path.join(self._directory, name)
        with open(path, encoding="utf-8") as file:
            held: dict[str, Any] = json.load(file)
        if held["format"] != FORMAT:
            raise PipelineComplaint(
                f"{path} has format {held['format']}; this version reads {FORMAT}",
                "use the version of Penstock that wrote it, or a later one",
            )
        return held

    def _publish(self, name: str, content: dict[str, Any]) -> None:
        path = os.path.join(self._directory, name)
        beside = f"{path}.{secrets.token_hex(4)}.new"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, **content}, file, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(beside, path)
        except FileExistsError:
            if not os.path.samefile(beside, path):  # A file server that is asked again may say so of the very link that it has just made.
                raise NumberTaken(name) from None
        finally:
            os.unlink(beside)
        flush(self._directory)


def _change_as_json(change: Change) -> dict[str, Any]:
    return {
        "at_ms": change.at_ms,
        "marks": dict(change.marks),
        "added": _files_as_json(change.added),
        "removed": list(change.removed),
        "forgotten": list(change.forgotten),
        "schema": change.schema,
    }


def _change_from_json(held: dict[str, Any]) -> Change:
    return Change(
        _files_from_json(held["added"]), tuple(held["removed"]), tuple(held["forgotten"]), held["marks"], held["schema"], held["at_ms"]
    )


def _state_as_json(state: State) -> dict[str, Any]:
    return {
        "next_number": state.next_number,
        "marks": state.marks,
        "schema": state.schema,
        "removed_at_ms": state.removed_at_ms,
        "files": _files_as_json(tuple(state.files.values())),
    }


def _state_from_json(held: dict[str, Any]) -> State:
    files = {file.path: file for file in _files_from_json(held["files"])}
    return State(held["next_number"], files, held["removed_at_ms"], held["marks"], held["schema"])


def _files_as_json(files: tuple[StagedFile, ...]) -> list[dict[str, Any]]:
    return [{"path": file.path, "rows": file.rows, "bytes": file.size_bytes, "stats": file.stats} for file in files]


def _files_from_json(held: list[dict[str, Any]]) -> tuple[StagedFile, ...]:
    return tuple(
        StagedFile(one["path"], partition_of(one["path"].rpartition("/")[0]), one["rows"], one["bytes"], one["stats"]) for one in held
    )
