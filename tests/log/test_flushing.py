"""`flushed_end` moves only over what a flush has covered, and never again after one has failed. Rows 1, 8 and 10 of the checklist."""


import pytest
from log.bench import ALL, DIRECTORY, Bench, bases_in, run

from penstock.errors import DiskFailed
from penstock.simulator.disk import PowerCut, SimDisk
from penstock.simulator.platter import Loss


def test_a_flush_covers_what_was_appended_before_it_began_and_no_more() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(4)
        ticket = bench.log.begin_flush()
        assert ticket is not None
        bench.append(3)
        bench.log.end_flush(ticket, await disk.sync(ticket.files, ticket.directories))
        assert (bench.log.flushed_end, bench.log.end_offset) == (4, 7)
        assert bench.log.begin_flush() is not None, "the later three are not flushed"
        await bench.log.flush()
        assert bench.log.flushed_end == 7
        assert bench.log.begin_flush() is None, "nothing is left to flush"

    run(story())


def test_a_roll_in_the_middle_of_a_flush_leaves_the_rest_of_both_segments_unflushed() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(9)
        first = bench.log.begin_flush()
        assert first is not None
        flushing = disk.sync(first.files, first.directories)
        flushing.send(None)  # type: ignore[attr-defined]  # It has begun.
        bench.append(9)  # The tenth and eleventh go to the first segment, the others to the second.
        with pytest.raises(StopIteration) as ended:
            flushing.send(None)  # type: ignore[attr-defined]
        bench.log.end_flush(first, ended.value.value)
        assert bench.log.flushed_end == 9
        second = bench.log.begin_flush()
        assert second is not None
        assert [file.path for file in second.files] == [bench.path(0), bench.path(11)]
        assert DIRECTORY in second.directories
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert bench.log.end_offset == 9

    run(story())


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_flushes_may_overlap_and_end_in_any_order(order: tuple[int, int]) -> None:
    async def story() -> None:
        bench = Bench(SimDisk())
        await bench.open()
        bench.append(9)
        tickets = [bench.log.begin_flush()]
        bench.append(9)
        tickets.append(bench.log.begin_flush())
        ends = []
        for number in order:
            ticket = tickets[number]
            assert ticket is not None
            bench.log.end_flush(ticket, [])
            ends.append(bench.log.flushed_end)
        assert ends == ([9, 18] if order == (0, 1) else [18, 18])
        assert bench.log.begin_flush() is None
        assert len(bench.files) == 2

    run(story())


@pytest.mark.invariant("log.failed-flush-never-trusted")
def test_a_failed_flush_is_never_believed_again() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(3)
        await bench.log.flush()
        bench.append(3)
        early = bench.log.begin_flush()
        assert early is not None
        disk.fail_next_flush(bench.path(0))
        with pytest.raises(DiskFailed):
            await bench.log.flush()
        bench.log.end_flush(early, [])
        assert bench.log.failure is not None
        assert bench.log.flushed_end == 3
        assert bench.log.begin_flush() is None
        with pytest.raises(DiskFailed):
            bench.append(1)
        with pytest.raises(DiskFailed):
            await bench.checkpoint()
        assert bases_in(bench.log.read(0, bytes_max=10_000, end_offset=ALL)) == [0, 1, 2, 3, 4, 5], "reads go on"

    run(story())


def test_a_failure_of_another_log_in_the_same_round_is_not_ours() -> None:
    async def story() -> None:
        bench = Bench(SimDisk())
        await bench.open()
        bench.append(3)
        ticket = bench.log.begin_flush()
        assert ticket is not None
        bench.log.end_flush(ticket, [("topics/cd/0/00000000000000000000.log", "input/output error")])
        assert bench.log.failure is None
        assert bench.log.flushed_end == 3

    run(story())


@pytest.mark.parametrize("what", [f"{DIRECTORY}/00000000000000000000.log", DIRECTORY, "topics/ab", "topics", ""])
def test_a_failed_flush_of_a_name_is_a_failed_flush(what: str) -> None:
    async def story() -> None:
        bench = Bench(SimDisk())
        await bench.open()
        bench.append(3)
        ticket = bench.log.begin_flush()
        assert ticket is not None
        bench.log.end_flush(ticket, [(what, "input/output error")])
        assert bench.log.failure is not None
        assert bench.log.flushed_end == 0

    run(story())


def test_a_failed_write_takes_the_log_offline_and_what_was_flushed_stays() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(5)
        await bench.log.flush()
        disk.fail_next_write()
        with pytest.raises(DiskFailed):
            bench.append(1)
        assert bench.log.failure is not None
        assert bench.log.end_offset == 5
        with pytest.raises(DiskFailed):
            bench.append(1)
        assert bases_in(await bench.read_all()) == [0, 1, 2, 3, 4]

    run(story())


def test_a_log_whose_very_first_write_failed_opens_again_empty() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        disk.fail_next_write()
        with pytest.raises(DiskFailed):
            bench.append(1)
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert (bench.log.failure, bench.log.end_offset) == (None, 0)
        bench.append(2)
        await bench.log.flush()
        assert bases_in(await bench.read_all()) == [0, 1]

    run(story())


def test_a_failed_roll_takes_the_log_offline() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(10)
        for _ in range(2):
            disk.fail_next_write()
            with pytest.raises(DiskFailed):
                bench.append(1, value=b"x" * 2_000)
        assert bench.log.end_offset == 10

    run(story())


@pytest.mark.invariant("log.failed-flush-never-trusted")
@pytest.mark.parametrize("fails", ["the file", "its name"])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_after_a_failed_flush_the_next_process_writes_the_bytes_anew(fails: str, checkpointed: bool) -> None:
    """The kernel called the pages clean; only the machine's memory had them. A flush that merely succeeds would prove nothing."""

    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(5)
        await bench.log.flush()
        if checkpointed:
            await bench.checkpoint()
        bench.append(12)
        disk.fail_next_flush(bench.path(0) if fails == "the file" else DIRECTORY)
        with pytest.raises(DiskFailed):
            await bench.log.flush()
        disk.kill()
        await bench.open()
        assert (bench.log.end_offset, bench.log.flushed_end, bench.log.failure) == (17, 17, None)
        bench.append(3)
        await bench.log.flush()
        disk.power_cut(Loss.ALL)
        await bench.open()
        assert bases_in(await bench.read_all()) == list(range(20))

    run(story())


@pytest.mark.invariant("log.failed-flush-never-trusted")
@pytest.mark.parametrize("known_end", [0, 5])
def test_a_process_that_is_killed_in_a_failing_flush_leaves_nothing_that_is_wrongly_believed(known_end: int) -> None:
    """It could tell nobody that the flush had failed. The next process reads bytes from the machine's memory that are not on the disk."""

    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(5)
        await bench.log.flush()
        bench.append(12)
        disk.fail_next_flush(bench.path(0))
        ticket = bench.log.begin_flush()
        assert ticket is not None
        assert await disk.sync(ticket.files, ticket.directories)
        disk.kill()
        await bench.open(known_end=known_end)
        bench.append(3)
        await bench.log.flush()
        disk.power_cut(Loss.ALL)
        await bench.open(known_end=20)
        assert bases_in(await bench.read_all()) == list(range(20))
        assert bench.log.failure is None

    run(story())


def test_only_what_is_not_known_to_be_flushed_is_written_again() -> None:
    async def story() -> None:
        written: list[tuple[str, int]] = []
        disk = SimDisk(tell=lambda operation, path, size: written.append((path, size)) if operation == "rewrite" else None)
        bench = Bench(disk)
        await bench.open()
        bench.append(30)
        await bench.log.flush()
        for known_end in (0, 15, 29, 30):
            written.clear()
            disk.kill()
            await bench.open(known_end=known_end)
            rewritten = sum(size for _, size in written)
            total = sum(len(disk.snapshot(path)) for path in disk.files() if path.endswith(".log"))
            beyond = total * (30 - known_end) // 30
            assert beyond <= rewritten <= beyond + bench.config.index_interval_bytes + 200 and (known_end < 30 or not written)
            bench.log.abandon()

    run(story())


def test_a_crash_while_bytes_are_written_anew_loses_nothing() -> None:
    async def story(moment: int) -> bool:
        disk = SimDisk(moment)
        bench = Bench(disk)
        await bench.open()
        bench.append(5)
        await bench.checkpoint()
        bench.append(12)
        disk.fail_next_flush(bench.path(0))
        with pytest.raises(DiskFailed):
            await bench.log.flush()
        disk.kill()
        disk.crash_at(moment)
        has_crashed = False
        try:
            await bench.open()
        except PowerCut:
            has_crashed = True
            disk.power_cut()
            await bench.open()
        assert bench.log.failure is None
        assert bench.log.end_offset >= 5
        assert bases_in(await bench.read_all()) == list(range(bench.log.end_offset))
        return has_crashed

    moment = 1
    while run(story(moment)):
        moment += 1
    assert moment > 5


def test_a_log_that_cannot_be_flushed_says_so_when_it_is_closed() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(3)
        disk.fail_next_flush()
        with pytest.raises(DiskFailed):
            await bench.close()
        assert len(bench.files) == 0
        assert not disk.exists(f"{DIRECTORY}/checkpoint")

    run(story())


def test_an_abandoned_log_ignores_the_end_of_its_last_flush() -> None:
    async def story() -> None:
        disk = SimDisk()
        bench = Bench(disk)
        await bench.open()
        bench.append(3)
        ticket = bench.log.begin_flush()
        assert ticket is not None
        bench.log.abandon()
        disk.unlink(DIRECTORY)
        bench.log.end_flush(ticket, [(bench.path(0), "gone")])
        assert disk.files() == []

    run(story())
