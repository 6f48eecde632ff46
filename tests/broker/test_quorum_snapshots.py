"""Snapshots of the metadata: taken, given to those who need them, and put in the place of a log so that no crash can halve it."""

import pytest
from broker.assembly import Assembly, worlds
from tiers import pick_step

from penstock.broker import quorum_snapshots
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.platter import Loss

SNAPSHOT = "metadata/snapshot"


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot after every few decisions, and segments that hold hardly more."""
    monkeypatch.setattr(quorum_snapshots, "SNAPSHOT_EVERY_BYTES", 300)


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.broker import quorum_store
    from penstock.log.config import LogConfig

    monkeypatch.setattr(quorum_store, "_CONFIG", LogConfig(segment_bytes=600, retention_ms=-1, retention_bytes=-1))


def log_bytes(assembly: Assembly, number: int) -> int:
    disk = assembly.host(number).disk
    return sum(len(disk.snapshot(path)) for path in disk.files() if path.startswith("metadata/") and path.endswith(".log"))


def test_the_log_is_cut_from_the_front_and_stays_short(often: None, short_segments: None) -> None:
    with worlds() as world:
        alone = Assembly(world, 1)
        alone.start_all()
        sizes = []
        for _ in range(8):
            alone.take_blocks(10)
            world.run_for(0.5)
            sizes.append(log_bytes(alone, 1))
        assert max(sizes) < 6_000 and max(sizes[4:]) <= max(sizes[:4]) + 600, "of some fifteen thousand bytes"
        for end in (alone.stop, alone.kill, alone.power_cut):
            end(1)
            alone.start_all()
            alone.take_blocks(1)
        alone.settle()


def test_who_needs_entries_that_are_gone_gets_the_snapshot_in_pieces(often: None) -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(3)
        late = three.leader() % 3 + 1
        three.kill(late)
        three.take_blocks(40)
        three.start(late)
        three.settle()
        assert three[late].installed == 1
        assert three[late].living.image.next_producer_id == three[three.leader()].living.image.next_producer_id
        for number in (late, three.leader()):
            three.power_cut(number, Loss.ALL)
        for number in three.actors:
            if not world.is_running(three[number].host):
                three.start(number)
        three.settle()
        assert three[late].reasons == []


def test_a_replica_that_was_given_a_snapshot_can_lead_and_give_it_on(often: None) -> None:
    with worlds() as world:
        three = Assembly(world, 3, spares=1)
        for number in (1, 2, 3):
            three.start(number)
        three.take_blocks(5)
        late = three.leader() % 3 + 1
        three.kill(late)
        three.take_blocks(40)
        three.start(late)
        three.settle()
        assert three[late].installed == 1
        old = three.leader()
        assert world.call(three[old].host, lambda env: three[old].living.transfer(three[late].node))
        world.run_until(lambda: three.is_leading(three[late]), 5)
        three.start(4)
        three.settle()
        assert three[4].installed >= 1


@pytest.mark.repeats
@pytest.mark.invariant("consensus.snapshot-install-atomic")
@pytest.mark.parametrize(("first", "loss"), [(1, Loss.ALL), (2, Loss.NONE), (3, Loss.SECTORS)])
def test_no_power_cut_halves_the_installation_of_a_snapshot(often: None, first: int, loss: Loss) -> None:
    """At every change of the disk, from the first piece until long after; in `make test` each third one meets each of the losses."""
    moment, step = pick_step(test=first, slow=1), pick_step(test=3, slow=1)
    while cut_while_installing(moment, loss):
        moment += step
    assert moment > 10


def cut_while_installing(moment: int, loss: Loss) -> bool:
    """Whether the moment came before the end of the installation."""
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(2)
        late = three.leader() % 3 + 1
        three.kill(late)
        three.take_blocks(30)
        disk = three.host(late).disk
        three.start(late)
        disk.crash_at(moment)
        world.run_until(lambda: world.has_ended(three[late].host) or three[late].installed > 0, 20)
        has_crashed = world.has_ended(three[late].host)
        if has_crashed:
            three.power_cut(late, loss)
            three.start(late)
        three.settle()
        assert (three[late].reasons, three[late].failures) == ([], [])
        return has_crashed


def test_a_snapshot_of_ones_own_that_finds_no_room_is_given_up(often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.quorum.ROOM_KEPT_BYTES", 0)
    with worlds() as world:
        alone = Assembly(world, 1)
        alone.start_all()
        alone.take_block()
        disk = alone.host(1).disk
        was_short = 0
        for _ in range(60):
            world.run_for(0.1)
            disk.capacity_bytes = disk.capacity_bytes - disk.free_bytes() + 260  # For one decision, and no snapshot beside it.
            before = disk.fired["disk full"]
            alone.take_block()
            world.run_for(0.1)
            was_short += disk.fired["disk full"] > before
        assert was_short > 3
        assert alone[1].reports == [] and alone[1].failures == []
        disk.pacify()
        alone.power_cut(1)
        alone.start_all()
        alone.settle()


def test_a_damaged_snapshot_that_arrives_changes_nothing_on_the_disk(often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.broker.quorum_store import Store

    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(3)
        late = three.leader() % 3 + 1
        three.kill(late)
        three.take_blocks(40)
        honest = Store.read_snapshot
        monkeypatch.setattr(Store, "read_snapshot", lambda self, position, size: bytes(len(honest(self, position, size))))
        before = three.host(late).disk.flushed(SNAPSHOT) if SNAPSHOT in three.host(late).disk.files() else b""
        three.start(late)
        world.run_until(lambda: bool(three[late].failures), 10)
        assert "snapshot of the metadata is damaged" in three[late].failures[0]
        assert (three.host(late).disk.flushed(SNAPSHOT) if SNAPSHOT in three.host(late).disk.files() else b"") == before
        monkeypatch.setattr(Store, "read_snapshot", honest)
        three.kill(late)
        three.start(late)
        three.settle()


def test_snapshots_are_taken_while_decisions_go_on_and_flushes_are_slow(often: None) -> None:
    with worlds(faults=DiskFaults(sync_seconds_min=0.005, sync_seconds_max=0.03)) as world:
        three = Assembly(world)
        three.start_all()
        three.leader()
        for _ in range(60):
            three.ask_soon(three.leader())
            world.run_for(0.03)
        three.settle()
        assert len(three.granted) > 50
        for number in three.actors:
            assert SNAPSHOT in three.host(number).disk.files()
            three.power_cut(number)
        three.start_all()
        three.settle()
