"""The real disk, on the real file system: what it promises to the log above it."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from penstock.errors import DiskFailed, DiskFull, ReadFailed
from penstock.server import disk as disk_module
from penstock.server.disk import RealDisk


@pytest.fixture
def disk(tmp_path):
    disk = RealDisk(str(tmp_path / "data"))
    yield disk
    disk.shut()


def test_the_data_directory_is_made(tmp_path):
    RealDisk(str(tmp_path / "a" / "b")).shut()
    assert (tmp_path / "a" / "b").is_dir()


def test_appended_chunks_are_read_back_in_order(disk):
    file = disk.open("log", create=True)
    disk.append(file, [b"one"])
    disk.append(file, [b"two", bytearray(b"three"), memoryview(b"__four")[2:]])
    assert disk.read_at(file, 0, 100) == b"onetwothreefour"
    assert disk.read_at(file, 3, 3) == b"two"
    assert disk.size(file) == 15


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="only Linux has a file that fails to be read")
def test_bytes_that_cannot_be_read_are_told_apart_from_other_failures(tmp_path, disk):
    (tmp_path / "data" / "bad").symlink_to("/proc/self/mem")  # No memory is at its beginning: EIO.
    file = disk.open("bad")
    with pytest.raises(ReadFailed):
        disk.read_at(file, 0, 10)
    with pytest.raises(ReadFailed):
        asyncio.run(disk.read_later(file, 0, 10))


def test_more_chunks_than_one_system_call_takes_are_all_written(disk):
    file = disk.open("log", create=True)
    disk.append(file, [bytes([number % 256]) for number in range(3000)])
    assert disk.read_at(file, 0, 5000) == bytes(number % 256 for number in range(3000))


def test_an_append_of_nothing_changes_nothing(disk):
    file = disk.open("log", create=True)
    disk.append(file, [])
    disk.append(file, [b""])
    assert disk.size(file) == 0


def test_a_missing_file_is_opened_only_when_asked_to_create(disk):
    with pytest.raises(FileNotFoundError):
        disk.open("nothing")
    disk.close(disk.open("something", create=True))
    disk.close(disk.open("something"))


def test_an_existing_file_is_opened_with_its_bytes_also_when_asked_to_create(disk):
    file = disk.open("log", create=True)
    disk.append(file, [b"kept"])
    disk.close(file)
    again = disk.open("log", create=True)
    assert disk.size(again) == 4
    disk.append(again, [b"!"])
    assert disk.read_at(again, 0, 10) == b"kept!"


def test_a_read_past_the_end_gives_what_is_there(disk):
    file = disk.open("log", create=True)
    disk.append(file, [b"short"])
    for read in (disk.read_at, disk.read_now):
        assert read(file, 2, 100) == b"ort"
        assert read(file, 5, 100) == b""
        assert read(file, 900, 100) == b""


def test_bytes_just_written_are_read_without_waiting(disk):
    file = disk.open("log", create=True)
    written = os.urandom(3 << 20)
    disk.append(file, [written])
    assert disk.read_now(file, 0, len(written)) == written
    assert disk.read_now(file, 1000, 50_000) == written[1000:51_000]


def test_an_answer_that_was_given_does_not_change_when_the_next_one_is_read(disk):
    file = disk.open("log", create=True)
    disk.append(file, [b"a" * 100 + b"b" * 100])
    first = disk.read_now(file, 0, 100)
    disk.read_now(file, 100, 100)
    assert first == b"a" * 100


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT") or not hasattr(os, "posix_fadvise"), reason="only where it is told what is in memory")
def test_a_read_that_would_wait_is_refused_and_succeeds_later(disk, tmp_path):
    file = disk.open("cold", create=True)
    written = os.urandom(8 << 20)
    disk.append(file, [written])
    os.fdatasync(file.fd)
    os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if disk.read_now(file, 4 << 20, 1 << 20) is not None:
        pytest.skip("only on a file system that lets go of its pages (tmpfs does not)")
    assert asyncio.run(disk.read_later(file, 4 << 20, 1 << 20)) == written[4 << 20 : 5 << 20]


def test_where_the_system_cannot_tell_what_is_in_memory_only_recent_bytes_are_read_at_once(disk, monkeypatch):
    file = disk.open("log", create=True)
    disk.append(file, [b"old"])
    disk.close(file)
    file = disk.open("log")
    disk.append(file, [b"new"])
    monkeypatch.setattr(disk, "_can_refuse_to_wait", False)
    assert disk.read_now(file, 3, 3) == b"new"
    assert disk.read_now(file, 0, 3) is None


def test_a_truncated_file_grows_again_from_its_new_end(disk):
    file = disk.open("log", create=True)
    disk.append(file, [b"whole and torn"])
    disk.truncate(file, 5)
    assert disk.size(file) == 5
    disk.append(file, [b"!"])
    assert disk.read_at(file, 0, 100) == b"whole!"


def test_a_file_closed_while_it_is_read_in_a_thread_is_read_to_the_end(disk):
    async def read_and_close():
        file = disk.open("log", create=True)
        disk.append(file, [b"x" * 100_000])
        reading = asyncio.ensure_future(disk.read_later(file, 0, 100_000))
        await asyncio.sleep(0)
        disk.close(file)
        assert await reading == b"x" * 100_000
        await asyncio.sleep(0)
        assert file.fd == -1

    asyncio.run(read_and_close())


def test_a_file_unlinked_while_open_stays_readable(disk):
    file = disk.open("log", create=True)
    disk.append(file, [b"still here"])
    disk.unlink("log")
    assert not disk.exists("log")
    assert disk.read_at(file, 0, 100) == b"still here"


def test_directories_are_made_listed_renamed_and_removed_with_what_is_in_them(disk):
    disk.mkdir("topics/abc/0")
    disk.mkdir("topics/abc/0")
    for name in ("b", "a", "c"):
        disk.close(disk.open(f"topics/abc/0/{name}", create=True))
    assert disk.list("topics/abc/0") == ["a", "b", "c"]
    assert disk.list("topics/none") == []
    disk.rename("topics/abc", "topics/abc.deleted")
    assert disk.list("topics") == ["abc.deleted"]
    disk.unlink("topics/abc.deleted")
    disk.unlink("topics/abc.deleted")
    assert disk.list("topics") == []


def test_a_rename_replaces_its_target(disk):
    for name, content in (("old", b"old"), ("new", b"new")):
        disk.append(disk.open(name, create=True), [content])
    disk.rename("new", "old")
    assert disk.read_at(disk.open("old"), 0, 10) == b"new"


def test_what_the_system_refuses_is_a_disk_failure_with_the_path(disk):
    disk.mkdir("directory")
    for act in (lambda: disk.open("directory"), lambda: disk.rename("no/such", "x"), lambda: disk.list("file/below")):
        disk.open("file", create=True)
        with pytest.raises(DiskFailed, match=r"directory|no/such|file"):
            act()


def test_a_write_over_the_limit_is_a_disk_failure_and_the_size_is_known_after_it(disk):
    """RLIMIT_FSIZE stands in for a disk that writes a part and then refuses."""
    file = disk.open("log", create=True)
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(DiskFailed):
            disk.append(file, [b"x" * 15_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert disk.size(file) == 10_000
    disk.truncate(file, 0)
    disk.append(file, [b"usable"])
    assert disk.read_at(file, 0, 100) == b"usable"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only with /dev/full")
def test_no_room_is_told_apart_from_other_failures(disk, tmp_path):
    (tmp_path / "data" / "full").symlink_to("/dev/full")
    file = disk.open("full")
    with pytest.raises(DiskFull):
        disk.append(file, [b"x"])


def test_a_lock_keeps_other_processes_out_until_its_holder_ends(disk, tmp_path):
    assert disk.lock("lock")
    assert disk.lock("lock"), "the holder may ask again"
    ask = "import sys; from penstock.server.disk import RealDisk; sys.exit(0 if RealDisk(sys.argv[1]).lock('lock') else 7)"

    def another_process_gets_it():
        return subprocess.run([sys.executable, "-c", ask, str(tmp_path / "data")], env={"PYTHONPATH": "src"}, check=False).returncode == 0

    assert not another_process_gets_it()
    disk.shut()
    assert another_process_gets_it()
    assert another_process_gets_it(), "a lock file that was left behind is harmless"


def test_free_bytes_is_what_the_file_system_says(disk, tmp_path):
    def is_close():
        answer = os.statvfs(tmp_path)
        return abs(disk.free_bytes() - answer.f_bavail * answer.f_frsize) < 1 << 30

    until(is_close)  # Other processes may take or give back room between the two questions.


def test_large_appends_begin_their_write_back_early_and_a_file_may_be_closed_meanwhile(disk, monkeypatch):
    asked = []
    monkeypatch.setattr(disk_module.kernel, "start_write_back", lambda fd, position, size: asked.append((position, size)))
    file = disk.open("log", create=True)
    for _ in range(5):
        disk.append(file, [bytes(disk_module.WRITE_BACK_BYTES // 2)])
    disk.close(file)
    disk.shut()
    assert asked == [(0, disk_module.WRITE_BACK_BYTES), (disk_module.WRITE_BACK_BYTES, disk_module.WRITE_BACK_BYTES)]


def test_a_file_that_keeps_room_has_its_size_at_once_and_replaces_what_was_there(disk, tmp_path):
    disk.append(disk.open("reserve", create=True), [b"something"])
    asyncio.run(disk.allocate("reserve", 1 << 20))
    file = disk.open("reserve")
    assert disk.size(file) == 1 << 20
    assert os.stat(tmp_path / "data" / "reserve").st_blocks * 512 >= 1 << 20
    disk.close(file)


def test_a_file_for_which_there_is_no_room_is_not_left(disk):
    with pytest.raises(DiskFailed):
        asyncio.run(disk.allocate("reserve", 1 << 62))
    assert not disk.exists("reserve")
