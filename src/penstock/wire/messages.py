"""Records as a queue looks at them: which of them carry options, and a few of them whole. Compiled where it was built, a twin elsewhere.

`marked_records(payload, count, prefix)` walks the uncompressed records of one batch and gives, for each that has a header whose name
begins with the prefix, (offset delta, timestamp delta, [(name, content), ...]) with those headers alone. Most batches have none: then
nothing is made, and the walk costs some ten nanoseconds a record.

`pick_records(payload, count, first_delta, end_delta)` gives (offset delta, timestamp delta, key, value, headers) of each record with a
delta in the range, in order; headers are a tuple of (name, content). What lies before is stepped over, what lies after is not looked at.

Names are text, shown as Java's clients show them where they are not UTF-8. Both raise MalformedInput for bytes that are no records, and
never read outside of the buffer. Batches in a log were checked when they were appended.
"""

from typing import TYPE_CHECKING

Headers = tuple[tuple[str, bytes | None], ...]
Marked = tuple[int, int, list[tuple[str, bytes | None]]]
Picked = tuple[int, int, bytes | None, bytes | None, Headers]

if TYPE_CHECKING:
    from penstock.wire._messages_py import marked_records, pick_records

    COMPILED: bool
else:
    try:
        from penstock.wire._messages import marked_records, pick_records

        COMPILED = True
    except ImportError:
        from penstock.wire._messages_py import marked_records, pick_records

        COMPILED = False

__all__ = ["COMPILED", "Headers", "Marked", "Picked", "marked_records", "pick_records"]
