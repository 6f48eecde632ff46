"""What the compiled loop and its Python twin answer: one vocabulary for both."""

from enum import IntEnum
from typing import NamedTuple

NO_TIMESTAMP = -1  # A record without a time; it is never too old or too new.
TIMESTAMP_LOWEST = -(2**63)
TIMESTAMP_HIGHEST = 2**63 - 1


class RecordFault(IntEnum):
    """What is wrong with the records of a batch. The numbers are known to the compiled loop."""

    NONE = 0
    MALFORMED = 1  # A length, a count or a varint that does not fit, or bytes left over.
    OFFSET_DELTA = 2  # Deltas must be 0, 1, 2 ...
    KEY_MISSING = 3  # A record without a key where keys are required.
    TIMESTAMP = 4  # Outside the allowed range, or past 64 bits.


class RecordsVerdict(NamedTuple):
    fault_index: int  # Which record, counted from 0; -1 when all are well; the record count when bytes follow the last one.
    fault: int  # A RecordFault.
    max_timestamp: int  # Over the records before the fault; NO_TIMESTAMP when there were none.
    max_timestamp_delta: int  # Offset delta of the first record that has it; -1 when there were none.


class ScanFault(IntEnum):
    """Why a scan of batches ended before the end of its bytes. The numbers are known to the compiled loop."""

    NONE = 0  # It reached the end, or one of the caller's bounds.
    TRUNCATED = 1  # The bytes end inside a batch.
    LENGTH = 2  # A batch claims to be shorter than its own header.
    MAGIC = 3  # Not a batch of format 2.
    OFFSET = 4  # Offsets go backwards.
    CRC = 5
    EPOCH = 6  # Written in another leader epoch than the one asked for.


class Scan(NamedTuple):
    valid_bytes: int  # From `start` to the end of the last batch taken.
    end_offset: int  # After the last batch taken; `first_offset` when none was.
    batches: int
    fault: int  # A ScanFault.
