"""What a ledger keeps of one message that is more than ready or done, packed into bytes: no object for the garbage collector to look at.

A row is there from the first delivery until the message is done. Bytes never change, so a copy of the dictionary of rows is a picture of
all of them at that moment. Fields are taken apart by position, for this is on the path of every delivery.
"""

import struct
from typing import NamedTuple

ROW = struct.Struct("<BHqqqqq")  # state, attempts with two flags above them, lease, when, place, first taken, taken; then who
WHEN_AT = struct.calcsize("<BHq")  # Where `when` stands in it.
ATTEMPTS_MAX = 0x3FFF  # Counting stops there. Also the mask of the attempts' bits.
HEARD, LET_GO = 0x8000, 0x4000  # The flags; a new lease has none of them.


class Row(NamedTuple):
    state: int  # LEASED, BURYING, or READY, which stands for DELAYED too.
    attempts: int  # How often it was given to somebody; those times do not count from which it came back untouched.
    flags: int  # HEARD: of a lease that was extended, or given once more: somebody has the message. LET_GO: its last holder gave it back.
    lease: int  # The last one.
    when: int  # LEASED: the deadline. READY: not before this. BURYING: when it failed.
    place: int  # Among the ready ones of its level: that of the message with this offset.
    first_ms: int  # When it was first taken.
    taken_ms: int  # When it was last taken.
    who: bytes  # By whom.


def packed(row: Row) -> bytes:
    return ROW.pack(row.state, row.attempts | row.flags, *row[3:-1]) + row.who


def read(row: bytes) -> Row:
    state, attempts, lease, when, place, first_ms, taken_ms = ROW.unpack_from(row)
    return Row(state, attempts & ATTEMPTS_MAX, attempts & ~ATTEMPTS_MAX, lease, when, place, first_ms, taken_ms, row[ROW.size :])
