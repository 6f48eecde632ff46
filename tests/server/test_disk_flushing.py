"""Flush rounds: who is covered, who is told of a failure, and which way a round takes."""

import asyncio
import os
import threading

import pytest
from server.flush_rounds import files_with_bytes, flush
from waiting import PATIENCE_S, stays_async, until_async

from penstock.server import flush_threads, kernel
from penstock.server.disk import RealDisk, RealFile
from penstock.server.flushing import Chooser, Way


@pytest.fixture
def disk(tmp_path):
    disk = RealDisk(str(tmp_path / "data"))
    disk._flusher.few_max = 0  # Those who flush a few files have tests of their own (test_flush_threads.py).
    yield disk
    disk.shut()


class Tap:
    """Stands between the flusher and the kernel: counts calls, holds them back, makes them fail."""

    def __init__(self, monkeypatch):
        self.calls = []
        self.begun = 0  # Calls, and those of them that are held back.
        self.failing = set()
        self.gate = threading.Event()
        self.gate.set()
        for name in ("flush_file", "flush_directory", "flush_file_system"):
            monkeypatch.setattr(kernel, name, self._tapped(name, getattr(kernel, name)))

    def _tapped(self, name, real):
        def call(fd):
            self.begun += 1
            assert self.gate.wait(PATIENCE_S)
            self.calls.append(name)
            if name in self.failing:
                raise OSError(5, "Input/output error")
            real(fd)

        return call


@pytest.fixture
def tap(monkeypatch):
    return Tap(monkeypatch)


def use_syncfs(disk, answer):
    disk._flusher.chooser.can_use_syncfs = answer


@pytest.mark.parametrize("syncfs", [True, False])
@pytest.mark.parametrize("count", [1, 2, 30])
def test_a_flush_of_healthy_files_names_none(disk, count, syncfs):
    if syncfs and not disk._flusher.chooser.can_use_syncfs:
        pytest.skip("only on a file system that is known to honour syncfs")
    use_syncfs(disk, syncfs)
    assert flush(disk, files_with_bytes(disk, count), ["d", ""]) == []


def test_nothing_to_flush_asks_the_kernel_nothing(disk, tap):
    assert flush(disk, []) == []
    assert tap.calls == []


def test_one_file_is_flushed_by_itself(disk, tap):
    flush(disk, files_with_bytes(disk, 1))
    assert tap.calls == ["flush_file"]


def test_many_files_are_flushed_by_one_call_where_that_may_be_believed(disk, tap):
    use_syncfs(disk, True)
    flush(disk, files_with_bytes(disk, 30), ["d"])
    assert tap.calls == ["flush_file_system"]


def test_many_files_are_flushed_one_by_one_where_it_may_not(disk, tap):
    use_syncfs(disk, False)
    flush(disk, files_with_bytes(disk, 30), ["d"])
    assert sorted(tap.calls) == ["flush_directory"] + ["flush_file"] * 30


def test_a_file_that_failed_is_named_and_the_others_are_not(disk, tmp_path):
    use_syncfs(disk, False)
    files = files_with_bytes(disk, 5)
    os.close(files[2].fd)
    files[2].fd = os.open("/proc/self/status", os.O_RDONLY)  # A descriptor that cannot be flushed.
    assert [path for path, _ in flush(disk, files)] == ["d/2"]


def test_a_directory_that_is_not_there_is_named(disk):
    use_syncfs(disk, False)
    assert [path for path, _ in flush(disk, [], ["gone"])] == ["gone"]


def test_a_failed_syncfs_stands_for_every_file_of_its_round(disk, tap):
    use_syncfs(disk, True)
    tap.failing.add("flush_file_system")
    failures = flush(disk, files_with_bytes(disk, 3), ["d"])
    assert [path for path, _ in failures] == ["d/0", "d/1", "d/2", "d"]
    assert "Input/output error" in failures[0][1]


@pytest.mark.parametrize("failing", ["flush_file_system", "flush_file"])
def test_after_any_failure_each_file_answers_for_itself(disk, tap, failing):
    """The kernel reports a failure once per descriptor: the one that syncfs uses has then been read, so its later yes means nothing."""
    use_syncfs(disk, True)
    files = files_with_bytes(disk, 3)
    tap.failing.add(failing)
    assert flush(disk, files[:1] if failing == "flush_file" else files)
    tap.failing.clear()
    tap.calls.clear()
    assert flush(disk, files) == []
    assert tap.calls == ["flush_file"] * 3


def test_what_is_asked_for_during_a_round_waits_for_the_next_one_and_shares_it(disk, tap):
    use_syncfs(disk, False)

    async def scenario():
        files = files_with_bytes(disk, 4)
        tap.gate.clear()
        first = asyncio.ensure_future(disk.sync(files[:1]))
        await until_async(lambda: tap.begun == 1)
        later = [asyncio.ensure_future(disk.sync([files[number]])) for number in (1, 2, 3, 1)]
        await stays_async(lambda: tap.begun == 1 and not first.done())
        tap.gate.set()
        await asyncio.gather(first, *later)

    asyncio.run(scenario())
    assert tap.calls == ["flush_file"] * 4, "the file that two asked for was flushed once"


def test_each_caller_of_a_shared_round_is_told_of_its_own_files_only(disk, tap):
    use_syncfs(disk, False)

    async def scenario():
        disk.mkdir("d")
        tap.gate.clear()
        first = asyncio.ensure_future(disk.sync(files_with_bytes(disk, 1)))
        await until_async(lambda: tap.begun == 1)
        good, bad = asyncio.ensure_future(disk.sync([], ["d"])), asyncio.ensure_future(disk.sync([], ["gone"]))
        await asyncio.sleep(0)
        tap.gate.set()
        return await asyncio.gather(first, good, bad)

    first, good, bad = asyncio.run(scenario())
    assert (first, good, [path for path, _ in bad]) == ([], [], ["gone"])


def test_a_descriptor_lives_until_its_round_has_ended_even_if_the_caller_gave_up(disk, tap):
    async def scenario():
        (file,) = files_with_bytes(disk, 1)
        tap.gate.clear()
        flush = asyncio.ensure_future(disk.sync([file]))
        await until_async(lambda: tap.begun == 1)
        flush.cancel()
        await asyncio.sleep(0)
        disk.close(file)
        assert os.fstat(file.fd).st_size == 5, "still open for the flush under way"
        tap.gate.set()
        await until_async(lambda: file.fd == -1)

    asyncio.run(scenario())


class Noting(RealFile):
    """Notes when the turn of the loop is over in which a flush gave it back."""

    notes: list[str]

    def release(self):
        super().release()
        asyncio.get_running_loop().call_soon(self.notes.append, "the turn is over")


def told_of(disk, *, is_appended_meanwhile):
    async def scenario():
        (opened,) = files_with_bytes(disk, 1)
        file = Noting(opened.path, os.dup(opened.fd))
        file.notes, told = [], asyncio.get_running_loop().create_future()

        def ended(failures):
            file.notes.append("told")
            told.set_result(failures)

        disk.sync_then([file], [], ended)
        if is_appended_meanwhile:
            disk.append(opened, [b"more"])
        assert await told == []
        await asyncio.sleep(0)
        file.close()
        return file.notes

    return asyncio.run(scenario())


@pytest.mark.parametrize("few_max", [0, flush_threads.FILES_MAX])
def test_who_asks_to_be_told_hears_in_the_turn_that_learns_of_it(disk, few_max):
    disk._flusher.few_max = few_max
    assert told_of(disk, is_appended_meanwhile=False) == ["told", "the turn is over"]


@pytest.mark.parametrize("few_max", [0, flush_threads.FILES_MAX])
def test_where_more_was_appended_meanwhile_the_turn_is_let_end_first(disk, few_max):
    """What else it appends is then covered by the round that follows, too."""
    disk._flusher.few_max = few_max
    assert told_of(disk, is_appended_meanwhile=True) == ["the turn is over", "told"]


def test_who_asks_to_be_told_hears_what_failed(disk, tap):
    tap.failing.add("flush_file")

    async def scenario():
        told = asyncio.get_running_loop().create_future()
        (file,) = files_with_bytes(disk, 1)
        disk.sync_then([file], [], told.set_result)
        disk.close(file)
        assert file.fd != -1, "still open for the flush under way"
        failures = await told
        assert file.fd == -1
        return failures

    assert [path for path, _ in asyncio.run(scenario())] == ["d/0"]


def test_an_unforeseen_error_in_a_round_vouches_for_nothing(disk, monkeypatch):
    def broken(fd):
        raise ValueError("unforeseen")

    monkeypatch.setattr(kernel, "flush_file", broken)
    assert [path for path, _ in flush(disk, files_with_bytes(disk, 1))] == ["d/0"]


def test_syncfs_is_believed_only_on_file_systems_that_are_known_to_honour_it(monkeypatch):
    with open("/proc/self/status") as stranger:
        assert not kernel.can_flush_file_system(stranger.fileno())
    monkeypatch.setattr(kernel, "_file_system_magic", lambda fd: 0x65735546)
    assert not kernel.can_flush_file_system(0), "FUSE"


@pytest.mark.skipif(not kernel.IS_LINUX, reason="only on Linux")
def test_syncfs_is_not_believed_from_a_kernel_that_hides_failures(monkeypatch):
    monkeypatch.setattr(kernel, "_file_system_magic", lambda fd: 0xEF53)
    assert kernel.can_flush_file_system(0)
    monkeypatch.setattr(kernel, "_kernel_version", lambda: (5, 7))
    assert not kernel.can_flush_file_system(0)


class TestChooser:
    def test_one_target_never_pays_for_the_whole_file_system(self):
        assert Chooser(can_use_syncfs=True).choose(1, 0.0) is Way.EACH

    def test_a_syncfs_slowed_by_strangers_is_put_aside_and_tried_again(self):
        chooser = Chooser(can_use_syncfs=True)
        chooser.learn(Way.FILE_SYSTEM, 10, took_s=0.8, now_s=100.0)
        assert chooser.choose(10, 100.1) is Way.POOL
        assert chooser.choose(10, 100.0 + Chooser.PAUSE_S) is Way.FILE_SYSTEM

    def test_each_bad_trial_doubles_the_pause_and_a_good_one_forgets_it(self):
        chooser = Chooser(can_use_syncfs=True)
        for trial in range(3):
            chooser.learn(Way.FILE_SYSTEM, 10, took_s=0.8, now_s=100.0 * trial)
        assert chooser.choose(10, 200.0 + 3.9 * Chooser.PAUSE_S) is Way.POOL
        assert chooser.choose(10, 200.0 + 4.0 * Chooser.PAUSE_S) is Way.FILE_SYSTEM
        chooser.learn(Way.FILE_SYSTEM, 10, took_s=0.0002, now_s=300.0)
        chooser.learn(Way.FILE_SYSTEM, 10, took_s=0.8, now_s=400.0)
        assert chooser.choose(10, 400.0 + Chooser.PAUSE_S) is Way.FILE_SYSTEM

    def test_a_disk_that_is_slow_for_everybody_is_no_reason_to_leave_syncfs(self):
        chooser = Chooser(can_use_syncfs=True)
        for _ in range(20):
            chooser.learn(Way.POOL, 10, took_s=0.5, now_s=0.0)
        chooser.learn(Way.FILE_SYSTEM, 10, took_s=0.8, now_s=100.0)
        assert chooser.choose(10, 100.0) is Way.FILE_SYSTEM

    def test_a_hiccup_too_short_to_notice_changes_nothing(self):
        chooser = Chooser(can_use_syncfs=True)
        chooser.learn(Way.FILE_SYSTEM, 2, took_s=Chooser.SUSPECT_S, now_s=0.0)
        assert chooser.choose(2, 0.0) is Way.FILE_SYSTEM
