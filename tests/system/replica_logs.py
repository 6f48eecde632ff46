"""What each replica of a partition has in its files, batch by batch. The nodes may run, if nothing is written meanwhile."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.cli.segments import Damage, read_segment, segments_of


def check_replicas_agree(topic: str, directories: Mapping[int, Sequence[Path]]) -> int:
    """Holds the logs of all replicas of each partition against each other. How many batches there are in all."""
    count = 0
    for partition, places in directories.items():
        logs = [batches_in(place) for place in places]
        count += len(logs[0])
        for place, log in zip(places[1:], logs[1:], strict=True):
            assert log == logs[0], f"{topic}-{partition}: {_difference(places[0], logs[0], place, log)}"
    return count


def batches_in(directory: Path) -> list[tuple[int, ...]]:
    """Of each batch what must be the same everywhere: where it lies, who led, and its checksum, which covers the records."""
    assert directory.is_dir(), f"there is no replica in {directory}"
    rows = []
    with tempfile.TemporaryDirectory() as copy:  # Files on a FUSE disk cannot be mapped into memory.
        for segment in segments_of(directory):
            for row in read_segment(Path(shutil.copy(segment, copy))):
                assert not isinstance(row, Damage), f"{segment} is damaged at {row.position}: {row.what}"
                header = row.header
                rows.append((header.base_offset, header.last_offset, header.leader_epoch, header.crc))
    return rows


def _difference(one: Path, first: Sequence[tuple[int, ...]], other: Path, second: Sequence[tuple[int, ...]]) -> str:
    at = next((at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), min(len(first), len(second)))
    return f"{one} has {first[at : at + 2]} of {len(first)} batches where {other} has {second[at : at + 2]} of {len(second)}"
