"""Any sequence of what a log can do, with crashes in between, against a plain list."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log.bench import FIRST_MS, Bench, batch_at
from tiers import pick

from penstock.errors import DiskFailed, DiskFull
from penstock.log.config import DAY_MS, LogConfig
from penstock.simulator.disk import UNLIMITED_BYTES, SimDisk
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.platter import Loss
from penstock.wire.batches import read_header


@dataclass
class Model:
    """What the log should be."""

    batches: dict[int, bytes] = field(default_factory=dict)  # Ever appended and not known to be lost, by base offset.
    end: int = 0
    flushed_end: int = 0
    start_min: int = 0  # The log starts somewhere between these two: a crash may undo a start that no checkpoint kept.
    start_max: int = 0
    epoch: int = 0

    def forget_from(self, end: int) -> None:
        self.batches = {base: batch for base, batch in self.batches.items() if base < end}
        self.end = end


class LogAgainstAList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()  # One for all steps: to make one costs more than most of them.

    def teardown(self) -> None:
        self.loop.close()

    @initialize(seed=st.integers(0, 2**32), segment_bytes=st.sampled_from([250, 900, 4_000]), cold=st.sampled_from([0.0, 0.3]))
    def begin(self, seed: int, segment_bytes: int, cold: float) -> None:
        self.disk = SimDisk(seed, DiskFaults(cold_read=cold))
        self.bench = Bench(self.disk, LogConfig(segment_bytes=segment_bytes, index_interval_bytes=200, retention_ms=DAY_MS))
        self.model = Model()
        self.loop.run(self.bench.open(files_max=3))

    @rule(count=st.integers(1, 6), records=st.integers(1, 3), size=st.integers(0, 700), is_new_epoch=st.booleans())
    def append(self, count: int, records: int, size: int, is_new_epoch: bool) -> None:
        self.model.epoch += is_new_epoch
        for _ in range(count):
            batch = batch_at(self.model.end, records=records, value=b"%d" % self.model.end * (size // 4), epoch=self.model.epoch)
            self.bench.log.append(batch, read_header(batch))
            self.bench.seen.append(self.model.end)
            self.model.batches[self.model.end] = bytes(batch)
            self.model.end += records

    @rule(room=st.integers(0, 400))
    def append_without_room(self, room: int) -> None:
        self.disk.capacity_bytes = UNLIMITED_BYTES - self.disk.free_bytes() + room
        batch = batch_at(self.model.end, value=bytes(400), epoch=self.model.epoch)
        try:
            self.bench.log.append(batch, read_header(batch))
            raise AssertionError("there was no room")
        except DiskFull:
            self.disk.capacity_bytes = UNLIMITED_BYTES

    @rule()
    def flush(self) -> None:
        self.loop.run(self.bench.log.flush())
        self.model.flushed_end = self.model.end

    @rule()
    def checkpoint(self) -> None:
        self.loop.run(self.bench.checkpoint())
        self.model.flushed_end = self.model.end
        self.model.start_min = self.bench.log.start_offset

    @rule(hours=st.integers(0, 100), part=st.floats(0, 1))
    def retain(self, hours: int, part: float) -> None:
        log = self.bench.log
        now_ms = FIRST_MS + hours * DAY_MS // 24
        if self.loop.run(self.bench.retain(now_ms, int(self.model.end * part))):
            self.model.flushed_end = self.model.end
            self.model.start_min = self.model.start_max = log.start_offset

    @rule(part=st.floats(0, 1))
    def raise_start(self, part: float) -> None:
        log = self.bench.log
        log.raise_start(int(log.start_offset + part * (log.end_offset - log.start_offset)))
        self.model.start_max = max(self.model.start_max, log.start_offset)

    @precondition(lambda self: self.model.end > self.bench.log.start_offset)
    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        log = self.bench.log
        offset = int(log.start_offset + part * (log.end_offset - log.start_offset))
        self.loop.run(log.truncate_to(offset))
        log.owner_is_rebuilt()
        if offset < self.model.end:
            self.model.forget_from(max(base for base in self.model.batches if base <= offset))
        self.model.flushed_end = min(self.model.flushed_end, self.model.end)
        self.model.start_min = 0
        self.bench.seen = [base for base in self.bench.seen if base < self.model.end]

    @rule(is_clean=st.booleans())
    def restart_in_order(self, is_clean: bool) -> None:
        self.loop.run(self.bench.close())
        self.model.flushed_end = self.model.end
        self.model.start_min = self.model.start_max = self.bench.log.start_offset
        self.loop.run(self.bench.open(is_clean=is_clean, files_max=3))

    @rule(loss=st.sampled_from([*Loss, None]))
    def power_cut(self, loss: Loss | None) -> None:
        self.disk.power_cut(loss)
        self.recover()

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self.recover()
        assert self.bench.log.end_offset == self.model.end

    @precondition(lambda self: self.bench.log.begin_flush() is not None)
    @rule(loss=st.sampled_from([*Loss, None]))
    def fail_a_flush_and_start_again(self, loss: Loss | None) -> None:
        self.disk.fail_next_flush()
        try:
            self.loop.run(self.bench.log.flush())
        except DiskFailed:
            assert self.bench.log.failure
        self.disk.kill()
        self.recover()
        assert self.bench.log.end_offset == self.model.end
        self.disk.power_cut(loss)
        self.recover()
        assert self.bench.log.end_offset == self.model.end

    @rule(dies=st.sampled_from(["killed", *Loss, None]))
    def fail_a_write_and_start_again(self, dies: str | Loss | None) -> None:
        """The batch may be there afterwards: it was written, though nobody was told so."""
        batch = batch_at(self.model.end, value=b"unsure" * 20, epoch=self.model.epoch)
        self.disk.fail_next_write()
        try:
            self.bench.log.append(batch, read_header(batch))
            raise AssertionError("the write failed")
        except DiskFailed:
            assert self.bench.log.failure
        assert self.bench.log.end_offset == self.model.end
        self.model.batches[self.model.end] = bytes(batch)
        self.model.end += 1
        if isinstance(dies, str):
            self.disk.kill()
        else:
            self.disk.power_cut(dies)
        self.recover()

    def recover(self) -> None:
        self.loop.run(self.bench.open(files_max=3))
        log = self.bench.log
        assert log.failure is None
        assert self.model.flushed_end <= log.end_offset <= self.model.end
        was_flushed = self.model.flushed_end > 0
        self.model.forget_from(log.end_offset)
        self.model.flushed_end = log.end_offset
        if was_flushed:
            assert self.model.start_min <= log.start_offset <= self.model.start_max
        else:  # Names that were never flushed are lost in any order, so that a log which never promised anything may start later.
            self.model.start_max = max(self.model.start_max, log.start_offset)

    @invariant()
    def it_is_what_it_should_be(self) -> None:
        if not hasattr(self, "model"):
            return
        log, model = self.bench.log, self.model
        assert log.failure is None
        assert (log.end_offset, log.flushed_end >= model.flushed_end) == (model.end, True)
        bases = list(model.batches)
        first = max(base for base in bases if base <= log.start_offset) if log.start_offset < model.end else model.end
        expected = b"".join(batch for base, batch in model.batches.items() if base >= first)
        assert self.loop.run(self.bench.read_all()) == expected
        assert [base for base in self.bench.seen if base >= first] == [base for base in bases if base >= first], (
            "the owner missed something"
        )
        assert self.bench.files._limit + len(self.bench.files._pinned) >= len(self.bench.files)


LogAgainstAList.TestCase.settings = settings(max_examples=pick(test=25, slow=60), stateful_step_count=25)
TestLogAgainstAList = pytest.mark.repeats(LogAgainstAList.TestCase)
