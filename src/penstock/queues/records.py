"""The records of a companion partition."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointPiece:
    """A part of a checkpoint. `at` is the end of the companion log when the checkpoint began: records from there on come on top of it."""

    at: int
    number: int
    is_last: bool
    content: bytes


Record = CheckpointPiece


def encode(record: Record) -> tuple[bytes, bytes]:
    raise NotImplementedError


def decode(key: bytes, value: bytes | None) -> Record:
    raise NotImplementedError
