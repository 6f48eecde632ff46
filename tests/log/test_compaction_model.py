"""Any sequence of what a compacted log can do and suffer, against a dictionary: the last record of each key is there, and no other's."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log.bench import DIRECTORY
from log.compacting import SMALL, Keyed
from tiers import pick

from penstock.errors import DiskFailed
from penstock.log.compaction import MapTooSmall
from penstock.simulator.disk import PowerCut, SimDisk
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.platter import Loss
from penstock.wire.compression import Codec

pytestmark = pytest.mark.invariant("log.compaction-keeps-last")

RETENTION_MS = SMALL.delete_retention_ms
LOSSES = st.sampled_from([*Loss, None])


class CompactedLogAgainstADictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()  # One for all steps: to make one costs more than most of them.

    def teardown(self) -> None:
        self.loop.close()

    @initialize(seed=st.integers(0, 2**32), segment_bytes=st.sampled_from([250, 700, 3_000]), cold=st.sampled_from([0.0, 0.4]))
    def begin(self, seed: int, segment_bytes: int, cold: float) -> None:
        self.disk = SimDisk(seed, DiskFaults(cold_read=cold))
        self.bench = Keyed(self.disk, replace(SMALL, segment_bytes=segment_bytes))
        self.deleted_ms: dict[bytes, int] = {}  # When a key was last deleted.
        self.sequence = 0
        self.committed = 0  # No leader ever cuts below this.
        self.loop.run(self.bench.open(files_max=3))

    @rule(
        batches=st.lists(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=3), min_size=1, max_size=8),
        size=st.integers(0, 200),
        codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD]),
        has_producer=st.booleans(),
    )
    def put(self, batches: list[list[tuple[int, bool]]], size: int, codec: Codec, has_producer: bool) -> None:
        for batch in batches:
            records = [(b"k%d" % key, None if deletes else b"%d" % self.bench.log.end_offset + bytes(size)) for key, deletes in batch]
            epoch = max(0, self.bench.log.epochs.latest)
            self.bench.put(*records, codec=codec, epoch=epoch, producer_id=1 if has_producer else -1, sequence=self.sequence)
            self.sequence += len(records)
            for key, value in records:
                if value is None:
                    self.deleted_ms[key] = self.bench.env.wall

    @rule()
    def flush(self) -> None:
        self.loop.run(self.bench.log.flush())

    @rule()
    def checkpoint(self) -> None:
        self.loop.run(self.bench.checkpoint())

    @rule(milliseconds=st.sampled_from([1, 400, RETENTION_MS]))
    def wait(self, milliseconds: int) -> None:
        self.bench.env.wall += milliseconds

    @rule(slots=st.sampled_from([4, 16, 4_096]), part=st.floats(0.3, 1), stay=st.sampled_from([0.0, 60.0]))
    def compact(self, slots: int, part: float, stay: float) -> None:
        end = self.committed = self.bench.log.end_offset
        try:
            self.loop.run(
                self.bench.compact(end_offset_max=int(end * part) if part < 0.9 else end, keys_bytes=slots * 24, stay_seconds=stay)
            )
        except MapTooSmall:
            assert slots == 4, "a batch has three records"

    @rule(moment=st.integers(1, 25), loss=LOSSES)
    def cut_the_power_during_compaction(self, moment: int, loss: Loss | None) -> None:
        self.loop.run(self.bench.log.flush())
        self.committed = self.bench.log.end_offset
        self.disk.crash_at(moment)
        with suppress(PowerCut):
            self.loop.run(self.bench.compact(stay_seconds=60))
        self.disk.power_cut(loss)
        self.recover()

    @rule(part=st.floats(0, 1))
    def cut_off_the_end(self, part: float) -> None:
        """Nothing below what compaction went by: that was committed."""
        log = self.bench.log
        self.loop.run(log.truncate_to(int(self.committed + part * (log.end_offset - self.committed))))
        log.owner_is_rebuilt()
        self.bench.forget_from(log.end_offset)
        self.bench.last_of_producers = {}

    @rule(is_clean=st.booleans())
    def restart_in_order(self, is_clean: bool) -> None:
        self.loop.run(self.bench.close())
        self.loop.run(self.bench.open(is_clean=is_clean, files_max=3))

    @rule(loss=LOSSES)
    def power_cut(self, loss: Loss | None) -> None:
        self.disk.power_cut(loss)
        self.recover()

    @rule(loss=LOSSES, names=st.sampled_from([("checkpoint",), (".previous",), ("checkpoint", ".previous"), (".index",)]))
    def power_cut_and_lose_caches(self, loss: Loss | None, names: tuple[str, ...]) -> None:
        self.disk.power_cut(loss)
        for path in [path for path in self.disk.files() if path.startswith(DIRECTORY) and path.endswith(names)]:
            self.disk.lose(path)
        self.recover()

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self.recover()

    @precondition(lambda self: self.bench.log.end_offset > 0)
    @rule(number=st.integers(1, 8), loss=LOSSES)
    def fail_a_flush_during_compaction(self, number: int, loss: Loss | None) -> None:
        countdown = [number]

        def concerns(path: str) -> bool:
            countdown[0] -= 1
            return countdown[0] == 0 and path.startswith(DIRECTORY)

        self.loop.run(self.bench.log.flush())
        self.committed = self.bench.log.end_offset
        self.disk.fail_next_flush_where(concerns)
        try:
            self.loop.run(self.bench.compact(stay_seconds=60))
        except DiskFailed:
            assert self.bench.log.failure
        self.disk.pacify()
        self.disk.kill()
        self.recover()
        self.disk.power_cut(loss)
        self.recover()

    def recover(self) -> None:
        flushed_end = self.bench.log.flushed_end
        self.loop.run(self.bench.open(files_max=3))
        assert self.bench.log.failure is None
        assert self.bench.log.end_offset >= flushed_end
        self.bench.forget_from(self.bench.log.end_offset)

    @invariant()
    def the_last_of_each_key_is_there(self) -> None:
        if not hasattr(self, "bench"):
            return
        assert self.bench.log.failure is None
        now_ms = self.bench.env.wall
        self.loop.run(self.bench.check(may_lack=[key for key, at in self.deleted_ms.items() if now_ms - at >= RETENTION_MS]))


CompactedLogAgainstADictionary.TestCase.settings = settings(max_examples=pick(test=25, slow=60), stateful_step_count=25)
TestCompactedLogAgainstADictionary = pytest.mark.repeats(CompactedLogAgainstADictionary.TestCase)
