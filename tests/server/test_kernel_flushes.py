"""Flushes that the kernel carries out by itself: which rounds are left to it, and what becomes of what it does not take or cannot do."""

import asyncio
import errno
import os

import pytest
import uvloop
from server.flush_rounds import files_with_bytes, flush

from penstock.server import kernel, kernel_flushes
from penstock.server.disk import RealDisk
from penstock.server.flushing import KERNEL_FILES_MAX, Chooser, Way
from penstock.server.kernel_flushes import FILES_MAX, KernelFlushes

loops = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


@pytest.fixture
def disk(tmp_path):
    disk = RealDisk(str(tmp_path / "data"))
    if not disk._flusher.chooser.can_use_kernel:
        pytest.skip("not on this kernel")
    yield disk
    disk.shut()


class Tap:
    """Stands between the flusher and the kernel: notes what is asked for, and changes what is reported."""

    def __init__(self, monkeypatch):
        self.rounds = []  # How many files each was asked for.
        self.by_threads = []
        self.failing = {}  # Error numbers by place.
        begin, ended = KernelFlushes.begin, KernelFlushes.ended
        monkeypatch.setattr(KernelFlushes, "begin", lambda flushes, fds: (self.rounds.append(len(fds)), begin(flushes, fds))[1])
        monkeypatch.setattr(KernelFlushes, "ended", lambda flushes: [(at, self.failing.get(at, code)) for at, code in ended(flushes)])
        for name in ("flush_file", "flush_directory", "flush_file_system"):
            monkeypatch.setattr(kernel, name, self._noted(name, getattr(kernel, name)))

    def _noted(self, name, real):
        def call(fd):
            self.by_threads.append(name)
            real(fd)

        return call


@pytest.fixture
def tap(monkeypatch):
    return Tap(monkeypatch)


def unflushable():
    return os.open("/proc/self/status", os.O_RDONLY)


@loops
@pytest.mark.parametrize("count", [1, 2, KERNEL_FILES_MAX])
def test_a_few_files_are_flushed_without_a_thread(disk, tap, count, new_loop):
    assert flush(disk, files_with_bytes(disk, count), new_loop=new_loop) == []
    assert (tap.rounds, tap.by_threads) == ([count], [])


@loops
def test_one_disk_may_serve_one_loop_after_another(disk, tap, new_loop):
    files = files_with_bytes(disk, 2)
    for _ in range(3):
        assert flush(disk, files, new_loop=new_loop) == []
    assert (tap.rounds, tap.by_threads) == ([2, 2, 2], [])


def test_directories_and_many_files_are_left_to_threads(disk, tap):
    flush(disk, files_with_bytes(disk, 1), ["d"])
    flush(disk, files_with_bytes(disk, KERNEL_FILES_MAX + 1))
    assert tap.rounds == []
    assert tap.by_threads


def test_what_is_asked_for_during_a_round_waits_for_the_next_one_and_shares_it(disk, tap):
    async def scenario():
        files = files_with_bytes(disk, 4)
        return await asyncio.gather(*(disk.sync([files[number]]) for number in (0, 1, 2, 3, 1)))

    assert asyncio.run(scenario()) == [[]] * 5
    assert tap.rounds == [1, 3], "the file that two asked for was flushed once"


def test_a_failed_flush_is_told_to_whom_it_concerns_and_ends_the_use_of_syncfs(disk, tap):
    disk._flusher.chooser.can_use_syncfs = True
    tap.failing[1] = errno.EIO

    async def scenario():
        files = files_with_bytes(disk, 4)
        return await asyncio.gather(disk.sync(files[:1]), disk.sync(files[1:2]), disk.sync(files[2:]))

    first, good, bad = asyncio.run(scenario())
    assert (first, good, [path for path, _ in bad]) == ([], [], ["d/2"])
    assert "Input/output error" in bad[0][1]
    assert not disk._flusher.chooser.can_use_syncfs
    assert disk._flusher.chooser.can_use_kernel, "each file answers for itself there"


def test_what_the_kernel_does_not_take_is_flushed_by_threads(disk, tap):
    disk._flusher.chooser.can_use_syncfs = False
    files = files_with_bytes(disk, 4)
    os.close(files[2].fd)
    files[2].fd = unflushable()
    assert [path for path, _ in flush(disk, files)] == ["d/2"]
    assert tap.by_threads == ["flush_file"] * 2
    assert flush(disk, files[:2]) == []
    assert tap.rounds == [4], "it is not asked again"


def test_a_descriptor_lives_until_its_round_has_ended_even_if_the_caller_gave_up(disk):
    async def scenario():
        (file,) = files_with_bytes(disk, 1)
        flush = asyncio.ensure_future(disk.sync([file]))
        flush.cancel()
        disk.close(file)
        assert os.fstat(file.fd).st_size == 5, "still open for the flush under way"
        while file.fd != -1:
            await asyncio.sleep(0.001)

    asyncio.run(scenario())


def test_a_disk_is_shut_while_a_flush_is_under_way(tmp_path):
    async def scenario():
        disk = RealDisk(str(tmp_path / "data"))
        flush = asyncio.ensure_future(disk.sync(files_with_bytes(disk, 3)))
        disk.shut()
        flush.cancel()

    asyncio.run(scenario())


def test_every_place_is_reported_once(tmp_path):
    flushes = KernelFlushes.open()
    if flushes is None:
        pytest.skip("not on this kernel")
    fds = [os.open(tmp_path / str(number), os.O_WRONLY | os.O_CREAT) for number in range(FILES_MAX)]
    for count in (FILES_MAX, 1, FILES_MAX):
        assert flushes.begin(fds[:count]) == count
        reported = []
        while len(reported) < count:
            os.set_blocking(flushes.told, True)
            reported += flushes.ended()
        assert sorted(reported) == [(place, 0) for place in range(count)]
    flushes.close()
    flushes.close()
    for fd in fds:
        os.close(fd)


def test_a_file_that_cannot_be_flushed_is_not_taken():
    flushes = KernelFlushes.open()
    if flushes is None:
        pytest.skip("not on this kernel")
    fd = unflushable()
    assert flushes.begin([fd]) == 0
    os.close(fd)
    flushes.close()


def test_reports_come_round_to_where_they_began(tmp_path):
    """The kernel's ring has a few hundred places."""
    flushes = KernelFlushes.open()
    if flushes is None:
        pytest.skip("not on this kernel")
    os.set_blocking(flushes.told, True)
    fds = [os.open(tmp_path / str(number), os.O_WRONLY | os.O_CREAT) for number in range(3)]
    for _ in range(2 * flushes._ring_places // len(fds)):
        flushes.begin(fds)
        reported = []
        while len(reported) < len(fds):
            reported += flushes.ended()
        assert sorted(reported) == [(0, 0), (1, 0), (2, 0)]
    flushes.close()
    assert flushes.ended() == []
    for fd in fds:
        os.close(fd)


def test_where_the_kernel_does_not_want_to_there_is_none(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "another")
    assert KernelFlushes.open() is None


def test_where_the_kernel_reports_in_another_way_there_is_none(monkeypatch):
    monkeypatch.setattr(kernel_flushes, "_RING_FEATURES", 2)
    assert KernelFlushes.open() is None


class TestChooser:
    def test_few_files_are_the_kernels_if_it_takes_them(self):
        chooser = Chooser(can_use_syncfs=True, can_use_kernel=True)
        assert chooser.is_for_kernel(KERNEL_FILES_MAX)
        assert not chooser.is_for_kernel(KERNEL_FILES_MAX + 1)
        assert chooser.choose(KERNEL_FILES_MAX + 1, 0.0) is Way.FILE_SYSTEM
        chooser.distrust()
        assert chooser.is_for_kernel(2)
        chooser.can_use_kernel = False
        assert not chooser.is_for_kernel(1)
