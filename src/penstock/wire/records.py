"""The records inside batches, looked at in bulk: the compiled loop where it was built, its Python twin elsewhere.

`check_records(payload, count, ...)` walks the uncompressed records of one batch and names the first fault: lengths, counts and deltas that
do not fit, a missing key where `keys_required`, a timestamp outside [`timestamp_min`, `timestamp_max`]. A batch whose checksum is right
around records that do not parse would poison every reader of its partition, so nothing is appended before this has said yes.

`is_plain_batch(batch, timestamp_min, timestamp_max, keys_required)` says whether the bytes are one whole batch as nearly all producers send
it: right checksum, no attributes (so not compressed), counts that fit, records that `check_records` finds fine, and a header that tells the
truth about its highest timestamp. Whoever gets a no asks again, check by check, to learn why.

`scan_batches(buffer, ...)` walks whole batches from `start` and checks each checksum (unless `verify` is off). Base offsets must ascend
from `first_offset`; gaps are legal, compaction leaves them. It stops before a batch that would end past `end_offset_max`, and before one
that would make more than `bytes_max`, but always takes the first. A stop at a bound is no fault. With `is_dense` a gap between offsets is
one, and with `leader_epoch` a batch of another epoch.

`seek_batch(buffer, offset, start=0)` gives the position of the batch that holds the offset, or of the first one after it; -1 when the
buffer has neither, or something unreadable first. Checks no checksums; the batch's body may reach past the buffer.

`take_pairs(batches, at, offset_min, pairs)` appends key and value of each record at or above the offset to `pairs`, up to the end or the
first compressed batch, and returns that position and the offset after what it has passed (`offset_min` if it has passed no batch). Batches
of control records are left out: their keys mean something else. The batches are whole and their checksums were checked; what does not parse
raises MalformedInput, after some pairs.

`take_latest(batches, at, offset_min, latest)` does the same with a dictionary: it keeps the last value of each key, in the order of those
last records.

`crc32c(buffer, start, end)` is the checksum of a range.

`build_batch(rows, timestamp_ms)` is one batch of (key, value, headers) rows that all have the same time, not compressed and of no producer:
the bytes that `batches.encode_batch` makes of such records. Nearly all that a node writes of its own is of this kind.

All but the last take any contiguous buffer and never read outside it. Only `take_pairs` and `take_latest` copy.
"""

from typing import TYPE_CHECKING

from penstock.wire.verdicts import (
    NO_TIMESTAMP,
    TIMESTAMP_HIGHEST,
    TIMESTAMP_LOWEST,
    RecordFault,
    RecordsVerdict,
    Scan,
    ScanFault,
)

if TYPE_CHECKING:
    from penstock.wire._records_py import (
        build_batch,
        check_records,
        crc32c,
        is_plain_batch,
        scan_batches,
        seek_batch,
        take_latest,
        take_pairs,
    )

    COMPILED: bool
else:
    try:
        from penstock.wire._records import (
            build_batch,
            check_records,
            crc32c,
            is_plain_batch,
            scan_batches,
            seek_batch,
            take_latest,
            take_pairs,
        )

        COMPILED = True
    except ImportError:
        from penstock.wire._records_py import (
            build_batch,
            check_records,
            crc32c,
            is_plain_batch,
            scan_batches,
            seek_batch,
            take_latest,
            take_pairs,
        )

        COMPILED = False

__all__ = [
    "COMPILED",
    "NO_TIMESTAMP",
    "TIMESTAMP_HIGHEST",
    "TIMESTAMP_LOWEST",
    "RecordFault",
    "RecordsVerdict",
    "Scan",
    "ScanFault",
    "build_batch",
    "check_records",
    "crc32c",
    "is_plain_batch",
    "scan_batches",
    "seek_batch",
    "take_latest",
    "take_pairs",
]
