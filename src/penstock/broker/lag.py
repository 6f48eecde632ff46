"""How far a group is behind in a partition: in records, in time, and in the time left until what it has not read is gone.

- Lag in records is the log's end (what consumers may see) less the committed offset. Records that are gone already still count, as in
  Kafka's tools; `lost` says how many they are.
- A committed offset past the end is no lag: there is nothing to read, but whoever reads on there gets an error and starts over as its own
  settings say, or misses what comes until the log has grown to it. `past_end` says how far off it is; how late the group is, nobody knows.
- Time lag is the age of the next record that the group will get. Nothing unread: 0. A record without a time: nobody knows.
- Time to loss is how long until age may take the segment that holds that record, at the earliest. Nothing unread, or a topic that drops
  nothing by age: none. Segments go whole, and only when retention is next looked at, so 0 means due and not gone.
Pure: offsets and clocks come in as numbers. Not here: where they come from (group_lag.py).
"""

from typing import NamedTuple


class Span(NamedTuple):
    """What of a partition can be read."""

    start_offset: int
    end_offset: int


class Lag(NamedTuple):
    records: int
    lost: int  # Of the records that were not read: gone by now.
    time_ms: int | None
    loss_ms: int | None
    past_end: int = 0  # How far beyond the log's end the committed offset lies.


def next_unread(committed: int, span: Span) -> int | None:
    """The offset from which the group will read on; None when there is nothing to read."""
    offset = max(committed, span.start_offset)
    return offset if offset < span.end_offset else None


def lag_of(committed: int, span: Span, *, next_timestamp_ms: int | None, ages_out_ms: int | None, wall_ms: int) -> Lag:
    """`next_timestamp_ms` is the time of the record at `next_unread`, `ages_out_ms` how soon its segment may go; None: not known, never."""
    lost = max(0, span.start_offset - committed)
    if committed > span.end_offset:
        return Lag(0, 0, None, None, committed - span.end_offset)
    if next_unread(committed, span) is None:  # What was lost may be all there was: then it is lag that nobody can work off.
        return Lag(span.end_offset - committed, lost, 0, None)
    time_ms = None if next_timestamp_ms is None else max(0, wall_ms - next_timestamp_ms)
    loss_ms = None if ages_out_ms is None else max(0, ages_out_ms)
    return Lag(span.end_offset - committed, lost, time_ms, loss_ms)
