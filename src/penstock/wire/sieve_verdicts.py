"""What the compiled sieve and its Python twin answer: one vocabulary for both."""

from enum import IntEnum
from typing import NamedTuple

SLOT_BYTES = 24  # Of a table of keys: sixteen bytes of hash, and the key's last offset plus one in eight; zeros are an empty slot.


class Stop(IntEnum):
    """Why the sieve stopped before a batch. The numbers are known to the compiled loop."""

    END = 0  # It reached the end of what it was given.
    SPECIAL = 1  # A batch that is compressed, transactional or a control batch: the caller must deal with it.
    FULL = 2  # The batch may have more keys than there is room for.
    MALFORMED = 3  # Its records do not parse.


class Noted(NamedTuple):
    position: int  # Where the next batch begins.
    added: int  # Keys that the table did not have.
    stop: int  # A Stop.


class Sifted(NamedTuple):
    position: int  # Where the next batch begins.
    content: bytes  # What is left of the batches before it.
    marks: list[tuple[int, int, int]]  # Of stretches of the content: first offset, position, highest timestamp of a record; -1 if none.
    records_removed: int
    batches_changed: int  # Not as they were, or gone.
    stop: int  # A Stop.
