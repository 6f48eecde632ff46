"""Compiled threads that flush a few files: which rounds are left to them, and what becomes of what they cannot do."""

import asyncio
import errno
import os
import select

import pytest
from machine import unbuilt
from server.flush_rounds import files_with_bytes, flush, loops
from waiting import PATIENCE_S, until, until_async

from penstock.server import flush_threads, kernel
from penstock.server.disk import RealDisk
from penstock.server.flush_threads import FILES_MAX, FlushThreads

pytestmark = pytest.mark.skipif(FILES_MAX == 0, reason=unbuilt("the threads that flush") if kernel.IS_LINUX else "only on Linux")


@pytest.fixture
def disk(tmp_path):
    disk = RealDisk(str(tmp_path / "data"))
    yield disk
    disk.shut()


class Tap:
    """Stands between the flusher and the threads: notes what is asked for, and changes what is reported."""

    def __init__(self, disk, monkeypatch):
        self.rounds = []  # How many files each was asked for.
        self.in_python = []
        self.failing = {}  # Error numbers by place.
        self._threads = disk._flusher._few
        self.told = self._threads.told
        monkeypatch.setattr(disk._flusher, "_few", self)
        for name in ("flush_file", "flush_directory", "flush_file_system"):
            monkeypatch.setattr(kernel, name, self._noted(name, getattr(kernel, name)))

    def begin(self, fds):
        self.rounds.append(len(fds))
        self._threads.begin(fds)

    def ended(self):
        return [(at, self.failing.get(at, code)) for at, code in self._threads.ended()]

    def close(self):
        self._threads.close()

    def _noted(self, name, real):
        def call(fd):
            self.in_python.append(name)
            real(fd)

        return call


@pytest.fixture
def tap(disk, monkeypatch):
    return Tap(disk, monkeypatch)


@pytest.fixture
def threads():
    threads = FlushThreads()
    yield threads
    threads.close()


def unflushable():
    return os.open("/proc/self/status", os.O_RDONLY)


def reported(threads, count):
    found = []
    while len(found) < count:
        assert select.select([threads.told], [], [], PATIENCE_S)[0], f"{len(found)} of {count} were reported"
        found += threads.ended()
    return sorted(found)


@loops
@pytest.mark.parametrize("count", [1, 2, FILES_MAX])
def test_a_few_files_are_flushed_without_the_interpreter(disk, tap, count, new_loop):
    assert flush(disk, files_with_bytes(disk, count), new_loop=new_loop) == []
    assert (tap.rounds, tap.in_python) == ([count], [])


@loops
def test_one_disk_may_serve_one_loop_after_another(disk, tap, new_loop):
    files = files_with_bytes(disk, 2)
    for _ in range(3):
        assert flush(disk, files, new_loop=new_loop) == []
    assert (tap.rounds, tap.in_python) == ([2, 2, 2], [])


def test_directories_and_many_files_go_other_ways(disk, tap):
    flush(disk, files_with_bytes(disk, 1), ["d"])
    flush(disk, files_with_bytes(disk, FILES_MAX + 1))
    assert tap.rounds == []
    assert tap.in_python


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
    assert flush(disk, files_with_bytes(disk, 1)) == []
    assert tap.rounds[-1] == 1, "each file answers for itself there"


def test_a_file_that_cannot_be_flushed_fails_alone(disk, tap):
    files = files_with_bytes(disk, 3)
    os.close(files[1].fd)
    files[1].fd = unflushable()
    assert [path for path, _ in flush(disk, files)] == ["d/1"]
    assert flush(disk, files[:1]) == []
    assert tap.in_python == []


def test_a_descriptor_lives_until_its_round_has_ended_even_if_the_caller_gave_up(disk):
    async def scenario():
        (file,) = files_with_bytes(disk, 1)
        flush = asyncio.ensure_future(disk.sync([file]))
        flush.cancel()
        disk.close(file)
        assert os.fstat(file.fd).st_size == 5, "still open for the flush under way"
        await until_async(lambda: file.fd == -1)

    asyncio.run(scenario())


def test_a_disk_is_shut_while_a_flush_is_under_way(tmp_path):
    async def scenario():
        disk = RealDisk(str(tmp_path / "data"))
        flush = asyncio.ensure_future(disk.sync(files_with_bytes(disk, 3)))
        disk.shut()
        flush.cancel()

    asyncio.run(scenario())


def test_every_place_is_reported_once(threads, tmp_path):
    fds = [os.open(tmp_path / str(number), os.O_WRONLY | os.O_CREAT) for number in range(FILES_MAX)]
    for count in (FILES_MAX, 1, FILES_MAX) * 20:
        for fd in fds:
            os.write(fd, b"dirty")
        threads.begin(fds[:count])
        assert reported(threads, count) == [(place, 0) for place in range(count)]
    assert threads.ended() == []
    for fd in fds:
        os.close(fd)


def test_the_kernels_own_words_are_reported(threads, tmp_path):
    fds = [os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT), unflushable()]
    threads.begin(fds)
    assert reported(threads, 2) == [(0, 0), (1, errno.EINVAL)]
    for fd in fds:
        os.close(fd)


def test_more_files_than_there_are_threads_are_refused_whole(threads):
    with pytest.raises(OSError, match=f"{FILES_MAX + 1} files for {FILES_MAX} threads"):
        threads.begin([unflushable()] * (FILES_MAX + 1))
    assert threads.ended() == []


def test_what_was_asked_for_is_flushed_before_they_end(tmp_path):
    for _ in range(50):
        threads = FlushThreads()
        told = os.dup(threads.told)
        fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
        threads.begin([fd])
        threads.close()
        assert os.eventfd_read(told) == 1
        os.close(told)
        os.close(fd)


def test_a_descriptor_that_is_none_is_reported_like_any_other(threads):
    threads.begin([-1])
    assert reported(threads, 1) == [(0, errno.EBADF)]


def test_they_end_when_they_are_closed_or_let_go():
    threads, made = with_tasks()
    threads.close()
    threads.close()
    until(lambda: not made & tasks())
    assert threads.ended() == []
    with pytest.raises(OSError, match="1 files for 0 threads"):
        threads.begin([0])
    let_go, made = with_tasks()
    del let_go
    until(lambda: not made & tasks())


def with_tasks():
    """Threads, and what the system calls them. It lists others that have ended a little longer than they run."""
    before = tasks()
    threads = FlushThreads()
    made = tasks() - before
    assert len(made) == FILES_MAX
    return threads, made


def tasks():
    return set(os.listdir("/proc/self/task"))


def test_signals_go_to_threads_that_know_what_to_do_with_them():
    threads, made = with_tasks()
    assert all(blocked_signals(task) & 0x4002 == 0x4002 for task in made), "SIGINT and SIGTERM"
    threads.close()


def blocked_signals(task):
    with open(f"/proc/self/task/{task}/status") as status:
        return next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk"))


def test_where_the_system_has_no_more_to_give_there_are_none(disk, monkeypatch, tmp_path):
    def refused():
        raise OSError(errno.EAGAIN, "no more threads")

    monkeypatch.setattr(flush_threads, "FlushThreads", refused)
    assert flush_threads.start() is None
    without = RealDisk(str(tmp_path / "without"))
    assert flush(without, files_with_bytes(without, 2)) == []
    without.shut()
