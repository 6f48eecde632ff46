"""Checkpoints of a ledger, in its own log: so that loading does not grow with history, and the log does not either.

A checkpoint is a row of pieces, drawn from the state as it was when the first was appended, while records of decisions come in between.
When the last piece is committed, the log is made to start at the first one. So a log starts with a whole checkpoint or at offset 0, and
what stands behind the first piece, other pieces apart, comes on top of it. A later checkpoint that is there as well, whole or cut short by
a crash or a change of leader, says nothing that the records beside it don't.
Since they are records, followers have them too, and nothing beside the log has to be believed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.broker.patience import Patience
from penstock.broker.trimming import trim
from penstock.env import Env
from penstock.errors import DiskFailed, DiskFull, MalformedInput, Refusal
from penstock.log.log import Log
from penstock.queues.records import CheckpointPiece, decode, encode
from penstock.queues.state import LedgerState
from penstock.settings import KIB
from penstock.vocabulary import Offset
from penstock.wire.batches import Record, encode_batch
from penstock.wire.keyed_records import keyed_records

if TYPE_CHECKING:
    from penstock.broker.node import Node
    from penstock.broker.queues.leading import QueuePartition

READ_BYTES = 256 * KIB

_PIECE_KEY = encode(CheckpointPiece(0, 0, True, b""))[0]


@dataclass(slots=True)
class Loaded:
    checkpoint_bytes: int = 0
    log_bytes: int = 0


async def load(env: Env, log: Log, new_state: Callable[[], LedgerState]) -> tuple[LedgerState, Loaded]:
    """A state that has replayed everything in the log. Raises DiskFailed, or MalformedInput where the log is not what it must be."""
    loading, patience = _Loading(new_state, has_checkpoint=log.start_offset > 0), Patience(env)
    offset = int(log.start_offset)
    while offset < log.end_offset:
        content = bytes(await log.read_later(Offset(offset), bytes_max=READ_BYTES, end_offset=log.end_offset))
        if not content:
            break
        pairs, offset = keyed_records(content, offset)
        loading.loaded.log_bytes += len(content)
        for key, value in pairs:
            loading.take(key, value)
            await patience.pause_if_over()
    return loading.ended(), loading.loaded


class _Loading:
    def __init__(self, new_state: Callable[[], LedgerState], *, has_checkpoint: bool) -> None:
        self.loaded = Loaded()
        self._state = new_state()
        self._is_restored = not has_checkpoint
        self._restoring = self._state.restoring() if has_checkpoint else None
        self._number = 0  # Of the next piece.
        self._at = -1  # Of the checkpoint that the log starts with.
        self._held: list[tuple[bytes, bytes | None]] = []  # What came between its pieces.

    def take(self, key: bytes, value: bytes | None) -> None:
        piece = _piece(key, value)
        if piece is None:
            if self._is_restored:
                self._state.replay_stored(key, value)
            else:
                self._held.append((key, value))
        elif not self._is_restored:
            self._take_piece(piece)

    def _take_piece(self, piece: CheckpointPiece) -> None:
        if self._at < 0:
            self._at = piece.at
        if piece.at != self._at:
            return  # Another one, begun after a change of leader.
        if piece.number != self._number or self._restoring is None:
            raise MalformedInput(f"piece {self._number} of the checkpoint that the ledger's log starts with is missing")
        self._restoring.read(piece.content)  # One by one: of delays that are far away there may be more than memory should hold.
        self._number += 1
        self.loaded.checkpoint_bytes += len(piece.content)
        if piece.is_last:
            self._is_restored = True
            for key, value in self._held:
                self._state.replay_stored(key, value)
            self._held = []

    def ended(self) -> LedgerState:
        if not self._is_restored:
            raise MalformedInput("the ledger's log starts with no whole checkpoint")
        return self._state


def _piece(key: bytes, value: bytes | None) -> CheckpointPiece | None:
    record = decode(key, value) if key == _PIECE_KEY else None
    return record if isinstance(record, CheckpointPiece) else None


async def write(node: "Node", ledger: "QueuePartition") -> int | None:
    """Appends a checkpoint, waits until it is committed, and lets the log start there; returns its size.

    None: it was not finished, and a later round tries again. Another node leads, the disk is full, or nothing is committed now.
    """
    coordinator, partition = ledger.coordinator, ledger.companion
    state, patience, size = coordinator.state, Patience(node.env), 0
    if state is None or coordinator.is_stuck:
        return None
    at, held = int(partition.log.end_offset), None
    try:
        for content in state.checkpoint():
            if content is None:
                await ledger.pages.fetched()
                if coordinator.state is not state:
                    return None
                continue
            if held is not None:
                size += _append(node, ledger, held)
                await patience.pause_if_over()
                if coordinator.state is not state:
                    return None
            held = CheckpointPiece(at, 0 if held is None else held.number + 1, False, content)
        if held is None:
            return None
        size += _append(node, ledger, CheckpointPiece(at, held.number, True, held.content))
        await coordinator.read(lambda _: None)
        if coordinator.state is not state:
            return None
        await trim(node, partition, Offset(at))
    except DiskFull as full:
        node.disk_was_full(full)
        return None
    except (DiskFailed, Refusal):
        return None  # Whoever asks for messages hears of it; the log's failure is reported where it is found.
    return size


def _append(node: "Node", ledger: "QueuePartition", piece: CheckpointPiece) -> int:
    wall_ms = node.env.wall_ms()
    batch = encode_batch([Record(*encode(piece), timestamp_ms=wall_ms)])
    ledger.companion.append(batch, wall_ms)
    node.appended(ledger.companion)
    return len(batch)
