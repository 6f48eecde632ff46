"""Runs of messages that whoever holds them has done: what nearly every fetch of a share group says of the one before it.

Only the case where each of them is held by the one who says so; anything else is left to `settle`, which tells what is wrong.
"""

import struct

from penstock.errors import require
from penstock.queues.commands import ANY_LEASE, COUNT_MAX, RANGE_MAX, WHO_BYTES_MAX, Settlement, Verb
from penstock.queues.draft import Draft
from penstock.queues.history import cut
from penstock.queues.rows import ROW, WHEN_AT
from penstock.queues.states import MOVES, State

_LEASED = State.LEASED.value
_WHO_AT = ROW.size
_WHEN = struct.Struct("<q")


def finish_runs(draft: Draft, items: tuple[Settlement, ...]) -> int:
    """How many messages are done by it. 0: it is another case, and nothing was decided."""
    if not 1 <= len(items) <= COUNT_MAX:
        return 0
    rows, wall_ms, when_of, count, last_end = draft.ledger.rows, draft.wall_ms, _WHEN.unpack_from, 0, 0
    said_by, who = "", b""
    for offset, lease, verb, delay_ms, _, name, end_offset in items:
        if verb is not Verb.DONE or lease != ANY_LEASE or delay_ms or not last_end <= offset < end_offset:
            return 0
        if end_offset - offset > RANGE_MAX - count:
            return 0
        if name != said_by:
            said_by, who = name, cut(name, WHO_BYTES_MAX)
        for each in range(offset, end_offset):
            row = rows.get(each)
            if row is None or row[0] != _LEASED or row[_WHO_AT:] != who or when_of(row, WHEN_AT)[0] <= wall_ms:
                return 0
        count += end_offset - offset
        last_end = end_offset
    require((State.LEASED, State.DONE) in MOVES, "a message of a queue makes legal moves only")
    for item in items:
        draft.finish_run(item.offset, item.end_offset)
    return count
