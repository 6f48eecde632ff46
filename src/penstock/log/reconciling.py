"""What a checkpoint lists, held against the names in the directory: compaction may have been at work since.

A swap is durable by the name of the compacted segment alone, and the checkpoint follows some time later. So a row of the checkpoint may
stand for a segment that was replaced. The replacing one takes its place; what the checkpoint cannot tell of it is read from the file.
The segment that was active when a checkpoint was made cannot have been replaced under the newest checkpoint, since compaction waits for
one that covers it. Under the one before it can; then that one says nothing that could be used.
"""

from penstock.env import Disk
from penstock.log import index_files
from penstock.log.config import LogIdentity
from penstock.log.segment import Segment, SegmentName
from penstock.log.sweeping import size_on_disk


def is_overtaken(listed: list[Segment], names: list[SegmentName]) -> bool:
    """Whether the segment that was active then has been replaced."""
    return bool(listed) and any(name.replaces(listed[-1].name) for name in names)


def reconcile(disk: Disk, directory: str, listed: list[Segment], names: list[SegmentName]) -> tuple[list[Segment], list[Segment]]:
    """The segments as they are now, and those among them that the checkpoint does not describe."""
    compacted = [name for name in names if name.is_compacted]
    segments: list[Segment] = []
    unknown: list[Segment] = []
    for row in listed:
        successor = next((name for name in compacted if name.replaces(row.name)), None)
        if successor is None:
            segments.append(row)
        elif not segments or segments[-1].name != successor:
            segment = Segment(directory, successor, row.opened_ms, None)
            segment.size = size_on_disk(disk, segment.path)  # It was whole and flushed before it got its name.
            segments.append(segment)
            unknown.append(segment)
    return segments, unknown


async def learn(disk: Disk, segment: Segment, identity: LogIdentity, interval_bytes: int) -> None:
    """Finds out the highest timestamp of a compacted segment that no checkpoint describes."""
    segment.index = await index_files.load(disk, segment, identity)
    if segment.index is None:
        file = disk.open(segment.path)
        try:
            segment.index = await index_files.rebuild(disk, file, segment, interval_bytes, gaps=True)
        finally:
            disk.close(file)
        index_files.save_if_possible(disk, segment, segment.index, identity)
    segment.let_index_go()
