"""What a log says when it cannot do what it was asked."""

from penstock.errors import DiskFailed


class OffsetOutOfRange(ValueError):
    """The offset was never written, or is no longer kept."""


class LogDamaged(DiskFailed):
    """Bytes that were written are not there, or are not what was written. None of them are served."""

    offset: int | None = None  # In a later segment than the one that was asked for: at this offset or after it.


class NewerFormat(Exception):
    """A file was written by a newer Penstock. Reading it as if it were ours could lose what is in it, so it is not opened."""
