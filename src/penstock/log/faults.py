"""What a log says when it cannot do what it was asked."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import DiskFailed, ReadFailed


class OffsetOutOfRange(ValueError):
    """The offset was never written, or is no longer kept."""


class LogDamaged(DiskFailed):
    """Bytes that were written are not there, or are not what was written. None of them are served."""

    offset: int | None = None  # Of a batch in the damaged segment, where that is known.


class Unreadable(LogDamaged):
    """The disk cannot read what was written. It may be able to another time, but that is not waited for where another copy is whole."""


class NewerFormat(Exception):
    """A file was written by a newer Penstock. Reading it as if it were ours could lose what is in it, so it is not opened."""


@contextmanager
def damage_at(offset: int) -> Iterator[None]:
    """Notes of damage that is found inside that it lies in the segment which holds this offset, unless it is known to lie in another. Bytes
    that cannot be read are damaged."""
    try:
        yield
    except ReadFailed as failure:
        damage = Unreadable(str(failure))
        damage.offset = offset
        raise damage from failure
    except LogDamaged as damage:
        if damage.offset is None:
            damage.offset = offset
        raise
