from collections.abc import Iterable

from penstock.vocabulary import Buffer
from penstock.wire.verdicts import RecordsVerdict, Scan

USES_INSTRUCTION: bool

def crc32c(buffer: Buffer, start: int, end: int) -> int: ...
def crc32c_by_table(buffer: Buffer) -> int: ...
def check_records(
    payload: Buffer, count: int, *, base_timestamp: int, timestamp_min: int, timestamp_max: int, keys_required: bool
) -> RecordsVerdict: ...
def is_plain_batch(batch: Buffer, timestamp_min: int, timestamp_max: int, keys_required: bool) -> bool: ...
def scan_batches(
    buffer: Buffer,
    *,
    start: int = 0,
    first_offset: int,
    end_offset_max: int,
    bytes_max: int,
    verify: bool = True,
    is_dense: bool = False,
    leader_epoch: int | None = None,
) -> Scan: ...
def seek_batch(buffer: Buffer, offset: int, start: int = 0) -> int: ...
def take_pairs(batches: Buffer, at: int, offset_min: int, pairs: list[tuple[bytes, bytes | None]]) -> tuple[int, int]: ...
def take_latest(batches: Buffer, at: int, offset_min: int, latest: dict[bytes, bytes | None]) -> tuple[int, int]: ...
def build_batch(
    rows: Iterable[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]], timestamp_ms: int
) -> bytearray: ...
