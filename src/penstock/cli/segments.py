"""Walking a segment file batch by batch, with whatever is wrong told in its place.

A batch with a wrong checksum but a believable length is stepped over; where not even the length can be believed, the walk of that
file ends. Nothing here changes a file or trusts an index.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.cli.tables import record_as_json
from penstock.errors import MalformedInput
from penstock.wire.batches import HEADER_BYTES, MAGIC, BatchHeader, Record, crc_is_right, decode_records, read_header
from penstock.wire.compression import Codec
from penstock.wire.markers import NO_NUMBER, Marker, decode_marker

UNPACKED_BYTES_MAX = 256 << 20  # A dump may look at what a node would refuse, but not without end.


@dataclass(frozen=True, slots=True)
class BatchRow:
    position: int
    header: BatchHeader
    records: list[Record] = field(default_factory=list)
    marker: Marker | None = None  # What a control batch says of its producer's transaction.

    @property
    def shown_marker(self) -> str | None:
        if self.marker is None:
            return None
        number = "" if self.marker.number == NO_NUMBER else f" of transaction {self.marker.number}"
        return f"{'commit' if self.marker.is_commit else 'abort'}{number} by coordinator epoch {self.marker.coordinator_epoch}"

    @property
    def codec(self) -> str:
        known = {codec.value: codec.name.lower() for codec in Codec}
        return known.get(self.header.codec, f"codec {self.header.codec}")

    def as_json(self, segment: Path) -> dict[str, object]:
        told: dict[str, object] = {"segment": str(segment), "position": self.position, "size": self.header.size, "codec": self.codec}
        told |= self.header._asdict()
        if self.marker is not None:
            told["marker"] = self.marker._asdict()
        if self.records:
            told["records"] = [record_as_json(record) for record in self.records]
        return told


@dataclass(frozen=True, slots=True)
class Damage:
    position: int
    size: int
    what: str

    def as_json(self, segment: Path) -> dict[str, object]:
        return {"segment": str(segment), "position": self.position, "size": self.size, "damage": self.what}


def segments_of(path: Path) -> list[Path]:
    """The segment files that a path stands for, in the order in which they were written."""
    return [path] if path.is_file() else sorted(path.rglob("*.log"))


def read_segment(path: Path, *, with_records: bool = False) -> Iterator[BatchRow | Damage]:
    size = path.stat().st_size
    if size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
        yield from _walk(content, size, with_records)


def _walk(content: mmap.mmap, size: int, with_records: bool) -> Iterator[BatchRow | Damage]:
    at, expected = 0, -1
    while at < size:
        if size - at < HEADER_BYTES:
            yield Damage(at, size - at, "the file ends inside a batch's header: a torn tail, or damage")
            return
        header = read_header(content[at : at + HEADER_BYTES])
        if header.magic != MAGIC or header.size < HEADER_BYTES:
            yield Damage(at, size - at, "there is no batch here, and nothing behind it can be found")
            return
        if header.size > size - at:
            yield Damage(at, size - at, f"the file ends inside a batch of {header.size} bytes: a torn tail, or damage")
            return
        yield _look_inside(content[at : at + header.size], at, header, expected, with_records)
        at, expected = at + header.size, header.end_offset


def _look_inside(batch: bytes, at: int, header: BatchHeader, expected: int, with_records: bool) -> BatchRow | Damage:
    if not crc_is_right(batch, 0, len(batch)):
        return Damage(at, len(batch), f"wrong checksum in the batch that says it begins at offset {header.base_offset}")
    if header.base_offset < expected:
        return Damage(at, len(batch), f"offset {header.base_offset} stands after offset {expected - 1}")
    try:
        records = decode_records(batch, bytes_max=UNPACKED_BYTES_MAX) if with_records else []
        return BatchRow(at, header, records, decode_marker(batch) if header.is_control else None)
    except MalformedInput as wrong:
        return Damage(at, len(batch), f"right checksum around records that do not parse: {wrong}")
