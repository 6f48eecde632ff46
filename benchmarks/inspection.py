"""What does looking inside every batch cost? The compiled loop and its Python twin, beside the checksum alone, on one core.

Answers in nanoseconds a record, and in bytes a second: the rate at which looking alone would be all that a core does.
"""

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.load import frames
from benchmarks.machine import described, header
from benchmarks.tables import count, table
from penstock.wire import _records_py, records
from penstock.wire.batches import HEADER_BYTES, read_header

BATCH_BYTES = (0, 16 << 10, 64 << 10, 900_000)  # 0: one record.
_SECONDS = 0.2


def main() -> None:
    print(header("Looking inside batches", described(Path(), "checksum and check of the records of one batch, in one process")))
    print(inspection_table())


def inspection_table() -> str:
    rows = []
    for size in BATCH_BYTES:
        batch, number = frames.batch_of_bytes(size, 0) if size else (frames.one_batch(1, 0), 1)
        checksum_s = _timed(lambda batch=batch: records.crc32c(batch, 21, len(batch)))  # type: ignore[misc]
        look_s = _timed(_look(records.check_records, batch, number)) if records.COMPILED else 0.0
        twin_s = _timed(_look(_records_py.check_records, batch, number))
        rows.append(
            [f"{len(batch):,} bytes, {number:,} records", *(_cell(took, number, len(batch)) for took in (checksum_s, look_s, twin_s))]
        )
    return table(["batch", "checksum", "look inside, compiled", "look inside, Python twin"], rows)


def _look(check: Callable[..., object], batch: bytes, number: int) -> Callable[[], object]:
    header = read_header(batch)
    payload = memoryview(batch)[HEADER_BYTES:]
    return lambda: check(
        payload,
        number,
        base_timestamp=header.base_timestamp,
        timestamp_min=records.TIMESTAMP_LOWEST,
        timestamp_max=records.TIMESTAMP_HIGHEST,
        keys_required=False,
    )


def _timed(work: Callable[[], object]) -> float:
    """Seconds of one call, over as many as fit."""
    calls = 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < _SECONDS:
        work()
        calls += 1
    return took / calls


def _cell(took_s: float, number: int, size: int) -> str:
    if not took_s:
        return "not built"
    return f"{took_s * 1e6:.3g} us, {count(took_s / number * 1e9)} ns/record, {size / took_s / 1e9:.2g} GB/s"


if __name__ == "__main__":
    main()
