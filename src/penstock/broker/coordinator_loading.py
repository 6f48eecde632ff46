"""How a coordinator's state is loaded: the snapshot, if there is one to be believed, then the log from there to its end.

In slices: whoever else needs the loop gets it every few milliseconds. Of each key only the last record of a stretch of the log is replayed,
for it says all there is to say; in the order of those last records, which is the order that compaction keeps too.
"""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

from penstock.broker import coordinator_snapshots
from penstock.broker.coordinator_snapshots import Disbelieved
from penstock.broker.patience import Patience
from penstock.env import Env
from penstock.errors import DiskFailed
from penstock.log.log import Log
from penstock.settings import KIB, MIB
from penstock.vocabulary import Offset
from penstock.wire.keyed_records import Pair, latest_records

S = TypeVar("S")

READ_BYTES = 256 * KIB  # Taken apart in one go: some ten milliseconds without the compiled loop, and a fraction of one with it.
REPLAYED_AT_ONCE = 500
STRETCH_BYTES = 8 * MIB  # Of log whose records are held back until the last one of each key is known.

Replay = Callable[[S, bytes, bytes | None], None]


@dataclass(slots=True)
class Loaded:
    """How it went, for the node's own log and for when the next snapshot is due."""

    snapshot_bytes: int = 0
    snapshot_offset: int = 0
    log_bytes: int = 0
    disbelief: str | None = None  # Why a snapshot that was there did not count.


async def load(env: Env, log: Log, new_state: Callable[[], S], replay: Replay[S]) -> tuple[S, Loaded]:
    """A state that has replayed everything in the log. Raises DiskFailed when the log cannot be read."""
    loaded, patience = Loaded(), Patience(env)
    state, offset = new_state(), int(log.start_offset)
    try:
        async with aclosing(coordinator_snapshots.read(env.disk, log)) as pieces:
            async for mark, entries, bytes_read in pieces:
                await _replay(entries, state, replay, patience)
                offset, loaded.snapshot_bytes = mark.offset, bytes_read
                loaded.snapshot_offset = offset
    except (Disbelieved, DiskFailed) as disbelief:
        loaded = Loaded(disbelief=str(disbelief))
        state, offset = new_state(), int(log.start_offset)
    while offset < log.end_offset:
        latest, offset = await _read_stretch(log, offset, loaded, patience)
        await _replay(list(latest.items()), state, replay, patience)
    return state, loaded


async def _read_stretch(log: Log, offset: int, loaded: Loaded, patience: Patience) -> tuple[dict[bytes, bytes | None], int]:
    """The last record of each key in a stretch of the log, and the offset after it."""
    latest: dict[bytes, bytes | None] = {}
    stretch_bytes = 0
    while offset < log.end_offset and stretch_bytes < STRETCH_BYTES:
        content = await log.read_later(Offset(offset), bytes_max=READ_BYTES, end_offset=log.end_offset)
        if not content:
            return latest, log.end_offset  # Compaction took what was left.
        offset = latest_records(content, offset, latest)
        stretch_bytes += len(content)
        loaded.log_bytes += len(content)
        await patience.pause_if_over()
    return latest, offset


async def _replay(pairs: list[Pair], state: S, replay: Replay[S], patience: Patience) -> None:
    for first in range(0, len(pairs), REPLAYED_AT_ONCE):
        for key, value in pairs[first : first + REPLAYED_AT_ONCE]:
            replay(state, key, value)
        await patience.pause_if_over()
