"""The lazy file system keeps what was synced, loses what was not, and fails when it is told to."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from system.lazy_disk import LazyDisk
from system.lazy_tree import PAGE_BYTES, SECTOR_BYTES, Cut
from waiting import NEVER_MS, PATIENCE_S, until

pytestmark = pytest.mark.needs("fuse")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LazyDisk]:
    with LazyDisk(tmp_path / "disk") as disk:
        yield disk


def put(path: Path, content: bytes, *, sync: bool = True, sync_name: bool = True) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, content)
    if sync:
        os.fsync(file)
    os.close(file)
    if sync_name:
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def lose_power(disk: LazyDisk, how: Cut = Cut.DROP, seed: int = 0) -> None:
    disk.cut(how, seed=seed)
    disk.restore()


def test_it_is_an_ordinary_file_system_while_the_power_is_on(disk: LazyDisk) -> None:
    (disk.path / "a" / "b").mkdir(parents=True)
    (disk.path / "a" / "b" / "file").write_bytes(b"x" * 3_000_000)
    with (disk.path / "a" / "b" / "file").open("r+b") as file:
        file.seek(1_500_000)
        file.write(b"middle")
        file.truncate(2_000_000)
    (disk.path / "a" / "b" / "file").rename(disk.path / "a" / "moved")
    content = (disk.path / "a" / "moved").read_bytes()
    assert len(content) == 2_000_000 and content[1_499_999:1_500_007] == b"xmiddlex"
    for number in range(500):
        (disk.path / f"{number:03}").touch()
    assert sorted(os.listdir(disk.path)) == [*(f"{number:03}" for number in range(500)), "a"]
    (disk.path / "a" / "moved").unlink()
    (disk.path / "a" / "b").rmdir()
    assert os.listdir(disk.path / "a") == []
    with pytest.raises(FileNotFoundError):
        (disk.path / "gone").read_bytes()


def test_synced_bytes_under_a_synced_name_survive(disk: LazyDisk) -> None:
    put(disk.path / "log", b"one")
    put(disk.path / "log", b"two")
    lose_power(disk)
    assert (disk.path / "log").read_bytes() == b"onetwo"


def test_unsynced_bytes_are_gone(disk: LazyDisk) -> None:
    put(disk.path / "log", b"one")
    put(disk.path / "log", b"two", sync=False)
    assert (disk.path / "log").read_bytes() == b"onetwo"
    lose_power(disk)
    assert (disk.path / "log").read_bytes() == b"one"


def test_an_unsynced_truncation_is_undone(disk: LazyDisk) -> None:
    put(disk.path / "log", b"123456")
    os.truncate(disk.path / "log", 2)
    lose_power(disk)
    assert (disk.path / "log").read_bytes() == b"123456"


def test_synced_bytes_under_an_unsynced_name_are_gone(disk: LazyDisk) -> None:
    put(disk.path / "log", b"one", sync_name=False)
    lose_power(disk)
    assert os.listdir(disk.path) == []


def test_an_unsynced_rename_and_an_unsynced_unlink_are_undone(disk: LazyDisk) -> None:
    put(disk.path / "checkpoint", b"old")
    put(disk.path / "checkpoint.tmp", b"new")
    put(disk.path / "segment", b"kept")
    (disk.path / "checkpoint.tmp").rename(disk.path / "checkpoint")
    (disk.path / "segment").unlink()
    lose_power(disk)
    assert (disk.path / "checkpoint").read_bytes() == b"old"
    assert (disk.path / "checkpoint.tmp").read_bytes() == b"new"
    assert (disk.path / "segment").read_bytes() == b"kept"


def test_a_synced_rename_survives(disk: LazyDisk) -> None:
    put(disk.path / "checkpoint", b"old")
    put(disk.path / "checkpoint.tmp", b"new")
    (disk.path / "checkpoint.tmp").rename(disk.path / "checkpoint")
    sync_directory(disk.path)
    lose_power(disk)
    assert os.listdir(disk.path) == ["checkpoint"] and (disk.path / "checkpoint").read_bytes() == b"new"


def test_syncfs_is_no_promise_here_as_on_any_fuse_mount(disk: LazyDisk) -> None:
    """The kernel does not pass syncfs on: a broker that trusted it on this file system would lose records, and the tests would show it."""
    put(disk.path / "log", b"one", sync=False)
    os.sync()
    lose_power(disk)
    assert (disk.path / "log").read_bytes() == b""


def test_a_torn_write_ends_at_a_sector(disk: LazyDisk) -> None:
    sizes = set()
    for seed in range(12):
        put(disk.path / f"log{seed}", b"a" * 100)
        put(disk.path / f"log{seed}", b"b" * 2000, sync=False)
        lose_power(disk, Cut.TEAR, seed)
        content = (disk.path / f"log{seed}").read_bytes()
        assert content == b"a" * 100 + b"b" * (len(content) - 100)
        sizes.add(len(content))
    assert sizes <= {100, SECTOR_BYTES, 2 * SECTOR_BYTES, 3 * SECTOR_BYTES, 4 * SECTOR_BYTES, 2100} and len(sizes) > 2


def test_scattered_pages_survive_in_any_order(disk: LazyDisk) -> None:
    put(disk.path / "log", b"", sync=False)
    put(disk.path / "log", b"x" * PAGE_BYTES * 32, sync=False)
    lose_power(disk, Cut.SCATTER, seed=3)
    content = (disk.path / "log").read_bytes()
    pages = [content[at : at + PAGE_BYTES] for at in range(0, len(content), PAGE_BYTES)]
    assert set(pages) == {b"x" * PAGE_BYTES, bytes(PAGE_BYTES)}, "some pages as written, some never written"


def test_a_failed_fsync_loses_its_bytes_and_the_next_one_lies(disk: LazyDisk) -> None:
    put(disk.path / "log", b"one")
    disk.fail_sync("log", skip=1)
    put(disk.path / "log", b"two")
    with pytest.raises(OSError) as failure:
        put(disk.path / "log", b"lost")
    assert failure.value.errno == errno.EIO
    put(disk.path / "log", b"")
    assert (disk.path / "log").read_bytes() == b"onetwolost"
    lose_power(disk)
    assert (disk.path / "log").read_bytes() == b"onetwo"


def test_a_full_disk_takes_what_fits_and_refuses_the_rest_until_there_is_room(disk: LazyDisk) -> None:
    file = os.open(disk.path / "log", os.O_WRONLY | os.O_CREAT)
    disk.room(10)
    assert os.write(file, b"x" * 8) == 8
    assert os.write(file, b"x" * 8) == 2
    with pytest.raises(OSError) as failure:
        os.write(file, b"x")
    assert failure.value.errno == errno.ENOSPC
    assert os.statvfs(disk.path).f_bavail == 0
    disk.room(None)
    assert os.write(file, b"x") == 1
    os.close(file)


def test_the_power_can_go_in_the_middle_of_a_busy_program(disk: LazyDisk) -> None:
    """A stand-in for the broker: appends and fsyncs numbers, and says which ones it has synced."""
    program = (
        "import os, sys\n"
        "log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
        "folder = os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY); os.fsync(folder)\n"
        "for number in range(10**9):\n"
        "    os.write(log, b'%08d' % number)\n"
        "    os.fdatasync(log)\n"
        "    print(number, flush=True)\n"
    )
    for seed in range(3):
        writer = subprocess.Popen([sys.executable, "-c", program, str(disk.path / f"log{seed}")], stdout=subprocess.PIPE)
        disk.cut_at_write(500 + seed, Cut.TEAR, seed=seed)
        writer.kill()
        disk.restore()
        output, _ = writer.communicate(timeout=PATIENCE_S)
        acknowledged = output.splitlines()
        content = (disk.path / f"log{seed}").read_bytes()
        assert len(acknowledged) > 400
        assert [content[at : at + 8] for at in range(0, len(acknowledged) * 8, 8)] == [b"%08d" % int(number) for number in acknowledged]


def test_a_slow_flush_covers_only_what_was_written_before_it(disk: LazyDisk) -> None:
    put(disk.path / "log", b"")
    put(disk.path / "log", b"one", sync=False, sync_name=False)
    disk.sync_takes(ms=NEVER_MS)
    file = os.open(disk.path / "log", os.O_WRONLY)
    slow = threading.Thread(target=os.fsync, args=(file,))
    slow.start()
    until(lambda: disk.stats()["syncs_under_way"] == 1, "the flush has begun")
    put(disk.path / "other", b"meanwhile", sync=False, sync_name=False)
    # The kernel lets nobody write to a file that is being flushed, so this write waits for the flush, and is after it.
    late = threading.Thread(target=put, args=(disk.path / "log", b"two"), kwargs={"sync": False, "sync_name": False})
    late.start()
    disk.sync_takes(ms=0)
    slow.join()
    late.join()
    os.close(file)
    assert (disk.path / "log").read_bytes() == b"onetwo"
    lose_power(disk)
    assert (disk.path / "log").read_bytes() == b"one"
