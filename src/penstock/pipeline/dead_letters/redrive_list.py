"""The list of letters to be sent back, as `penstock queues redrive QUEUE --ids-from FILE` takes it.

A line begins with the message's id; where it came from and the kind of failure stand behind it, for whoever reads it and strikes out lines.
An id that has moved on meanwhile is skipped there, so that an old list does no harm. The file is there whole or not at all.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class Listed(NamedTuple):
    topic: str  # The queue that it lies in.
    id: str
    queue: str  # The one that it came from.
    kind: str


def write_list(file: Path, chosen: Iterable[Listed], *, is_cut: bool = False) -> int:
    """How many there are in it."""
    ordered = sorted(chosen)
    lines = ["# Dead letters to be sent back. Strike out what should stay, then:"]
    lines += [f"#   penstock queues redrive {topic} --ids-from {file.name} --dry-run" for topic in _topics(ordered)]
    lines += [f"# There are more: these are the first {len(ordered)}."] if is_cut else []
    lines += [", ".join(_one_line(part) for part in (each.id, each.queue, each.kind)) for each in ordered]
    beside = file.with_name(f".{file.name}.new")
    beside.write_text("\n".join(lines) + "\n")
    os.replace(beside, file)
    return len(ordered)


def _topics(ordered: Sequence[Listed]) -> list[str]:
    return list(dict.fromkeys(each.topic for each in ordered))


def _one_line(text: str) -> str:
    return " ".join(text.split())
