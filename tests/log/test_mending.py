"""Damaged batches are replaced by those of a good copy: byte for byte, or not at all."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from log.bench import ALL, FIRST_MS, SMALL, Bench, bases_in, batch_at, headers_in, run
from log.compacting import VALUE, Keyed

from penstock.errors import DiskFailed
from penstock.log.config import LogConfig
from penstock.log.faults import LogDamaged, Unreadable
from penstock.log.log import Log
from penstock.log.mending import CannotMend
from penstock.simulator.disk import SimDisk
from penstock.wire.batches import read_header

pytestmark = pytest.mark.invariant("log.mended-in-place")

BATCHES = 30
LARGE = LogConfig(index_interval_bytes=300)


class Copies:
    """A log with damage, and what another replica has."""

    def __init__(self, disk: SimDisk, bench: Bench, good: dict[str, bytes]) -> None:
        self.disk = disk
        self.bench = bench
        self.good = good
        self.asked: list[int] = []

    async def fetch(self, offset: int) -> bytes:
        """A few batches of the good copy from the offset on."""
        self.asked.append(offset)
        for content in self.good.values():
            at = 0
            while at < len(content):
                header = read_header(content, at)
                if header.base_offset == offset:
                    return content[at : at + 3 * header.size]
                at += header.size
        return b""

    def rot(self, path: str, position: int, mask: int = 1) -> None:
        changed = bytearray(self.disk.snapshot(path))
        changed[position] ^= mask
        self.disk.restore(path, bytes(changed))

    def is_whole(self) -> bool:
        return all(self.disk.snapshot(path) == content for path, content in self.good.items())


async def copies(config: LogConfig = SMALL) -> Copies:
    disk = SimDisk()
    bench = Bench(disk, config)
    await bench.open()
    for number in range(BATCHES):
        bench.append(epoch=number // 10)
    await bench.log.flush()
    return Copies(disk, bench, {path: disk.snapshot(path) for path in disk.files() if path.endswith(".log")})


@pytest.mark.parametrize("config", [SMALL, LARGE], ids=["closed segments", "the active segment"])
def test_every_byte_of_a_segment_can_be_mended(config: LogConfig) -> None:
    async def story() -> None:
        there = await copies(config)
        path, content = next(iter(there.good.items()))
        first = read_header(content)
        for position in range(0, len(content), 37):
            there.rot(path, position)
            mended = await there.bench.log.mend(first.base_offset, there.fetch)
            assert there.disk.flushed(path) == content, f"byte {position}"
            assert mended is not None
            assert [at - at % first.size for at in [position]] == [at for at, _ in mended.stretches]
        assert bases_in(await there.bench.read_all()) == list(range(BATCHES))
        there.bench.append(2, epoch=3)

    run(story())


def test_a_read_tells_where_it_found_damage_and_reads_on_once_it_is_mended() -> None:
    async def story() -> None:
        there = await copies()
        path = list(there.good)[1]
        base = read_header(there.good[path]).base_offset
        there.rot(path, len(there.good[path]) // 2)
        with pytest.raises(LogDamaged):
            await there.bench.read_all()
        (offset,) = there.bench.damaged
        assert offset >= base
        await there.bench.log.mend(offset, there.fetch)
        assert bases_in(await there.bench.read_all()) == list(range(BATCHES))

    run(story())


@pytest.mark.parametrize("search", ["by time", "the newest", "a cut"])
@pytest.mark.parametrize("how", ["changed", "unreadable"])
def test_whatever_finds_damage_tells_where_and_can_be_tried_again(search: str, how: str) -> None:
    async def story() -> None:
        there = await copies()
        path, log = list(there.good)[1], there.bench.log
        base = read_header(there.good[path]).base_offset
        size = read_header(there.good[path]).size
        if how == "changed":
            there.rot(path, size + 70)
        else:
            there.disk.spoil(path, size + 70)

        async def attempt() -> None:
            match search:
                case "by time":
                    await log.find_timestamp(FIRST_MS + base + 1, BATCHES)
                case "the newest":
                    await log.max_timestamp(base + 1)
                case _:
                    await log.truncate_to(base + 1)

        with pytest.raises(LogDamaged):
            await attempt()
        (offset,) = there.bench.damaged
        assert log.segment_start(offset) == base
        assert await log.mend(offset, there.fetch) is not None
        await attempt()
        assert log.failure is None
        assert bases_in(await there.bench.read_all()) == list(range(log.end_offset))

    run(story())


def test_a_place_that_cannot_be_read_is_mended() -> None:
    async def story() -> None:
        there = await copies()
        path = list(there.good)[1]
        there.disk.spoil(path, 70)
        with pytest.raises(Unreadable):
            await there.bench.read_all()
        await there.bench.log.mend(there.bench.damaged[0], there.fetch)
        assert there.is_whole()
        assert bases_in(await there.bench.read_all()) == list(range(BATCHES))

    run(story())


def test_a_segment_of_which_nothing_is_left_is_mended_too() -> None:
    async def story() -> None:
        there = await copies()
        path = list(there.good)[1]
        there.disk.restore(path, bytes(len(there.good[path])))
        await there.bench.log.mend(read_header(there.good[path]).base_offset, there.fetch)
        assert there.is_whole()
        assert bases_in(await there.bench.read_all()) == list(range(BATCHES))

    run(story())


def test_what_was_damaged_is_kept_beside_the_log() -> None:
    async def story() -> None:
        there = await copies()
        path = list(there.good)[1]
        there.rot(path, 70)
        damaged = there.disk.snapshot(path)
        size = read_header(there.good[path]).size
        await there.bench.log.mend(read_header(there.good[path]).base_offset, there.fetch)
        (kept,) = [name for name in there.disk.files() if ".damaged/" in name]
        assert there.disk.snapshot(kept) == damaged[:size]

    run(story())


@pytest.mark.parametrize("answer", ["nothing", "another batch", "a damaged batch", "another epoch", "a larger batch", "a refusal"])
def test_where_no_good_batch_comes_nothing_is_changed(answer: str) -> None:
    async def story() -> None:
        there = await copies()
        path = list(there.good)[1]
        base = read_header(there.good[path]).base_offset
        there.rot(path, 70)
        before = there.disk.snapshot(path)

        async def fetch(offset: int) -> bytes:
            match answer:
                case "nothing":
                    return b""
                case "another batch":
                    return bytes(batch_at(offset + 1, epoch=base // 10))
                case "a damaged batch":
                    return bytes(batch_at(offset, epoch=base // 10))[:-1] + b"\x01"
                case "another epoch":
                    return bytes(batch_at(offset, epoch=7))
                case "a larger batch":
                    return bytes(batch_at(offset, epoch=base // 10, value=b"v" * 5_000))
                case _:
                    raise DiskFailed("not now")

        with pytest.raises((CannotMend, DiskFailed)):
            await there.bench.log.mend(base, fetch)
        assert there.disk.snapshot(path) == before
        assert there.bench.log.failure is None
        assert not [name for name in there.disk.files() if name.endswith(".tmp")]
        await there.bench.log.mend(base, there.fetch)
        assert there.is_whole()

    run(story())


def test_a_power_cut_at_any_operation_of_a_mending_leaves_the_damage_or_the_good_bytes() -> None:
    async def story() -> None:
        operations = 0
        while True:
            there = await copies()
            path = list(there.good)[1]
            there.rot(path, 70)
            damaged = there.disk.snapshot(path)
            there.disk.crash_at(operations + 1)
            try:
                await there.bench.log.mend(read_header(there.good[path]).base_offset, there.fetch)
            except BaseException as ended:
                assert "PowerCut" in type(ended).__name__
            else:
                break
            there.disk.power_cut()
            assert there.disk.snapshot(path) in (damaged, there.good[path])
            await there.bench.open()
            assert there.bench.log.end_offset == BATCHES or there.bench.log.failure is not None
            operations += 1
        assert operations > 5

    run(story())


def test_what_lies_past_the_segment_is_not_touched() -> None:
    async def story() -> None:
        there = await copies()
        first, second = list(there.good)[:2]
        there.rot(first, 70)
        there.rot(second, 70)
        await there.bench.log.mend(0, there.fetch)
        assert there.disk.snapshot(first) == there.good[first]
        assert there.disk.snapshot(second) != there.good[second]
        assert there.bench.log.read(0, bytes_max=ALL, end_offset=ALL)

    run(story())


def test_a_compacted_segment_takes_what_another_copy_has_of_the_same_offsets() -> None:
    """The other copy has not been compacted: it has more there, and none of its batches straddles what is well here."""

    async def story() -> None:
        async def compacted() -> tuple[Keyed, bytes]:
            bench = Keyed(SimDisk())
            await bench.open()
            for number in range(BATCHES):
                bench.put((b"%d" % (number if number % 2 else 0), b"v%d" % number + VALUE))
            whole = await bench.read_all()
            await bench.compact()
            return bench, bytes(whole)

        bench, whole = await compacted()
        path = next(path for path in bench.disk.files() if path.endswith(".log") and "-" in path.rsplit("/", 1)[-1])
        size = len(bench.disk.snapshot(path))
        assert len(headers_in(bench.disk.snapshot(path))) > 1

        async def fetch(offset: int) -> bytes:
            at = 0
            while read_header(whole, at).end_offset <= offset:
                at += read_header(whole, at).size
            return whole[at : at + 3 * read_header(whole, at).size]

        for position in range(0, size, 37):
            bench, _ = await compacted()
            before = await bench.records()
            bench.disk.rot(path, position)
            mended = await bench.log.mend(bench.log.start_offset, fetch)
            assert mended is not None and mended.stretches, f"byte {position}"
            found = await bench.check()
            assert {record.offset for record in before} <= {record.offset for record in found}
            await bench.log.flush()
            await bench.open()
            assert await bench.records() == found, "a start finds the same"

    run(story())


async def acknowledge_more(there: Copies) -> None:
    there.bench.append(5, epoch=5)
    await there.bench.log.flush()


async def after_a_power_cut(there: Copies) -> Log:
    there.disk.power_cut()
    return await there.bench.open()


@pytest.mark.invariant("log.ack-after-flush")
def test_a_place_that_retention_has_removed_is_not_mended() -> None:
    async def story() -> None:
        there = await copies()
        log = there.bench.log
        log.raise_start(log.end_offset)
        assert await there.bench.retain(0)
        assert await log.mend(3, there.fetch) is None
        await acknowledge_more(there)
        again = await after_a_power_cut(there)
        assert (again.end_offset, again.failure) == (BATCHES + 5, None)

    run(story())


def test_an_offset_that_was_never_written_is_not_mended() -> None:
    async def story() -> None:
        there = await copies()
        assert await there.bench.log.mend(BATCHES, there.fetch) is None
        assert there.is_whole()

    run(story())


async def remove(there: Copies) -> None:
    there.bench.log.raise_start(there.bench.log.end_offset)
    assert await there.bench.retain(0)


async def cut_and_write_anew(there: Copies) -> None:
    """The leader has other records, just as many."""
    cut = read_header(list(there.good.values())[1]).base_offset - 2
    await there.bench.log.truncate_to(cut)
    for _ in range(BATCHES - cut):
        there.bench.append(epoch=4)
    await there.bench.log.flush()


async def start_over(there: Copies) -> None:
    await there.bench.log.start_over(BATCHES)


@pytest.mark.invariant("log.ack-after-flush")
@pytest.mark.parametrize("change", [remove, cut_and_write_anew, start_over])
@pytest.mark.parametrize("then", ["the good batches come", "no good batch comes"])
def test_what_is_removed_or_cut_while_it_is_mended_stays_so(change: Callable[[Copies], Coroutine[Any, Any, None]], then: str) -> None:
    async def story() -> None:
        there = await copies()
        path = list(there.good)[1]
        there.rot(path, 70)

        async def fetch(offset: int) -> bytes:
            changing = asyncio.ensure_future(change(there))
            for _ in range(100):
                await asyncio.sleep(0)
            assert changing.done(), "it waits for the mending"
            await changing
            if then == "no good batch comes":
                raise CannotMend("the good copy has other batches by now")
            return await there.fetch(offset)

        assert await there.bench.log.mend(read_header(there.good[path]).base_offset, fetch) is None
        await acknowledge_more(there)
        held = await there.bench.read_all()
        again = await after_a_power_cut(there)
        assert (again.end_offset, again.failure) == (BATCHES + 5, None)
        assert await there.bench.read_all() == held
        assert not [name for name in there.disk.files() if name.endswith(".tmp")]

    run(story())


def test_a_checkpoint_does_not_wait_for_what_is_mended() -> None:
    async def story() -> None:
        there = await copies()
        path = list(there.good)[1]
        there.rot(path, 70)

        async def fetch(offset: int) -> bytes:
            writing = asyncio.ensure_future(there.bench.checkpoint())
            for _ in range(100):
                await asyncio.sleep(0)
            assert writing.done()
            return await there.fetch(offset)

        assert await there.bench.log.mend(read_header(there.good[path]).base_offset, fetch) is not None
        assert there.is_whole()

    run(story())


@pytest.mark.parametrize("is_reopened", [False, True], ids=["as it runs", "after a start"])
def test_the_first_segment_is_mended_though_the_log_starts_inside_of_it_and_in_a_later_epoch(is_reopened: bool) -> None:
    async def story() -> None:
        there = await copies()
        bench, start = there.bench, 21
        path = [path for path in there.good if read_header(there.good[path]).base_offset < 20][-1]
        await bench.log.write_checkpoint(bench.log.begin_checkpoint(bench.state(), start_offset=start))
        bench.log.raise_start(start)
        assert await bench.retain(0)
        assert bench.log.start_offset == start
        if is_reopened:
            there.disk.power_cut()
            await bench.open()
        size = read_header(there.good[path]).size
        there.rot(path, (start - read_header(there.good[path]).base_offset) * size + 70)

        async def fetch(offset: int) -> bytes:
            if offset < start:
                raise CannotMend("the good copy starts later")
            return await there.fetch(offset)

        mended = await bench.log.mend(start, fetch)
        assert mended is not None and len(mended.stretches) == 1
        assert there.disk.snapshot(path) == there.good[path]

    run(story())
