"""What a replica of the metadata log has on its disk, through crashes, failures, damage and a disk that is full."""

import pytest
from broker.assembly import Assembly, worlds
from tiers import pick, pick_step

from penstock.broker import quorum_files, quorum_snapshots
from penstock.broker.quorum import ROOM_KEPT_BYTES
from penstock.broker.quorum_entries import decode, decode_decision, encode, encode_decision
from penstock.cluster import records
from penstock.consensus.nouns import Entry, Kind, Term
from penstock.errors import BrokenPromise
from penstock.log.faults import NewerFormat
from penstock.log.small_files import seal
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.platter import Loss
from penstock.vocabulary import NodeId, ProducerId

VIRTUAL_TIME = True

VOTE = "metadata/vote"

# Bytes


@pytest.mark.parametrize("kind", list(Kind))
def test_an_entry_is_read_as_it_was_written(kind: Kind) -> None:
    entry = Entry(Term(7), kind, b"payload")
    assert decode(encode(entry), 7) == entry


def test_an_entry_whose_batch_tells_another_term_is_not_believed() -> None:
    with pytest.raises(BrokenPromise):
        decode(encode(Entry(Term(7), Kind.PAYLOAD, b"")), 8)


def test_newer_entries_and_decisions_are_refused_clearly() -> None:
    newer = bytearray(encode(Entry(Term(7), Kind.PAYLOAD, b"")))
    newer[0] = 2
    with pytest.raises(NewerFormat, match="format 2, this Penstock knows 1"):
        decode(bytes(newer), 7)
    newer[0], newer[1] = 1, 9
    with pytest.raises(NewerFormat, match="kind 9"):
        decode(bytes(newer), 7)
    with pytest.raises(NewerFormat, match="decisions of format 2"):
        decode_decision(b"\x02")


def test_a_decision_holds_all_its_records_and_an_old_record_is_one() -> None:
    made = [records.ClusterFormed("c"), records.ProducerBlockTaken(NodeId(3), ProducerId(0), 5)]
    assert decode_decision(encode_decision(made)) == made
    old = records.encode(made[0])
    assert decode(old, 1) == Entry(Term(1), Kind.PAYLOAD, old)
    assert decode_decision(old) == made[:1]


# Crashes


@pytest.mark.invariant("consensus.answer-after-flush")
def test_nothing_is_granted_before_it_is_flushed() -> None:
    with worlds() as world:
        alone = Assembly(world, 1)
        alone.start_all()
        alone.take_block()
        alone.host(1).disk.faults = DiskFaults(sync_seconds_min=5.0, sync_seconds_max=5.0)
        asker = alone.ask_soon(1)
        world.run_for(4)
        assert asker not in alone.granted
        world.run_for(2)
        assert asker in alone.granted


@pytest.mark.repeats
@pytest.mark.invariant("consensus.answer-after-flush")
@pytest.mark.parametrize(("first", "loss"), [(1, Loss.ALL), (2, Loss.NONE), (3, Loss.SECTORS), (4, None)])
def test_no_power_cut_takes_what_was_granted(monkeypatch: pytest.MonkeyPatch, first: int, loss: Loss | None) -> None:
    """At every change of the disk: of the first vote, the log, snapshots, cuts from the front.

    In `make test` each fourth change meets each of the losses.
    """
    monkeypatch.setattr(quorum_snapshots, "SNAPSHOT_EVERY_BYTES", 200)
    moment, step = pick_step(test=first, slow=1), pick_step(test=4, slow=1)
    while live_until(moment, loss):
        moment += step
    assert moment > 60


def live_until(moment: int, loss: Loss | None) -> bool:
    """Whether the power went before everything was done."""
    with worlds(moment) as world:
        alone = Assembly(world, 1)
        disk = alone.host(1).disk
        disk.crash_at(moment)
        for life in range(2):
            alone.start_all()
            for _ in range(8):
                if not world.is_running(alone[1].host):
                    break
                alone.ask_soon(1)
                world.run_for(0.05)
            if life == 0 and world.is_running(alone[1].host):
                alone.stop(1)
            if world.has_ended(alone[1].host) and disk.is_dark:
                break
        has_crashed = disk.is_dark
        if has_crashed or world.is_running(alone[1].host):
            alone.power_cut(1, loss)
        alone.start_all()
        alone.settle()
        assert (alone[1].reasons, alone[1].failures) == ([], [])
        return has_crashed


@pytest.mark.repeats
@pytest.mark.parametrize("loss", [Loss.ALL, Loss.SECTORS])
def test_no_power_cut_at_a_follower_or_leader_takes_what_was_granted(monkeypatch: pytest.MonkeyPatch, loss: Loss) -> None:
    monkeypatch.setattr(quorum_snapshots, "SNAPSHOT_EVERY_BYTES", 200)
    for moment in range(1, 80, pick_step(test=7, slow=3)):
        with worlds(moment) as world:
            three = Assembly(world)
            victim = moment % 3 + 1
            three.host(victim).disk.crash_at(moment)
            three.start_all()
            for _ in range(10):
                three.take_block()
            if world.has_ended(three[victim].host):
                three.power_cut(victim, loss)
                three.start(victim)
            three.settle()


@pytest.mark.repeats
def test_all_power_cuts_at_once_take_nothing_that_was_granted() -> None:
    for seed in range(pick(test=4, slow=12)):
        with worlds(seed) as world:
            three = Assembly(world)
            three.start_all()
            for _ in range(3):
                leader = three.leader()
                for _ in range(6):
                    three.ask_soon(leader)
                world.run_for(world.rng.uniform(0.0, 0.05))
                for number in three.actors:
                    three.power_cut(number)
                three.start_all()
            three.settle()


# Failures


@pytest.mark.parametrize("fault", ["write", "flush of the log", "flush of the vote", "flush of the name"])
def test_a_disk_that_fails_ends_the_replica_and_nothing_is_granted_on_it(fault: str) -> None:
    with worlds() as world:
        alone = Assembly(world, 1)
        alone.start_all()
        alone.take_block()
        alone.kill(1)
        disk = alone.host(1).disk
        if "vote" in fault:
            disk.fail_next_flush(VOTE + ".tmp")
        elif "name" in fault:
            disk.fail_next_flush_where(lambda path: path == "metadata")
        alone.start_all()
        world.run_for(1)
        if not alone[1].reasons and not alone[1].failures:
            if fault == "write":
                disk.fail_next_write()
            else:
                disk.fail_next_flush_where(lambda path: path.endswith(".log"))
            asker = alone.ask_soon(1)
            world.run_for(1)
            assert asker not in alone.granted
            assert "the metadata log failed" in alone[1].failures[0]
            later = alone.ask_soon(1)
            world.run_for(1)
            assert alone.unknown == [asker, later]
        alone.kill(1)
        alone[1].failures.clear()
        alone.start_all()
        alone.settle()
        alone.power_cut(1)
        alone.start_all()
        alone.settle()


@pytest.mark.invariant("consensus.vote-durable")
def test_a_vote_that_only_the_kernel_has_is_written_anew_before_it_counts() -> None:
    """A process that dies between a vote's new name and the flush of it leaves a vote that the next power cut would take back."""
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_block()
        leader = three.leader()
        victim = leader % 3 + 1
        term = three[victim].living.term
        three.host(victim).disk.fail_next_flush_where(lambda path: path == "metadata")
        assert world.call(three[leader].host, lambda env: three[leader].living.transfer(NodeId(6 - leader - victim)))
        world.run_until(lambda: bool(three[victim].failures), 5)
        three.kill(victim)
        three.isolate(victim)
        three.start(victim)
        world.run_for(0.1)
        assert three[victim].living.term > term, "it knows of the vote"
        told = three[victim].living.term
        three.power_cut(victim, Loss.ALL)
        three.start(victim)
        world.run_for(0.1)
        assert three[victim].living.term == told
        three.heal()
        three.settle()


async def led_term(alone: Assembly) -> int:
    import asyncio

    while alone[1].quorum is None:
        await asyncio.sleep(0.01)
    await alone[1].living.leading()
    return int(alone[1].living.term)


# Damage


@pytest.mark.invariant("consensus.vote-durable")
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "foreign", "newer"])
def test_a_replica_that_cannot_read_its_vote_takes_no_part(damage: str) -> None:
    with worlds() as world:
        alone = Assembly(world, 1)
        alone.start_all()
        alone.take_block()
        alone.kill(1)
        disk = alone.host(1).disk
        content = disk.snapshot(VOTE)
        match damage:
            case "flipped":
                disk.rot(VOTE, len(content) // 2)
            case "cut":
                disk.restore(VOTE, content[:-1])
            case "gone":
                disk.lose(VOTE)
            case "foreign":
                alone[1].disks += 1
            case "newer":
                disk.restore(VOTE, seal(b"pnstk-vo", quorum_files.VOTE_VERSION + 1, content[20:]))
        alone.start_all()
        world.run_until(lambda: world.has_ended(alone[1].host), 5)
        expected = {"gone": "vote is missing", "foreign": "belongs to node 1 with another", "newer": "written by a newer one"}
        assert expected.get(damage, "vote is damaged") in alone[1].reasons[0]


def test_damage_in_the_middle_of_the_log_is_not_cut_off() -> None:
    with worlds() as world:
        alone = Assembly(world, 1)
        alone.start_all()
        alone.take_blocks(10)
        alone.power_cut(1, Loss.NONE)
        alone.host(1).disk.rot(f"metadata/{0:020}.log", 400)
        alone.start_all()
        world.run_until(lambda: world.has_ended(alone[1].host), 5)
        assert "the metadata log is damaged" in alone[1].reasons[0]


# Room


@pytest.mark.invariant("consensus.disk-full-refuses-early")
def test_on_a_full_disk_nothing_is_proposed_and_nothing_changes() -> None:
    with worlds() as world:
        alone = Assembly(world, 1)
        alone.start_all()
        alone.take_block()
        disk = alone.host(1).disk
        disk.capacity_bytes -= disk.free_bytes()
        end = alone[1].living.end
        asker = alone.ask_soon(1)
        world.run_for(1)
        assert alone.refused == [asker]
        assert alone[1].living.end == end
        disk.pacify()
        alone.settle()


@pytest.mark.invariant("consensus.disk-full-refuses-early")
def test_what_was_proposed_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may take the last of it between the look and the write."""
    monkeypatch.setattr("penstock.broker.quorum.ROOM_KEPT_BYTES", -1_000_000)
    with worlds() as world:
        alone = Assembly(world, 1)
        alone.start_all()
        alone.take_block()
        disk = alone.host(1).disk
        disk.capacity_bytes -= disk.free_bytes()
        asker = alone.ask_soon(1)
        world.run_for(5)
        assert asker not in alone.granted and asker not in alone.refused
        assert "waits for room" in alone[1].reports[0]
        second = alone.ask_soon(1)
        disk.pacify()
        world.run_for(3)
        assert (alone.granted[asker], second in alone.granted) == (1_000, True)
        alone.settle()


def test_a_follower_without_room_is_no_hindrance_and_catches_up() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(2)
        full = three.leader() % 3 + 1
        disk = three.host(full).disk
        disk.capacity_bytes -= disk.free_bytes()
        three.take_blocks(5)
        assert three[full].living.applied_end < three[three.leader()].living.applied_end
        disk.pacify()
        three.settle()


@pytest.mark.invariant("consensus.disk-full-refuses-early")
def test_a_leader_without_room_hands_its_office_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.quorum.ROOM_KEPT_BYTES", -1_000_000)
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(2)
        full = three.leader()
        disk = three.host(full).disk
        disk.capacity_bytes -= disk.free_bytes()
        three.ask_soon(full)
        world.run_until(lambda: any(three.is_leading(actor) for actor in three.actors.values() if actor.node != full), 10)
        three.take_blocks(3)
        disk.pacify()
        three.settle()


@pytest.mark.invariant("consensus.disk-full-refuses-early")
def test_a_leader_that_has_no_room_left_for_decisions_hands_its_office_over_before_it_proposes_any() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(2)
        full = three.leader()
        disk = three.host(full).disk
        disk.capacity_bytes -= disk.free_bytes() - ROOM_KEPT_BYTES
        three.ask_soon(full)
        world.run_until(lambda: any(three.is_leading(actor) for actor in three.actors.values() if actor.node != full), 10)
        three.take_blocks(3)
        assert three.leader() != full
        disk.pacify()
        three.settle()


def test_where_no_voter_has_room_the_office_is_not_passed_round_in_haste() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(2)
        for number in three.actors:
            disk = three.host(number).disk
            disk.capacity_bytes -= disk.free_bytes() - ROOM_KEPT_BYTES
        term = max(actor.living.term for actor in three.actors.values())
        for _ in range(600):
            three.ask_soon(three.leader())
            world.run_for(0.1)
        assert max(actor.living.term for actor in three.actors.values()) - term < 20
        assert len(three.refused) > 300
        for number in three.actors:
            three.host(number).disk.pacify()
        three.settle()


def test_a_quorum_of_one_on_a_full_disk_does_not_seem_to_start() -> None:
    from penstock.errors import Refusal

    with worlds() as world:
        alone = Assembly(world, 1)
        alone.start_all()
        alone.take_block()
        alone.stop(1)
        disk = alone.host(1).disk
        disk.capacity_bytes -= disk.free_bytes()
        alone.start_all()
        with pytest.raises(Refusal, match="the disk is full"):
            world.call(alone[1].host, lambda env: led_term(alone))
        disk.pacify()
        alone.settle()


def test_a_replica_that_was_killed_on_a_full_disk_waits_for_room_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_snapshots, "SNAPSHOT_EVERY_BYTES", 200)
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(10)
        full = three.leader() % 3 + 1
        three.kill(full)
        disk = three.host(full).disk
        snapshots = [len(disk.snapshot(f"metadata/{name}")) for name in (quorum_files.PREVIOUS_SNAPSHOT, quorum_files.SNAPSHOT)]
        for room in (0, snapshots[0], sum(snapshots)):
            held = disk.list("metadata")
            disk.capacity_bytes -= disk.free_bytes() - room
            three[full].reports.clear()
            three.start(full)
            world.run_for(5)
            assert three[full].quorum is None and not world.has_ended(three[full].host)
            assert "waits for it" in three[full].reports[-1]
            assert disk.list("metadata") == held, "nothing half-written lies about while it waits"
            three.kill(full)
        three.start(full)
        world.run_for(5)
        disk.pacify()
        world.run_until(lambda: three[full].quorum is not None, 5)
        three.settle()


def test_a_node_alone_that_was_killed_on_a_full_disk_ends_with_the_reason() -> None:
    with worlds() as world:
        alone = Assembly(world, 1)
        alone.start_all()
        alone.take_block()
        alone.kill(1)
        disk = alone.host(1).disk
        disk.capacity_bytes -= disk.free_bytes()
        alone.start_all()
        world.run_until(lambda: world.has_ended(alone[1].host), 5)
        assert "no space left" in alone[1].reasons[0]
        disk.pacify()
        alone.start_all()
        alone.settle()


def test_a_stop_without_room_is_not_a_clean_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.quorum.ROOM_KEPT_BYTES", -1_000_000)
    with worlds() as world:
        alone = Assembly(world, 1)
        alone.start_all()
        alone.take_block()
        disk = alone.host(1).disk
        disk.capacity_bytes -= disk.free_bytes()
        alone.ask_soon(1)
        world.run_for(1)
        alone.stop(1)
        assert not alone[1].is_clean
        disk.pacify()
        alone.start_all()
        alone.settle()


def test_a_slow_disk_delays_and_nothing_else() -> None:
    with worlds(faults=DiskFaults(sync_seconds_min=0.01, sync_seconds_max=0.05)) as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(5)
        three.settle(120)
