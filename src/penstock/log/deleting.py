"""Removing what retention is done with, so that a crash between any two steps leaves a log that opens.

First the checkpoint says where the log starts now, and that is flushed. Then the files are renamed and that is flushed. Then they go.
"""

from itertools import takewhile

from penstock.env import Disk, Env, SyncFailures
from penstock.log.checkpoint import encode, load
from penstock.log.config import LogIdentity
from penstock.log.faults import LogDamaged
from penstock.log.retention import Expired
from penstock.log.segment import DELETED, Segment, Shelf
from penstock.log.small_files import unlink_all


def still_going(plan: Expired, shelf: Shelf, end_offset: int) -> list[Segment]:
    """The plan's segments as far as they still stand first. The last one stays if it has grown since, closed by now or not.

    What compaction has replaced since, and all after it, waits for the next plan.
    """
    stands = zip(shelf.segments, plan.segments, strict=False)
    going = [segment for segment, _ in takewhile(lambda pair: pair[0] is pair[1], stands)]
    if going and shelf.end_of(len(going) - 1, end_offset) > plan.start_offset:
        going.pop()
    return going


def checkpoint_from(disk: Disk, directory: str, identity: LogIdentity, start_offset: int, first_base: int) -> bytes:
    """The checkpoint that is on the disk, with a later start. What its owner kept in it stays right: it stands for the same end.

    `first_base` is the base of the first segment that stays. The start alone doesn't tell: it may stand where the checkpoint ends, and
    the segment there has grown since.
    """
    remembered = load(disk, directory, identity, disk.list(directory))
    if remembered is None or not remembered.is_newest:
        raise LogDamaged(f"{directory}: the checkpoint cannot be read")
    remembered.start_offset = start_offset
    remembered.segments = [segment for segment in remembered.segments if segment.base_offset >= first_base]
    remembered.epochs.drop_below(first_base)  # Not up to the start: what lies before it in its segment is still compared with its epoch.
    return encode(identity, remembered)


async def remove_files(env: Env, directory: str, segments: list[Segment]) -> SyncFailures:
    disk = env.disk
    for segment in segments:
        disk.rename(segment.path, segment.path + DELETED)
    failures = await disk.sync((), [directory])
    if not failures:
        paths = [path for segment in segments for path in (segment.index_path, segment.path + DELETED)]
        await env.offload(unlink_all, disk, paths)
    return failures
