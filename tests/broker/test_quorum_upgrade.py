"""Data directories of an older Penstock, which was one node without votes: they open, and go on."""

from struct import Struct

import pytest
from broker.assembly import Assembly, worlds

from penstock.broker import quorum_store
from penstock.cluster import records
from penstock.cluster.image import ClusterImage
from penstock.log.config import LogConfig, LogIdentity
from penstock.log.log import Log
from penstock.log.open_files import OpenFiles
from penstock.simulator.env import SimEnv
from penstock.simulator.platter import Loss
from penstock.vocabulary import METADATA_TOPIC_ID, NodeId, ProducerId
from penstock.wire.batches import Record, encode_batch, read_header

pytestmark = pytest.mark.invariant("consensus.upgrade-keeps-log")

IDENTITY = LogIdentity(METADATA_TOPIC_ID, 0)


def blocks(first: int, count: int) -> list[records.Record]:
    """As askers below zero took them."""
    return [records.ProducerBlockTaken(NodeId(-number), ProducerId(1_000 * (number - 1)), 1_000) for number in range(first, first + count)]


async def write_old_log(env: SimEnv, decisions: list[list[records.Record]], *, snapshot_at: int | None) -> None:
    """Several records in a batch, all in epoch 1, the snapshot in the checkpoint, no vote: as they were written."""
    log = await Log.open(
        env, "metadata", IDENTITY, LogConfig(), OpenFiles(env.disk, 10), is_clean=False, restore=lambda _: None, replay=lambda _: None
    )
    image = ClusterImage()
    for place, made in enumerate(decisions):
        if place == snapshot_at:
            await log.flush()
            encoded = [records.encode(record) for record in image.snapshot()]
            packed = b"".join(Struct(">i").pack(len(one)) + one for one in encoded)
            await log.write_checkpoint(log.begin_checkpoint(Struct(">q").pack(log.end_offset) + packed))
        batch = encode_batch(
            [Record(value=records.encode(record), timestamp_ms=1) for record in made], base_offset=log.end_offset, leader_epoch=1
        )
        log.append(batch, read_header(batch))
        for record in made:
            image.replay(record)
    await log.flush()


def upgraded(assembly: Assembly, *, snapshot_at: int | None) -> None:
    """The first node has a directory of an older Penstock with nine blocks in it."""
    world, decisions = assembly.world, [blocks(1, 3), blocks(4, 1), blocks(5, 4), blocks(9, 1)]
    world.start(assembly[1].host, lambda env: write_old_log(env, decisions, snapshot_at=snapshot_at))
    world.run_until(lambda: world.has_ended(assembly[1].host), 5)
    assert assembly.host(1).endings == ["returned"]
    assembly.blocks |= {1_000 * place: -place - 1 for place in range(9)}


@pytest.mark.parametrize("snapshot_at", [None, 1, 3])
@pytest.mark.parametrize("end", ["stop", "kill", "power cut"])
def test_an_old_directory_opens_and_goes_on(snapshot_at: int | None, end: str) -> None:
    with worlds() as world:
        alone = Assembly(world, 1)
        upgraded(alone, snapshot_at=snapshot_at)
        for life in range(3):
            alone.start_all()
            assert alone.take_block() == 1_000 * (9 + life)
            assert alone[1].living.term == 2 + life, "all that was old is of term 1"
            {"stop": alone.stop, "kill": alone.kill, "power cut": alone.power_cut}[end](1)
        alone.start_all()
        alone.settle()


@pytest.mark.parametrize("loss", [Loss.ALL, Loss.NONE, Loss.SECTORS])
def test_no_power_cut_in_the_middle_of_an_upgrade_loses_anything(loss: Loss) -> None:
    moment, has_crashed = 1, True
    while has_crashed:
        with worlds() as world:
            alone = Assembly(world, 1)
            upgraded(alone, snapshot_at=2)
            disk = alone.host(1).disk
            disk.crash_at(moment)
            alone.start_all()
            world.run_for(0.3)
            has_crashed = disk.is_dark
            alone.power_cut(1, loss)
            alone.start_all()
            alone.settle()
            assert alone[1].reasons == []
        moment += 1
    assert moment > 10


def test_an_old_log_that_is_long_is_kept_in_memory_only_behind_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_store, "LOADED_BYTES_MAX", 100)
    with worlds() as world:
        alone = Assembly(world, 1)
        upgraded(alone, snapshot_at=3)
        alone.start_all()
        alone.take_block()
        alone.kill(1)
        alone.start_all()
        alone.leader()
        assert alone[1].living._store.start == 8
        alone.settle()


def test_an_old_directory_is_the_only_voter_whatever_it_is_told() -> None:
    """Two others, which have nothing of its log, would be a majority without it."""
    with worlds() as world:
        three = Assembly(world)
        upgraded(three, snapshot_at=None)
        three.start(1)
        assert three.take_block() == 9_000
        assert [voter.node for voter in three[1].living.voters.replicas] == [1]


def test_a_copy_of_an_upgraded_log_makes_no_node_a_voter() -> None:
    """Its entries are old, but they were written by this node, which votes when the log says so."""
    with worlds() as world:
        pair = Assembly(world, 1, spares=1)
        upgraded(pair, snapshot_at=None)
        pair.start_all()
        pair.settle()
        for life in range(3):
            pair.kill(2)
            if life == 1:
                pair.isolate(2)
            pair.start(2)
            world.run_for(3)
            assert pair[2].led == 0
        pair.heal()
        pair.settle()
        leader = pair[1].living
        world.call(pair[1].host, lambda env: leader.add_voter(pair[2].me))
        assert world.call(pair[1].host, lambda env: leader.transfer())
        world.run_until(lambda: pair.is_leading(pair[2]), 5)
        pair.settle()


def test_a_copy_that_has_only_the_first_old_entries_stays_silent() -> None:
    with worlds() as world:
        pair = Assembly(world, 1, spares=1)
        upgraded(pair, snapshot_at=None)
        pair.start_all()
        world.run_until(lambda: pair[2].quorum is not None and pair[2].living.end > 0, 5)
        pair.isolate(2)
        disk = pair.host(2).disk
        pair.power_cut(2, Loss.ALL)
        path = f"metadata/{0:020}.log"
        size = read_header(disk.snapshot(path)).size
        disk.restore(path, disk.snapshot(path)[:size])  # The rest never came.
        pair.start(2)
        world.run_for(5)
        assert (pair[2].living.end, pair[2].led, pair[2].living.term) == (1, 0, pair[1].living.term)
        pair.kill(1)  # It remembers how far the other had come.
        pair.start(1)
        pair.heal()
        pair.settle()
