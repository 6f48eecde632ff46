"""Logs as they lie on the nodes' disks, read past the nodes: what each replica has is held against what the others have.

Two rules. Below the lower of two watermarks two replicas have the same batches. And wherever two replicas have a batch of one epoch at one
offset it is the same batch, watermark or not: an epoch has one leader, and only that one writes in it.
Of compacted logs, where each replica drops what it likes, single records are compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.broker.partitions import topic_directory
from penstock.log.segment import segment_name, standing
from penstock.simulator.disk import SimDisk
from penstock.vocabulary import TopicId
from penstock.wire.batches import HEADER_BYTES, MAGIC, crc_is_right, decode_records, read_header

_UNPACKED_BYTES_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class StoredBatch:
    base_offset: int
    end_offset: int
    epoch: int
    crc: int
    content: bytes


@dataclass(slots=True)
class StoredLog:
    """One replica: its batches in order, and how far they were told to be committed."""

    host: str
    start_offset: int
    batches: list[StoredBatch]
    high_watermark: int
    is_compacted: bool = False


def read_log(disk: SimDisk, topic_id: TopicId, index: int, *, is_flushed: bool = False) -> list[StoredBatch]:
    """The batches of one partition, or of them what the disk would have after a power cut that takes all it may."""
    folder = topic_directory(topic_id, index) + "/"
    names = sorted(path for path in disk.files() if path.startswith(folder) and path.endswith(".log"))
    batches: list[StoredBatch] = []
    for name in _in_force(names):
        content = disk.flushed(name) if is_flushed else disk.snapshot(name)
        for batch in _batches(content):
            if not batches or batch.base_offset >= batches[-1].end_offset:
                batches.append(batch)
    return batches


def _in_force(names: list[str]) -> list[str]:
    """Of a compacted stretch the file of the highest generation, and none of those that it stands for."""
    by_name = {segment: name for name in names if (segment := segment_name(name.rsplit("/", 1)[-1])) is not None}
    return [by_name[segment] for segment in standing(by_name)[0]]


def _batches(content: bytes) -> Iterator[StoredBatch]:
    at = 0
    while at + HEADER_BYTES <= len(content):
        header = read_header(content, at)
        if header.magic != MAGIC or header.size < HEADER_BYTES or at + header.size > len(content):
            return
        if not crc_is_right(content, at, header.size):
            return
        whole = bytes(content[at : at + header.size])
        yield StoredBatch(header.base_offset, header.end_offset, header.leader_epoch, header.crc, whole)
        at += header.size


def compare(one: StoredLog, other: StoredLog) -> Iterator[str]:
    """Sentences about where two replicas differ that may not."""
    if one.is_compacted:
        yield from _compare_records(one, other)
        return
    start = max(one.start_offset, other.start_offset)
    agreed = min(one.high_watermark, other.high_watermark)
    mine = {batch.base_offset: batch for batch in one.batches if batch.base_offset >= start}
    yours = {batch.base_offset: batch for batch in other.batches if batch.base_offset >= start}
    for offset in sorted({*mine, *yours}):
        here, there = mine.get(offset), yours.get(offset)
        if here is not None and there is not None:
            if here.epoch == there.epoch and here.crc != there.crc:
                yield f"at {offset} {one.host} and {other.host} hold different batches of epoch {here.epoch}"
            elif here.epoch != there.epoch and offset < agreed:
                yield f"at {offset}, below {agreed}, {one.host} has epoch {here.epoch} and {other.host} epoch {there.epoch}"
        elif offset < agreed:
            has, lacks = (one, other) if here is not None else (other, one)
            yield f"the batch at {offset}, below {agreed}, is on {has.host} and not on {lacks.host}"


def _compare_records(one: StoredLog, other: StoredLog) -> Iterator[str]:
    mine, yours = _records(one), _records(other)
    for offset in sorted(mine.keys() & yours.keys()):
        if offset < min(one.high_watermark, other.high_watermark) and mine[offset] != yours[offset]:
            yield f"at {offset} {one.host} has {mine[offset]} and {other.host} has {yours[offset]}"


def _records(log: StoredLog) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {
        record.offset: (record.key, record.value)
        for batch in log.batches
        for record in decode_records(batch.content, bytes_max=_UNPACKED_BYTES_MAX)
    }


def compare_all(logs: list[StoredLog]) -> Iterator[str]:
    for place, one in enumerate(logs):
        for other in logs[place + 1 :]:
            yield from compare(one, other)
