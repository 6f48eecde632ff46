"""The simulated disk keeps what was flushed, loses what was not in every way a real one could, and fails as it is told."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from penstock.env import Disk
from penstock.errors import DiskFailed, DiskFull, ReadFailed
from penstock.simulator.disk import PowerCut, SimDisk
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.platter import LOSSES, SECTOR_BYTES, Loss

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def durable_file(disk: SimDisk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    disk.append(file, [content])
    assert run(disk.sync([file], ["", path.rpartition("/")[0]])) == []
    disk.close(file)


def content_of(disk: SimDisk, path: str) -> bytes:
    file = disk.open(path)
    return disk.read_at(file, 0, 1 << 30)


def test_it_is_the_disk_that_the_broker_asks_for() -> None:
    disk: Disk = SimDisk(1)
    assert disk.free_bytes() > 0


class TestAnHonestDay:
    def test_chunks_are_appended_in_order_and_read_back_anywhere(self) -> None:
        disk = SimDisk(1)
        file = disk.open("a", create=True)
        disk.append(file, [b"one", bytearray(b"two"), memoryview(b"three")])
        assert (disk.size(file), disk.read_at(file, 3, 3), disk.read_now(file, 6, 99)) == (11, b"two", b"three")
        assert run(disk.read_later(file, 100, 5)) == b""

    def test_the_callers_buffer_may_be_reused_at_once(self) -> None:
        disk = SimDisk(1)
        file = disk.open("a", create=True)
        buffer = bytearray(b"first")
        disk.append(file, [buffer])
        buffer[:] = b"spoil"
        assert disk.read_at(file, 0, 5) == b"first"

    def test_a_missing_file_is_not_found_and_a_missing_directory_lists_empty(self) -> None:
        disk = SimDisk(1)
        with pytest.raises(FileNotFoundError):
            disk.open("nothing")
        with pytest.raises(DiskFailed):
            disk.open("no/directory", create=True)
        assert disk.list("nowhere") == []
        disk.unlink("nothing")

    def test_names_move_with_what_they_hold(self) -> None:
        disk = SimDisk(1)
        disk.mkdir("topics/one/0")
        disk.mkdir("topics/one/0")
        durable_file(disk, "topics/one/0/x.log", b"x")
        disk.rename("topics/one", "topics/two")
        assert disk.list("topics") == ["two"]
        assert content_of(disk, "topics/two/0/x.log") == b"x"
        disk.unlink("topics/two")
        assert (disk.exists("topics/two/0/x.log"), disk.list("topics")) == (False, [])

    def test_an_unlinked_file_stays_readable_and_holds_its_room_until_closed(self) -> None:
        disk = SimDisk(1, capacity_bytes=100)
        file = disk.open("a", create=True)
        disk.append(file, [b"x" * 60])
        disk.unlink("a")
        assert disk.read_at(file, 0, 2) == b"xx"
        assert disk.free_bytes() == 40
        disk.close(file)
        assert disk.free_bytes() == 100

    def test_a_lock_ends_with_its_process_but_not_with_another_one(self) -> None:
        disk = SimDisk(1)
        assert disk.lock("lock")
        disk.kill()
        assert disk.lock("lock")
        disk.lock_elsewhere("other")
        disk.power_cut()
        assert not disk.lock("other")


class TestPowerCuts:
    @pytest.mark.parametrize("loss", LOSSES)
    def test_what_was_flushed_is_never_lost(self, loss: Loss) -> None:
        disk = SimDisk(1)
        durable_file(disk, "a", b"kept" * 1000)
        for _ in range(20):
            file = disk.open("a")
            disk.append(file, [b"more" * 300])
            disk.power_cut(loss)
            assert content_of(disk, "a")[:4000] == b"kept" * 1000

    def test_unflushed_bytes_meet_every_fate(self) -> None:
        """All gone, all there, cut between writes, cut inside one at a sector, zeros for a lost sector: the seeds show each."""
        seen: set[str] = set()
        for seed in range(200):
            disk = SimDisk(seed)
            durable_file(disk, "a", b"k" * 100)
            file = disk.open("a")
            for _ in range(3):
                disk.append(file, [b"n" * 1000])
            disk.power_cut()
            seen.add(_fate(content_of(disk, "a")))
        assert seen >= {"nothing", "everything", "whole writes", "torn at a sector", "holes"}

    def test_a_lost_sector_keeps_what_it_held_and_is_zeros_past_that(self) -> None:
        lost_first_sector = False
        for seed in range(100):
            disk = SimDisk(seed)
            durable_file(disk, "a", b"k" * 100)
            disk.append(disk.open("a"), [b"n" * 2000])
            disk.power_cut(Loss.SECTORS)
            content = content_of(disk, "a")
            assert content[:100] == b"k" * 100
            if content[100:SECTOR_BYTES] == bytes(SECTOR_BYTES - 100) and b"n" in content:
                lost_first_sector = True
        assert lost_first_sector

    def test_bytes_appended_while_a_flush_is_under_way_are_not_covered(self) -> None:
        async def scene() -> None:
            disk = SimDisk(1)
            file = disk.open("a", create=True)
            disk.append(file, [b"before"])
            flush = asyncio.create_task(disk.sync([file], [""]))
            await asyncio.sleep(0)
            disk.append(file, [b"after"])
            assert await flush == []
            disk.power_cut(Loss.ALL)
            assert content_of(disk, "a") == b"before"

        run(scene())

    def test_a_flush_ends_with_its_process(self) -> None:
        async def scene() -> None:
            disk = SimDisk(1)
            file = disk.open("a", create=True)
            flush = asyncio.create_task(disk.sync([file]))
            await asyncio.sleep(0)
            disk.power_cut()
            with pytest.raises(PowerCut):
                await flush
            with pytest.raises(PowerCut):
                disk.size(file)

        run(scene())

    def test_a_new_file_is_lost_unless_its_directory_was_flushed(self) -> None:
        disk = SimDisk(1)
        disk.mkdir("d")
        run(disk.sync([], [""]))
        file = disk.open("d/a", create=True)
        disk.append(file, [b"x"])
        run(disk.sync([file]))
        disk.power_cut(Loss.ALL)
        assert disk.list("d") == []

    def test_a_flushed_directory_is_lost_with_the_parent_that_was_not(self) -> None:
        disk = SimDisk(1)
        disk.mkdir("d")
        file = disk.open("d/a", create=True)
        run(disk.sync([file], ["d"]))
        disk.power_cut(Loss.ALL)
        assert not disk.exists("d")

    def test_unflushed_renames_and_unlinks_are_undone(self) -> None:
        disk = SimDisk(1)
        for name in ("old", "target", "doomed"):
            durable_file(disk, name, name.encode())
        disk.rename("old", "target")
        disk.unlink("doomed")
        disk.power_cut(Loss.ALL)
        assert {name: content_of(disk, name) for name in disk.list("")} == {"doomed": b"doomed", "old": b"old", "target": b"target"}

    def test_directories_lose_their_names_independently(self) -> None:
        outcomes = set()
        for seed in range(60):
            disk = SimDisk(seed)
            disk.mkdir("one")
            disk.mkdir("two")
            run(disk.sync([], [""]))
            disk.open("one/a", create=True)
            disk.open("two/b", create=True)
            disk.power_cut()
            outcomes.add((disk.exists("one/a"), disk.exists("two/b")))
        assert len(outcomes) == 4

    def test_a_rename_is_never_seen_half_done(self) -> None:
        for seed in range(60):
            disk = SimDisk(seed)
            disk.mkdir("one")
            disk.mkdir("two")
            run(disk.sync([], [""]))
            durable_file(disk, "one/a", b"a")
            durable_file(disk, "two/a", b"old")
            disk.rename("one/a", "two/a")
            disk.power_cut()
            assert (disk.exists("one/a"), content_of(disk, "two/a")) in {(True, b"old"), (False, b"a")}

    def test_a_flush_of_either_directory_keeps_the_whole_rename_and_what_came_before_it(self) -> None:
        disk = SimDisk(1)
        disk.mkdir("one")
        disk.mkdir("two")
        run(disk.sync([], [""]))
        durable_file(disk, "one/a", b"a")
        disk.open("two/a", create=True)
        disk.rename("one/a", "two/a")
        run(disk.sync([], ["one"]))
        run(disk.sync([], ["two"]))
        disk.power_cut(Loss.ALL)
        assert (disk.list("one"), content_of(disk, "two/a")) == ([], b"a")

    def test_an_unflushed_truncation_is_undone_with_what_came_after_it(self) -> None:
        disk = SimDisk(1)
        durable_file(disk, "a", b"0123456789")
        file = disk.open("a")
        disk.truncate(file, 4)
        disk.append(file, [b"new"])
        assert disk.read_at(file, 0, 99) == b"0123new"
        disk.power_cut(Loss.ALL)
        assert content_of(disk, "a") == b"0123456789"

    def test_a_flushed_truncation_stays(self) -> None:
        disk = SimDisk(1)
        durable_file(disk, "a", b"0123456789")
        file = disk.open("a")
        disk.truncate(file, 4)
        run(disk.sync([file]))
        disk.power_cut(Loss.ALL)
        assert content_of(disk, "a") == b"0123"

    def test_a_kill_keeps_what_was_written_and_the_next_power_cut_may_take_it(self) -> None:
        disk = SimDisk(1)
        durable_file(disk, "a", b"")
        disk.append(disk.open("a"), [b"cached"])
        disk.kill()
        assert content_of(disk, "a") == b"cached"
        disk.power_cut(Loss.ALL)
        assert content_of(disk, "a") == b""

    def test_a_script_can_be_cut_at_every_change(self) -> None:
        async def replace_a_file(disk: SimDisk) -> None:
            file = disk.open("new", create=True)
            disk.append(file, [b"second"])
            await disk.sync([file])
            disk.rename("new", "a")
            await disk.sync([], [""])

        cuts = 0
        for at in range(1, 100):
            disk = SimDisk(at)
            durable_file(disk, "a", b"first")
            disk.crash_at(at)
            try:
                run(replace_a_file(disk))
                break
            except PowerCut:
                cuts += 1
            with pytest.raises(PowerCut):
                disk.open("a")
            disk.power_cut()
            assert content_of(disk, "a") in {b"first", b"second"}
        assert cuts == 7  # create, append, sync and its end, rename, sync and its end

    def test_the_same_seed_gives_the_same_remains(self) -> None:
        def remains(seed: int) -> dict[str, bytes]:
            disk = SimDisk(seed)
            for name in "abcdef":
                file = disk.open(name, create=True)
                disk.append(file, [name.encode() * 3000])
            disk.power_cut()
            return {name: content_of(disk, name) for name in disk.list("")}

        assert remains(5) == remains(5)
        assert any(remains(5) != remains(seed) for seed in range(6, 10))


class TestFailures:
    def test_what_a_failed_flush_covered_is_gone_although_the_next_flush_claims_success(self) -> None:
        disk = SimDisk(1)
        durable_file(disk, "a", b"first")
        file = disk.open("a")
        disk.append(file, [b"lost"])
        disk.fail_next_flush("a")
        assert [path for path, _ in run(disk.sync([file]))] == ["a"]
        assert disk.read_at(file, 0, 99) == b"firstlost"
        disk.append(file, [b"later"])
        assert run(disk.sync([file])) == []
        disk.power_cut(Loss.NONE)
        assert content_of(disk, "a") == b"first" + bytes(4) + b"later"

    @pytest.mark.parametrize("stay", [True, False])
    def test_the_next_process_may_still_read_what_a_failed_flush_has_lost(self, stay: bool) -> None:
        disk = SimDisk(1, DiskFaults(failed_pages_stay=stay))
        durable_file(disk, "a", b"first")
        file = disk.open("a")
        disk.append(file, [b"lost"])
        disk.fail_next_flush("a")
        run(disk.sync([file]))
        disk.append(file, [b"later"])
        disk.kill()
        assert content_of(disk, "a") == (b"firstlostlater" if stay else b"first" + bytes(4) + b"later")

    def test_a_failed_directory_flush_loses_the_name(self) -> None:
        disk = SimDisk(1)
        file = disk.open("a", create=True)
        disk.fail_next_flush("")
        assert [path for path, _ in run(disk.sync([file], [""]))] == [""]
        assert run(disk.sync([file], [""])) == []
        disk.power_cut(Loss.NONE)
        assert not disk.exists("a")

    def test_a_failed_write_leaves_any_part_of_itself(self) -> None:
        sizes = set()
        for seed in range(50):
            disk = SimDisk(seed)
            file = disk.open("a", create=True)
            disk.fail_next_write()
            with pytest.raises(DiskFailed):
                disk.append(file, [b"x" * 10])
            sizes.add(disk.size(file))
            disk.append(file, [b"y"])
        assert {0, 10} < sizes

    def test_a_full_disk_refuses_and_says_how_much_is_free(self) -> None:
        disk = SimDisk(1, capacity_bytes=100)
        file = disk.open("a", create=True)
        disk.append(file, [b"x" * 90])
        assert disk.free_bytes() == 10
        with pytest.raises(DiskFull):
            disk.append(file, [b"y" * 11])
        disk.truncate(file, 90)
        disk.append(file, [b"y" * 10])
        assert disk.free_bytes() == 0
        with pytest.raises(DiskFull):
            disk.open("b", create=True)
        disk.capacity_bytes += 1
        disk.open("b", create=True)

    def test_room_that_a_file_keeps_is_free_again_when_it_is_removed_or_lost(self) -> None:
        disk = SimDisk(1, capacity_bytes=100)
        asyncio.run(disk.allocate("reserve", 60))
        file = disk.open("reserve")
        assert (disk.free_bytes(), disk.size(file)) == (40, 60)
        disk.close(file)
        with pytest.raises(DiskFull):
            asyncio.run(disk.allocate("other", 41))
        asyncio.run(disk.allocate("reserve", 90))
        assert disk.free_bytes() == 10
        disk.kill()
        assert disk.free_bytes() == 10
        disk.unlink("reserve")
        assert disk.free_bytes() == 100
        asyncio.run(disk.allocate("reserve", 60))
        disk.power_cut(Loss.ALL)
        assert disk.free_bytes() == 100

    def test_chance_fires_each_kind_of_fault(self) -> None:
        async def scene() -> set[str]:
            faults = DiskFaults(cold_read=0.3, write_failure=0.3, flush_failure=0.3, read_failure=0.3, slow_sync=0.3)
            disk = SimDisk(1, faults)
            file = disk.open("a", create=True)
            for _ in range(50):
                with suppress(DiskFailed):
                    disk.append(file, [b"x"])
                with suppress(DiskFailed):
                    disk.read_now(file, 0, 1)
                await disk.sync([file])
            return set(disk.fired)

        assert run(scene()) == {"cold read", "write failure", "flush failure", "read failure", "slow flush"}

    def test_rot_flips_flushed_bits_and_nothing_else(self) -> None:
        disk = SimDisk(1)
        durable_file(disk, "a", bytes(1000))
        disk.append(disk.open("a"), [bytes(1000)])
        (position,) = disk.rot("a")
        content = content_of(disk, "a")
        assert position < 1000
        assert [at for at, byte in enumerate(content) if byte] == [position]
        assert content[position].bit_count() == 1
        disk.power_cut(Loss.ALL)
        assert content_of(disk, "a")[position]

    def test_no_read_reaches_over_a_bad_sector_until_the_file_is_another_one(self) -> None:
        disk = SimDisk()
        for name in ("old", "new"):
            disk.append(disk.open(name, create=True), (b"0123456789",))
        disk.spoil("old", 4)
        file = disk.open("old")
        assert disk.read_at(file, 0, 4) + disk.read_at(file, 5, 5) == b"012356789"
        with pytest.raises(ReadFailed):
            disk.read_at(file, 0, 5)
        disk.rename("new", "old")
        assert disk.read_at(disk.open("old"), 0, 10) == b"0123456789"

    def test_a_directory_goes_in_an_order_of_the_seeds_and_may_fail_half_way(self) -> None:
        orders = set()
        for seed in range(5):
            removed: list[str] = []
            disk = SimDisk(seed, tell=lambda operation, path, _, removed=removed: removed.append(path) if operation == "unlink" else None)
            disk.mkdir("full")
            for number in range(5):
                disk.open(f"full/{number}", create=True)
            disk.fail_next_unlink_where(lambda path, disk=disk: len(disk.list("full")) == 2)
            with pytest.raises(DiskFailed):
                disk.unlink("full")
            assert len(disk.list("full")) == 2
            disk.unlink("full")
            assert not disk.exists("full")
            orders.add(tuple(removed))
        assert len(orders) == 5

    def test_files_come_back_stale_or_not_at_all(self) -> None:
        disk = SimDisk(1)
        durable_file(disk, "a", b"old")
        old = disk.snapshot("a")
        disk.append(disk.open("a"), [b" and new"])
        disk.restore("a", old)
        assert content_of(disk, "a") == b"old"
        disk.lose("a")
        disk.power_cut(Loss.NONE)
        assert disk.files() == []


def _fate(content: bytes) -> str:
    new = content[100:]
    if not new.strip(b"n"):
        if len(new) in {0, 3000}:
            return "everything" if new else "nothing"
        return "whole writes" if len(new) % 1000 == 0 else "torn at a sector" if len(content) % SECTOR_BYTES == 0 else "?"
    return "holes"
