"""Times as Python has them: spans are seconds or a timedelta, moments are datetimes with a zone."""

from datetime import UTC, datetime, timedelta

Span = float | timedelta
Moment = datetime | float  # Seconds since 1970, where it is a number.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(span: Span, name: str) -> int:
    """`name` is the argument's, for the person who gave it something else."""
    if isinstance(span, bool) or not isinstance(span, int | float | timedelta):
        raise TypeError(f"{name} must be seconds or a timedelta, not {span!r}")
    found = span / timedelta(milliseconds=1) if isinstance(span, timedelta) else span * 1000
    if not 0 <= found < 1 << 53:  # Also false for what is no number at all.
        raise ValueError(f"{name} must be a span of time from 0 on, not {span!r}")
    return round(found)


def seconds(span: Span, name: str) -> float:
    return milliseconds(span, name) / 1000


def wall_ms(moment: Moment, name: str) -> int:
    """Milliseconds since 1970: those that a node's clock shows then, so that what happens a moment later is not before it."""
    if isinstance(moment, bool) or not isinstance(moment, int | float | datetime):
        raise TypeError(f"{name} must be a datetime or seconds since 1970, not {moment!r}")
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError(f"{name} must be a datetime with a time zone, such as datetime.now(UTC), not {moment!r}")
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    return round(moment * 1000)


def moment(wall_ms: int) -> datetime:
    return datetime.fromtimestamp(wall_ms / 1000, UTC)
