"""A log of keyed records that is compacted, and what must be true of it: shared by the tests of compaction."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from log.bench import FIRST_MS, IDENTITY, Bench, headers_in, records_in

from penstock.env import Disk
from penstock.log.compacted_log import Account, CompactedLog
from penstock.log.config import LogConfig
from penstock.log.open_files import OpenFiles
from penstock.simulator.disk import SimDisk
from penstock.wire.batches import BatchHeader, Record, encode_batch, read_header

KEYS_BYTES = 1 << 16
VALUE = b"v" * 60
SMALL = LogConfig(segment_bytes=900, index_interval_bytes=200, is_compacted=True, delete_retention_ms=1_000)


@dataclass
class Ledger:
    """What was written, by key."""

    last: dict[bytes, tuple[int, bytes | None]] = field(default_factory=dict)  # Offset and value of the last record.
    values: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)  # Key and value of every offset.

    def note(self, offset: int, key: bytes, value: bytes | None) -> None:
        self.last[key] = (offset, value)
        self.values[offset] = (key, value)


class Keyed(Bench):
    """A bench whose log is compacted, and whose owner remembers producers as a node does."""

    log: CompactedLog

    def __init__(self, disk: Disk, config: LogConfig = SMALL) -> None:
        super().__init__(disk, config)
        self.ledger = Ledger()
        self.last_of_producers: dict[int, int] = {}

    async def open(self, *, is_clean: bool = False, epoch_max: int = 2**31 - 1, files_max: int = 100) -> CompactedLog:
        self.seen, self.restored, self.damaged = [], [], []
        self.last_of_producers = {}
        self.files = OpenFiles(self.disk, files_max)
        self.log = await CompactedLog.open(
            self.env, self.directory, self.identity, self.config, self.files,
            is_clean=is_clean, restore=self._restore, replay=self._replay, epoch_max=epoch_max, on_damage=self.damaged.append,
        )  # fmt: skip
        return self.log

    def put(self, *records: tuple[bytes, bytes | None], epoch: int = 0, producer_id: int = -1, sequence: int = -1, **options: Any) -> int:
        """Appends one batch; its base offset."""
        base = self.log.end_offset
        batch = encode_batch(
            [Record(key, value, timestamp_ms=self.env.wall) for key, value in records], base_offset=base, leader_epoch=epoch,
            producer_id=producer_id, producer_epoch=min(0, producer_id), base_sequence=sequence, **options,
        )  # fmt: skip
        self.log.append(batch, read_header(batch))
        self._replay(read_header(batch))
        for delta, (key, value) in enumerate(records):
            self.ledger.note(base + delta, key, value)
        return base

    async def compact(self, *, end_offset_max: int = 1 << 60, keys_bytes: int = KEYS_BYTES, stay_seconds: float = 0.0) -> Account | None:
        """One round, as the node does it."""
        await self.log.flush()
        dirt = self.log.dirt(self.env.wall_ms(), min(end_offset_max, self.log.end_offset))
        if dirt is None:
            return None
        if not self.log.covers(dirt):
            await self.checkpoint()
        account = await self.log.compact(
            dirt, last_offsets=list(self.last_of_producers.values()), keys_bytes_max=keys_bytes, replaced_stay_seconds=stay_seconds
        )
        await self.log.remove_replaced(self.env.now())
        return account

    async def records(self, start: int | None = None) -> list[Record]:
        """Every record, read as a consumer reads; offsets ascend."""
        found = records_in(await self.batches(start))
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        return found

    async def batches(self, start: int | None = None, *, bytes_max: int = 700) -> bytes:
        log, offset, found = self.log, self.log.start_offset if start is None else start, []
        while offset < log.end_offset:
            content = log.read(offset, bytes_max=bytes_max, end_offset=log.end_offset)
            if content is None:
                content = await log.read_later(offset, bytes_max=bytes_max, end_offset=log.end_offset)
            if not content:
                break  # Compaction took the last ones.
            found.append(bytes(content))
            offset = headers_in(content)[-1].end_offset
        return b"".join(found)

    async def check(self, *, may_lack: Iterable[bytes] = (), from_offset: int = 0) -> list[Record]:
        """The last record of every key is there, nothing is that was never written, and no deleted key is back."""
        found = await self.records()
        last: dict[bytes, Record] = {}
        for record in found:
            assert record.key is not None
            assert self.ledger.values.get(record.offset) == (record.key, record.value), f"offset {record.offset} is not what was written"
            last[record.key] = record
        for key, (offset, value) in self.ledger.last.items():
            if offset < from_offset or offset >= self.log.end_offset:
                continue
            if key not in last:
                assert value is None and key in may_lack, f"{key!r} is gone, its last record was {value!r} at {offset}"
            else:
                assert last[key].offset == offset, f"of {key!r} the last one left is {last[key].offset}, and not {offset}"
        return found

    def forget_from(self, end_offset: int) -> None:
        """The log lost what was not flushed, or was cut."""
        values = {offset: written for offset, written in self.ledger.values.items() if offset < end_offset}
        self.ledger = Ledger()
        for offset, (key, value) in sorted(values.items()):
            self.ledger.note(offset, key, value)

    def _replay(self, header: BatchHeader) -> None:
        super()._replay(header)
        if header.producer_id >= 0:
            self.last_of_producers[header.producer_id] = header.last_offset


def keys_of(records: Sequence[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


__all__ = ["FIRST_MS", "IDENTITY", "KEYS_BYTES", "SMALL", "Keyed", "Ledger", "keys_of"]


async def filled(disk: SimDisk, rounds: int = 12, keys: int = 5, config=SMALL) -> Keyed:
    """Each round writes every key once: batches of one record, some of them rolled into several segments."""
    bench = Keyed(disk, config)
    await bench.open()
    for number in range(rounds):
        for key in range(keys):
            bench.put((b"key-%d" % key, b"%d:" % number + VALUE))
    await bench.log.flush()
    return bench


def logs_in(disk: SimDisk) -> list[str]:
    return [path.rpartition("/")[2] for path in disk.files() if path.endswith(".log")]
