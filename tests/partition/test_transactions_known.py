"""What a partition knows of transactions: how far readers of committed records see, what outlives a restart, and what is forgotten."""

import pytest
from log.bench import run
from partition.held import ME, OTHER, Held, copy, led, transactional

from penstock.log.config import LogConfig
from penstock.partition.producers import ProducerStates
from penstock.simulator.disk import SimDisk
from penstock.wire.batches import BatchHeader, read_header

# How far readers see


def test_readers_of_committed_records_stop_at_the_first_open_transaction() -> None:
    async def story() -> None:
        held = await led()
        held.put(1, 0, is_transactional=False)
        held.put(7, 0)
        held.put(8, 0)
        held.put(1, 1, is_transactional=False)
        await held.flush()
        assert (held.partition.high_watermark, held.partition.last_stable_offset) == (4, 1)
        assert [header.base_offset for header in headers(await held.content(reads_committed=True))] == [0]
        assert [header.base_offset for header in headers(await held.content())] == [0, 1, 2, 3]
        held.end(7)
        await held.flush()
        assert held.partition.last_stable_offset == 2, "the next one is open"
        held.end(8)
        await held.flush()
        assert held.partition.last_stable_offset == held.partition.high_watermark == 6

    run(story())


def headers(content: bytes) -> list[BatchHeader]:
    found, at = [], 0
    while at < len(content):
        found.append(read_header(content, at))
        at += found[-1].size
    return found


def test_a_marker_counts_only_once_it_is_below_the_watermark() -> None:
    async def story() -> None:
        held = Held()
        await held.open()
        partition = held.lead(in_sync=(ME, OTHER))
        held.put(7, 0)
        held.put(8, 0)
        held.end(8)
        held.put(9, 0)
        held.end(7)
        held.end(9)
        await held.flush()
        stable = []
        for reached in range(7):
            held.reach(reached, OTHER)
            assert partition.high_watermark == reached
            stable.append(partition.last_stable_offset)
        assert stable == [0, 0, 0, 0, 0, 3, 6], "7 ends with the marker at 4, and 9, which began at 3, with the one at 5"

    run(story())


def test_retention_does_not_wait_for_a_transaction_and_the_stable_end_is_never_before_the_start() -> None:
    async def story() -> None:
        held = await led()
        held.put(7, 0)
        held.put(1, 0, is_transactional=False)
        await held.flush()
        held.partition.log.raise_start(1)
        assert held.partition.last_stable_offset == 1

    run(story())


def test_what_was_aborted_is_told_for_every_range_that_it_overlaps() -> None:
    async def story() -> None:
        held = await led()
        held.put(7, 0)
        held.put(8, 0)
        held.end(7, is_commit=False)
        held.put(8, 1)
        held.end(8, is_commit=False)
        held.put(7, 1)
        held.end(7)
        assert held.partition.aborted(0, 1) == [(7, 0)]
        assert held.partition.aborted(0, 2) == [(7, 0), (8, 1)]
        assert held.partition.aborted(3, 5) == [(8, 1)]
        assert held.partition.aborted(5, 9) == []
        assert held.partition.has_aborted_after(4) and not held.partition.has_aborted_after(5)

    run(story())


# What outlives a restart, and what a follower knows


def known_of(held: Held) -> tuple[object, ...]:
    partition, producers = held.partition, held.partition.producers
    described = [producers.described(producer) for producer in sorted(producers.producer_ids())]
    return partition.last_stable_offset, partition.aborted(0, 1 << 60), described, sorted(producers.last_offsets())


async def busy(held: Held) -> None:
    """Committed, aborted, empty and open transactions, and a producer without."""
    held.put(1, 0, is_transactional=False)
    held.put(7, 0, number=1)
    held.put(8, 0)
    held.end(7, is_commit=False, number=1)
    held.put(7, 1, number=2)
    held.end(9, epoch=3, coordinator_epoch=6)
    held.end(8)
    held.put(8, 0, epoch=1)
    await held.flush()


@pytest.mark.parametrize("manner", ["from the log", "from a checkpoint", "from both", "after a clean stop"])
def test_everything_is_known_again_after_a_restart(manner: str) -> None:
    async def story() -> None:
        held = await led()
        await busy(held)
        if manner == "from both":
            await held.checkpoint()
        held.end(7, is_commit=False, number=2)
        held.put(7, 2)
        await held.flush()
        if manner == "from a checkpoint":
            await held.checkpoint()
        before = known_of(held)
        if manner == "after a clean stop":
            await held.partition.log.close(held.partition.producers.snapshot())
        await held.open(is_clean=manner == "after a clean stop")
        held.lead()
        await held.flush()
        assert known_of(held) == before
        assert held.partition.last_stable_offset == 7, "8 is open since then"
        again = held.end(7, is_commit=False, number=2)
        assert again is not None and again.is_duplicate

    run(story())


def test_a_snapshot_from_before_transactions_is_still_read() -> None:
    known = ProducerStates(10)
    known.replay(read_header(transactional(7, 0, is_transactional=False)), 5)
    old = known.snapshot()
    assert old[:8] == (7).to_bytes(8, "big"), "rows of producers and nothing else, as it has always been"
    restored = ProducerStates(10)
    restored.restore(old)
    assert restored.described(7) == known.described(7)
    assert not restored.transactions and not restored.aborted


def test_a_follower_knows_what_its_leader_knows() -> None:
    async def story() -> None:
        leader, replica = await led(), Held(SimDisk(2))
        await busy(leader)
        await copy(leader, replica)
        replica.partition.learn_watermark(leader.partition.high_watermark)
        assert known_of(replica) == known_of(leader)
        assert replica.partition.last_stable_offset == 4

    run(story())


@pytest.mark.parametrize("end", range(9))
def test_after_a_cut_what_was_cut_does_not_count(end: int) -> None:
    """What is known then is what a log is known for that was never longer."""

    async def story() -> None:
        held, shorter = await led(), Held(SimDisk(2))
        await busy(held)
        held.end(8, epoch=1, is_commit=False)
        await held.flush()
        content = await held.content()
        held.partition.follow(5)
        await held.partition.log.truncate_to(end)
        held.partition.log_was_cut()
        await held.partition.remember_producers(0)
        await shorter.open()
        at = 0
        while at < len(content) and (header := read_header(content, at)).base_offset < end:
            shorter.partition.replicate(content[at : at + header.size], header, 0)
            at += header.size
        shorter.partition.learn_watermark(held.partition.high_watermark)
        assert known_of(held) == known_of(shorter)
        assert held.partition.high_watermark == end

    run(story())


def test_starting_over_forgets_everything() -> None:
    async def story() -> None:
        held = await led()
        await busy(held)
        held.partition.follow(5)
        await held.partition.log.start_over(50)
        held.partition.log_was_cut()
        await held.partition.remember_producers(0)
        assert not held.partition.producers.transactions and not held.partition.producers.aborted
        assert len(held.partition.producers) == 0

    run(story())


# What is forgotten, and when


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    async def story() -> None:
        held = await led(producers_max=3)
        held.put(7, 0)
        for producer in range(20, 26):
            held.put(producer, 0, is_transactional=False)
        assert 7 in list(held.partition.producers.producer_ids()) and len(held.partition.producers) == 3
        assert held.partition.producers.forget_silent_since(held.env.wall + 1) == 2
        assert list(held.partition.producers.producer_ids()) == [7]
        held.end(7)
        assert held.partition.producers.forget_silent_since(held.env.wall + 1) == 1
        assert not held.partition.producers.transactions.by_producer

    run(story())


def test_when_all_producers_have_open_transactions_the_bound_gives_way() -> None:
    async def story() -> None:
        held = await led(producers_max=2)
        for producer in range(4):
            held.put(producer, 0)
        assert len(held.partition.producers) == 4
        for producer in range(4):
            held.end(producer)
        held.put(9, 0)
        assert sorted(held.partition.producers.producer_ids()) == [1, 2, 3, 9], "once they have ended, the longest silent goes"
        assert held.partition.producers.forget_silent_since(held.env.wall + 1) == 3

    run(story())


def test_aborted_transactions_are_forgotten_a_round_after_retention_took_them() -> None:
    async def story() -> None:
        held = await led(config=LogConfig(segment_bytes=4_000, retention_ms=1_000))
        for number in range(1100):
            held.put(7, number)
            held.end(7, is_commit=False)
        await held.flush()
        held.env.wall += 10_000
        plan = held.partition.log.expired(held.env.wall, held.partition.high_watermark)
        await held.checkpoint()
        await held.partition.log.delete_segments(plan)
        start = held.partition.log.start_offset
        assert start > 2 * 1024
        held.partition.forget_old(0)
        assert len(held.partition.producers.aborted) == 1100, "somebody may have bytes in hand"
        held.partition.forget_old(0)
        assert len(held.partition.producers.aborted) < 1100
        assert all(first >= 2 * 1024 for _, first in held.partition.aborted(0, 1 << 60))
        assert len(held.partition.aborted(start, 1 << 60)) >= (held.partition.log.end_offset - start) // 2

    run(story())
