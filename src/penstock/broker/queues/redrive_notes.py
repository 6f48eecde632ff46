"""Runs of redrives as they are kept with the ledger of the queue's first partition, and as nodes tell each other of them.

A run is three notes: what was wished, the ids that were named (which may be many, and are kept only while it runs), and how far it is. It
counts from when the last of them is there.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from penstock.broker.queues.calls import Filter, Redrive, RedriveTask, TaskStatus

_PREFIX, _WISH, _IDS, _RUN = "redrive.", ".wish", ".ids", ".run"
ENDED = (TaskStatus.COMPLETED, TaskStatus.CANCELLED, TaskStatus.FAILED)


def notes_of(task: RedriveTask) -> list[tuple[str, bytes]]:
    """All of a run that begins, in the order in which they are to be stored."""
    name = _PREFIX + task.handle
    return [(name + _WISH, _wish(task.wish)), (name + _IDS, "\n".join(sorted(task.wish.filter.ids)).encode()), progress_of(task)]


def progress_of(task: RedriveTask) -> tuple[str, bytes]:
    run = {"queue": task.queue, "started": task.started_ms, "to_move": task.to_move, "moved": task.moved, "status": str(task.status)}
    return _PREFIX + task.handle + _RUN, _written({**run, "failure": task.failure, "by_target": task.by_target})


def ids_note(handle: str) -> str:
    return _PREFIX + handle + _IDS


def names_of(handle: str) -> list[str]:
    """The run goes first: what is left of one that has none is nothing."""
    return [_PREFIX + handle + kind for kind in (_RUN, _WISH, _IDS)]


def tasks_in(notes: Mapping[str, bytes]) -> list[RedriveTask]:
    """Those that are kept, in the order in which they began, without the ids that were named."""
    handles = [name[len(_PREFIX) : -len(_RUN)] for name in notes if name.startswith(_PREFIX) and name.endswith(_RUN)]
    found = [_task(handle, notes) for handle in handles if _PREFIX + handle + _WISH in notes]
    return sorted(found, key=lambda task: task.started_ms)


def with_ids(task: RedriveTask, notes: Mapping[str, bytes]) -> RedriveTask:
    ids = frozenset(notes.get(ids_note(task.handle), b"").decode().split("\n")) - {""}
    return replace(task, wish=replace(task.wish, filter=replace(task.wish.filter, ids=ids)))


def pack_wish(wish: Redrive) -> tuple[dict[str, Any], list[bytes | None]]:
    """For another node: fields, and the ids as one blob."""
    return {"wish": json.loads(_wish(wish))}, ["\n".join(sorted(wish.filter.ids)).encode()]


def unpack_wish(fields: Mapping[str, Any], blobs: list[bytes | None]) -> Redrive:
    ids = frozenset((blobs[0] or b"").decode().split("\n")) - {""}
    wish = _read_wish(fields["wish"])
    return replace(wish, filter=replace(wish.filter, ids=ids))


def pack_task(task: RedriveTask) -> dict[str, Any]:
    return {"handle": task.handle, "wish": json.loads(_wish(task.wish)), "run": json.loads(progress_of(task)[1])}


def unpack_task(packed: Mapping[str, Any]) -> RedriveTask:
    return _read_task(str(packed["handle"]), packed["wish"], packed["run"])


def _task(handle: str, notes: Mapping[str, bytes]) -> RedriveTask:
    return _read_task(handle, json.loads(notes[_PREFIX + handle + _WISH]), json.loads(notes[_PREFIX + handle + _RUN]))


def _read_task(handle: str, wish: Mapping[str, Any], run: Mapping[str, Any]) -> RedriveTask:
    return RedriveTask(
        handle, run["queue"], _read_wish(wish), run["started"], run["to_move"], run["moved"], TaskStatus(run["status"]), run["failure"],
        dict(run["by_target"]),
    )  # fmt: skip


def _wish(wish: Redrive) -> bytes:
    fields = asdict(replace(wish, filter=replace(wish.filter, ids=frozenset())))
    del fields["filter"]["ids"]
    return _written(fields)


def _read_wish(fields: Mapping[str, Any]) -> Redrive:
    return Redrive(**{**fields, "filter": Filter(**fields["filter"])})


def _written(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
