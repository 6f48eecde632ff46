"""The tree that plain readers see: `topic=orders/date=2026-11-15/*.parquet`, as links to the files that the log of the table names.

Any reader of Parquet takes it as it is (Spark, Arrow, DuckDB, pandas) and need not know of the log. The tree is a replay of the log:
`settle` brings the directories that changed since the last time up to date; whoever is killed in between leaves it to the next.
Files that came are linked one by one. Where files went, the directory is built anew beside and the two are exchanged in one step, so that
a listing shows the old files or the new ones: never both, never neither. A reader that has listed a directory and opens a file of it after
the exchange gets "no such file", loudly, and lists again; one that takes its files from `Table.snapshot()` is not disturbed at all.
Rules: only the holder of the lock changes the tree. The tree is never read to find out what counts.
"""

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.lake.layout import SUFFIX
from penstock.pipeline.lake.log import Log
from penstock.pipeline.lake.staging import flush

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # linux/fs.h


class View:
    def __init__(self, root: str, *, inner: str, files: str, log: Log) -> None:
        self._root = root
        self._files = files
        self._log = log
        self._building = os.path.join(inner, "building")
        self._position = os.path.join(inner, "view")  # The number of the first change that the tree may not show yet.
        self._lock = os.path.join(inner, "view.lock")

    def settle(self) -> None:
        with self._locked():
            shutil.rmtree(self._building, ignore_errors=True)  # Left by somebody who was killed: the lock says that nobody is at it now.
            state = self._log.load()
            changed = self._log.directories_changed_since(self._settled())
            wanted = _names_by_directory(state.files)
            removed = _names_by_directory(state.removed_at_ms)
            for directory in sorted(self._directories() | set(wanted) if changed is None else changed):
                self._settle_directory(directory, wanted.get(directory, {}), set(removed.get(directory, ())))
            self._remember(state.next_number)

    def _settle_directory(self, directory: str, wanted: dict[str, str], removed: set[str]) -> None:
        path = os.path.join(self._root, directory)
        there = set(os.listdir(path)) if os.path.isdir(path) else set()
        if there and not there & removed:
            for name in wanted.keys() - there:
                _link(os.path.join(self._files, wanted[name]), os.path.join(path, name))
        elif there or wanted:
            self._rebuild(path, wanted, removed, there)

    def _rebuild(self, path: str, wanted: dict[str, str], removed: set[str], there: set[str]) -> None:
        beside = os.path.join(self._building, secrets.token_hex(4))
        os.makedirs(beside)
        for name, file in wanted.items():
            _link(os.path.join(self._files, file), os.path.join(beside, name))
        if not there:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.rename(beside, path)
            return
        exchange(beside, path)
        for name in there - wanted.keys() - removed:
            os.rename(os.path.join(beside, name), os.path.join(path, name))  # Somebody's own file, which is not ours to delete.
        shutil.rmtree(beside)
        if not os.listdir(path):
            os.rmdir(path)

    def _directories(self) -> set[str]:
        """Every directory of the tree that holds files."""
        found = set()
        for path, _, names in os.walk(self._root):
            directory = os.path.relpath(path, self._root)
            if not directory.startswith("_") and any(name.endswith(SUFFIX) for name in names):
                found.add(directory)
        return found

    def _settled(self) -> int:
        try:
            with open(self._position, encoding="ascii") as file:
                return int(file.read())
        except (FileNotFoundError, ValueError):
            return 0

    def _remember(self, number: int) -> None:
        with open(self._position + ".new", "w", encoding="ascii") as file:
            file.write(str(number))
        os.replace(self._position + ".new", self._position)
        flush(self._position)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        handle = os.open(self._lock, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def exchange(one: str, other: str) -> None:
    """Gives two directories each other's name in one step.

    Where the file system cannot (Linux can on ext4, xfs, btrfs and tmpfs), by two renames: a listing in between misses the directory, and
    nothing is ever shown twice.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None and rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    if rename is not None and code not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        raise OSError(code, os.strerror(code), other)
    aside = f"{one}.aside"
    os.rename(other, aside)
    os.rename(one, other)
    os.rename(aside, one)


def _names_by_directory(paths: Iterable[str]) -> dict[str, dict[str, str]]:
    """For each directory, the names in it and their paths."""
    found: dict[str, dict[str, str]] = {}
    for path in paths:
        directory, _, name = path.rpartition("/")
        found.setdefault(directory, {})[name] = path
    return found


def _link(file: str, name: str) -> None:
    try:
        os.link(file, name)
    except FileExistsError:
        return
    except OSError as failure:
        if failure.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV):
            raise
        raise PipelineComplaint(
            f"the file system does not let {name} be a second name of a file ({failure.strerror})",
            "keep the table on a file system with hard links, or write it as a Delta table (format delta)",
        ) from failure
