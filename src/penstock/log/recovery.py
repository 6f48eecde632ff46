"""Opening a log: what is on the disk, what of it can be believed, and making that durable again.

1. The newest checkpoint that can be believed tells everything below its end. Nothing below is ever cut; what is missing there takes the
   log offline for writes.
   Where compaction has been at work since, the names of the files tell (reconciling.py).
2. After a clean stop nothing lies above it, and nothing is read. Otherwise every batch above it is read, verified and replayed.
3. Where that ends before the bytes do, tail.py judges: cut off, or damaged. Damage takes the log offline for writes and is left as it is.
   Whatever ends below the offset that the owner knows to have been on the disk is damaged, and so are files that are missing then.
4. What was found may be in the kernel's memory only (the process was killed, the machine lived), and a flush of it may have failed. So
   what is not known to be flushed is written once more (rewriting.py) and flushed, before it can be read.

Each step can be repeated: a crash in the middle leaves a log that opens to the same end.
"""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.env import Env
from penstock.errors import DiskFailed, DiskFull
from penstock.log import checkpoint, truncating
from penstock.log.checkpoint import Remembered
from penstock.log.config import LogConfig, LogIdentity
from penstock.log.found import Found
from penstock.log.index import SparseIndex
from penstock.log.open_files import OpenFiles
from penstock.log.reconciling import is_overtaken, learn, reconcile
from penstock.log.rewriting import finish_renaming, refresh_name
from penstock.log.segment import DROPPED, Segment, SegmentName
from penstock.log.sweeping import last_generation, size_on_disk, sweep, sweep_below
from penstock.log.tail import Rule, Stretch, Verdict, judge
from penstock.log.tail_scan import FlushFailed, TailScan
from penstock.vocabulary import Buffer
from penstock.wire.batches import BatchHeader

EPOCH_MAX = 2**31 - 1
EVERYTHING = 2**63 - 1


def ignore_damage(offset: int) -> None:
    """Whoever reads is told, and nobody else needs to be."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known before anything was read."""

    env: Env
    directory: str
    identity: LogIdentity
    config: LogConfig
    files: OpenFiles
    is_clean: bool  # The node stopped in order, and said so last.
    restore: Callable[[bytes], None]
    replay: Callable[[BatchHeader], None]
    epoch_max: int = EPOCH_MAX  # No batch can have been written in a later epoch than this.
    replay_control: Callable[[BatchHeader, Buffer], None] | None = None  # For control batches, in place of `replay`.
    known_end: int = 0  # Everything below this offset was flushed to this disk, and nothing has cut the log below it since.
    accepts_loss: bool = False  # An operator has decided to go on with what can be read: the log ends before the first damaged batch.
    on_damage: Callable[[int], None] = ignore_damage  # A read at this offset has found damage.


def ancestors(directory: str) -> list[str]:
    """The directory and those above it, up to the data directory: each holds the name of the one before."""
    parts = directory.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]


async def recover(opening: Opening) -> Found:
    found = await _try_to_recover(opening)
    if found.failure is not None and opening.accepts_loss:
        try:
            await truncating.forget_checkpoints(opening.env.disk, opening.directory)
        except DiskFailed:
            return found
        found = await _try_to_recover(opening)  # By the batches alone.
    found.start_offset = min(found.start_offset, found.end_offset)  # A cut may have gone below it, or damage hides what lies there.
    if found.failure is None and found.end_offset < opening.known_end and not opening.accepts_loss:
        found.failure = f"the log ends at offset {found.end_offset}, {_lost(opening)}"
        found.report.is_end_lost = True
    return found


async def _try_to_recover(opening: Opening) -> Found:
    try:
        return await _recover(opening)
    except DiskFailed as failure:
        return Found(failure=str(failure))  # One log that cannot be read is no reason to keep all the others from being served.


def _lost(opening: Opening) -> str:
    return f"but everything below offset {opening.known_end} was on this disk: acknowledged records are lost here"


async def _recover(opening: Opening) -> Found:
    disk, directory = opening.env.disk, opening.directory
    names = disk.list(directory)
    if not names and opening.known_end > 0 and not opening.accepts_loss:
        opening.restore(b"")
        return Found(failure=f"the files of the log are missing, {_lost(opening)}")
    if not names:
        return Found(is_saved=False, lacks_directory=not await _make(opening))
    names = finish_renaming(disk, directory, names)
    stay = await sweep(disk, directory, names, is_clean=opening.is_clean)
    remembered = checkpoint.load(disk, directory, opening.identity, names)
    found = await _believe(opening, remembered, stay)
    found.generation = last_generation(names)
    above = _list_above(opening, found, stay)
    if opening.is_clean and not above and _is_as_left(opening, found):
        found.is_saved = remembered is not None and remembered.is_newest and not found.lists_replaced
        return found
    was_checkpointed = checkpoint.CHECKPOINT in names or checkpoint.PREVIOUS in names
    await _look_above(opening, found, above, may_drop_files=remembered is not None or not was_checkpointed)
    return found


async def _make(opening: Opening) -> bool:
    """Makes a log that is new; returns whether its directory is there. Its first name is on the disk before anything else: were it lost and
    a later one kept, the log would seem to begin there. On a full disk the rest is made when there is something to write."""
    disk, directory = opening.env.disk, opening.directory
    opening.restore(b"")
    try:
        disk.mkdir(directory)
    except DiskFull:
        return False
    try:
        disk.close(disk.open(Segment(directory, 0, 0, None).path, create=True))
    except DiskFull:
        return True
    if failures := await disk.sync((), ancestors(directory)):
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")
    return True


async def _believe(opening: Opening, remembered: Remembered | None, names: list[SegmentName]) -> Found:
    """What is known without reading a batch; except of what compaction has put in place since the checkpoint."""
    gaps_below = max((name.end_offset for name in names), default=0)
    first_base = names[0].base_offset if names else 0
    if remembered is None or remembered.says_only_start or is_overtaken(remembered.segments, names) or _is_outlived(remembered, names):
        opening.restore(b"")
        known_start = remembered.start_offset if remembered is not None else 0
        return Found(max(known_start, first_base), first_base, max(0, gaps_below), is_start_known=known_start >= first_base)
    opening.restore(remembered.extra)
    disk, directory = opening.env.disk, opening.directory
    segments, unknown = reconcile(disk, directory, remembered.segments, names)
    found = Found(remembered.start_offset, remembered.end_offset, max(remembered.gaps_below, gaps_below), remembered.clean_end, segments)
    found.epochs = remembered.epochs
    found.lists_replaced = bool(unknown)
    found.checkpoint_bases = tuple(segment.base_offset for segment in segments)
    found.checkpoint_end = remembered.end_offset
    if not remembered.is_newest:
        found.report.notes.append("the newest checkpoint cannot be read; the one before it was used")
        while len(found.segments) > 1 and found.segments[0].base_offset < names[0].base_offset:
            found.segments.pop(0)  # Retention has taken it since.
            found.start_offset = max(found.start_offset, found.segments[0].base_offset)
            found.is_start_known = False
    first_base = found.segments[0].base_offset if found.segments else found.end_offset
    if names and names[0].base_offset < first_base and not opening.is_clean:
        # Nothing goes on the word of a checkpoint whose name may not be on the disk.
        refresh_name(disk, f"{directory}/{checkpoint.CHECKPOINT if remembered.is_newest else checkpoint.PREVIOUS}")
        if failures := await disk.sync((), [directory]):
            raise FlushFailed(f"{failures[0][0]}: {failures[0][1]}")
    sweep_below(disk, directory, first_base, names)
    for segment in unknown:
        await learn(disk, segment, opening.identity, opening.config.index_interval_bytes)
    return found


def _is_outlived(remembered: Remembered, names: list[SegmentName]) -> bool:
    """Whether retention has passed the older checkpoint. What its owner remembers does not fit the batches that are left."""
    if remembered.is_newest:
        return False
    return not names or (bool(remembered.segments) and remembered.segments[-1].base_offset < names[0].base_offset)


def _list_above(opening: Opening, found: Found, names: list[SegmentName]) -> list[Segment]:
    """The segments that came after the checkpoint. What the checkpoint lists and the disk lacks is damage, and so is a stranger between."""
    here = dict.fromkeys(names)
    last = found.segments[-1].base_offset if found.segments else -1
    for segment in found.segments:
        if segment.name not in here and segment.size:
            found.failure = f"{segment.path} is missing"
        here.pop(segment.name, None)
    now_ms, interval_bytes = opening.env.wall_ms(), opening.config.index_interval_bytes
    disk, is_empty = opening.env.disk, not found.segments
    above = []
    for name in here:
        segment = Segment(opening.directory, name, now_ms, SparseIndex(interval_bytes))
        if is_empty or name.is_compacted or size_on_disk(disk, segment.path):
            above.append(segment)
            is_empty = False
        else:  # Nothing was written to it, or it was cut off. Only where there is no other does it tell where the log begins.
            disk.unlink(segment.path)
    if above and above[0].base_offset <= last:
        found.failure = f"{above[0].path} is not in the checkpoint"
    return above


def _is_as_left(opening: Opening, found: Found) -> bool:
    if not found.segments or found.failure is not None:
        return found.failure is None
    return size_on_disk(opening.env.disk, found.segments[-1].path) == found.segments[-1].size


async def _look_above(opening: Opening, found: Found, above: list[Segment], *, may_drop_files: bool) -> None:
    disk = opening.env.disk
    if found.failure is not None or not (found.segments or above):
        return
    scan = TailScan(
        disk, opening.files, opening.identity, found,
        replay=opening.replay, replay_control=opening.replay_control, epoch_max=opening.epoch_max,
        flushed_end=EVERYTHING if opening.is_clean else max(found.checkpoint_end, opening.known_end),
    )  # fmt: skip
    try:
        bad = await scan.run(above)
        if bad is not None:
            unread = [segment for segment in above if segment not in found.segments]
            await _settle(opening, found, scan, bad, unread=unread, may_drop_files=may_drop_files)
        if scan.is_changed and found.failure is None:
            await scan.write_again(found.segments[-1], found.end_offset)
            failures = await disk.sync([held.file for held in scan.held.values()], ancestors(opening.directory))
            if failures:
                raise FlushFailed(f"{failures[0][0]}: {failures[0][1]}")
    except DiskFailed as failure:
        found.failure = str(failure)
    finally:
        scan.release()


async def _settle(opening: Opening, found: Found, scan: TailScan, bad: Stretch, *, unread: list[Segment], may_drop_files: bool) -> None:
    """The good batches end before the bytes do: cuts, or finds the log damaged."""
    disk = opening.env.disk
    if any(segment.name.is_compacted for segment in unread):
        scan.is_contradicted = True  # Compaction touches nothing that is not flushed, and all before it was flushed too.
    later = [Stretch(held.file, 0, disk.size(held.file)) for held in map(scan.hold, unread)]
    verdict = await judge(disk, bad, later, Rule(found.end_offset, found.epochs.latest, opening.epoch_max))
    where = f"{bad.file.path}, position {bad.position}, offset {found.end_offset}"
    can_be_cut = opening.accepts_loss and not found.segments[-1].name.is_compacted  # The name of a compacted one says where it ends.
    if (verdict is Verdict.ROTTEN or scan.is_contradicted) and not can_be_cut:
        found.failure = f"{where}: {Verdict.ROTTEN.value}; nothing was cut off"
        return
    if found.end_offset < opening.known_end and not can_be_cut:
        found.failure = f"{where}: {verdict.value}, {_lost(opening)}; nothing was cut off"
        found.report.is_end_lost = verdict is Verdict.TORN
        return
    if bad.position == bad.end and verdict is Verdict.UNWRITTEN and not may_drop_files and not can_be_cut:
        found.failure = f"{where}: the next segment is missing; nothing was cut off"
        return
    found.report.cut_bytes = bad.end - bad.position + sum(stretch.end for stretch in later)
    found.report.notes.append(f"{where}: {verdict.value}; cut off {found.report.cut_bytes} bytes")
    scan.is_changed = True
    await truncating.empty(disk, [scan.hold(segment).file for segment in unread])
    for segment in reversed(unread):
        scan.let_go(segment)
        disk.rename(segment.path, segment.path + DROPPED)
        disk.unlink(segment.path + DROPPED)
    disk.truncate(bad.file, bad.position)
