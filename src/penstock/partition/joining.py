"""What a leader sent, made ready to be appended: whole batches that join the follower's log.

The follower's log is dense, whatever compaction took from the leader's: where batches are missing, an empty one stands for their offsets.
It carries the epoch of the batch after it. So the end of an earlier epoch is here never later than at the leader, and nobody keeps
records of an earlier epoch on this replica's word that another leader has replaced.
"""

from typing import NamedTuple

from penstock.log.epochs import NO_EPOCH
from penstock.vocabulary import Buffer, Offset
from penstock.wire.batches import BatchHeader, empty_batch, read_header
from penstock.wire.records import scan_batches

_ANY_OFFSET = 2**63 - 1
_SPAN_MAX = 2**31 - 1  # Offsets that one batch can stand for.

Batch = tuple[Buffer, BatchHeader]


class Joined(NamedTuple):
    batches: list[Batch]
    end_offset: Offset
    fault: str | None  # Why what came after these was left.


def join(records: Buffer, *, end_offset: int, last_epoch: int, epoch_max: int) -> Joined:
    """The batches among these that go on where a log ends that has `last_epoch` for its latest.

    None is taken of a later epoch than the one it was asked for under: its leader is another one (KAFKA-18723).
    """
    scan = scan_batches(records, first_offset=0, end_offset_max=_ANY_OFFSET, bytes_max=len(records))
    batches: list[Batch] = []
    view, at = memoryview(records), 0
    while at < scan.valid_bytes:
        header = read_header(records, at)
        fault = _fault(header, end_offset, last_epoch, epoch_max)
        if fault is not None:
            return Joined(batches, Offset(end_offset), fault)
        while header.base_offset > end_offset:
            filled_end = min(header.base_offset, end_offset + _SPAN_MAX)
            filler = empty_batch(end_offset, filled_end, header.leader_epoch)
            batches.append((filler, read_header(filler)))
            end_offset = filled_end
        batches.append((view[at : at + header.size], header))
        end_offset, last_epoch, at = header.end_offset, header.leader_epoch, at + header.size
    is_whole = scan.valid_bytes == len(records)
    return Joined(batches, Offset(end_offset), None if is_whole else f"the batch after offset {end_offset} came damaged")


def _fault(header: BatchHeader, end_offset: int, last_epoch: int, epoch_max: int) -> str | None:
    if header.base_offset < end_offset:
        return f"the batch at offset {header.base_offset} does not follow the one that ends at {end_offset}"
    if header.leader_epoch > epoch_max:
        return f"the batch at offset {header.base_offset} is of epoch {header.leader_epoch}, later than the leader's {epoch_max}"
    if header.leader_epoch < last_epoch and last_epoch != NO_EPOCH:
        return f"the batch at offset {header.base_offset} is of epoch {header.leader_epoch}, after one of epoch {last_epoch}"
    return None
