"""What a ledger keeps of one message that is more than ready or done, packed into bytes: no object for the garbage collector to look at.

A row is there from the first delivery until the message is done. Bytes never change, so a copy of the dictionary of rows is a picture of
all of them at that moment. Fields are taken apart by position, for this is on the path of every delivery.
"""

import struct
from typing import NamedTuple

ROW = struct.Struct("<BHqqqqq")  # state, attempts, lease, when, place, first taken, taken; then who
ATTEMPTS_MAX = 0xFFFF  # Counting stops there.


class Row(NamedTuple):
    state: int  # LEASED, BURYING, or READY, which stands for DELAYED too.
    attempts: int  # How often it was given to somebody.
    lease: int  # The last one.
    when: int  # LEASED: the deadline. READY: not before this. BURYING: when it failed.
    place: int  # Among the ready ones of its level: that of the message with this offset.
    first_ms: int  # When it was first taken.
    taken_ms: int  # When it was last taken.
    who: bytes  # By whom.


def packed(row: Row) -> bytes:
    return ROW.pack(*row[:-1]) + row.who


def read(row: bytes) -> Row:
    return Row._make((*ROW.unpack_from(row), row[ROW.size :]))
