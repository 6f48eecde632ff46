"""The follower machine with the real log on both sides: what compaction, retention and other leaders left, copied and cut."""

import pytest
from log.bench import run
from log.compacting import Keyed

from penstock.errors import ErrorCode
from penstock.log.faults import OffsetOutOfRange
from penstock.partition.follower import Append, Fetched, Follower, RaiseStart, StartOver, Truncate, Wait, diverging_at
from penstock.simulator.disk import SimDisk
from penstock.simulator.platter import Loss

EPOCH = 9


async def answer_of(leader: Keyed, offset: int, last_epoch: int, bytes_max: int) -> Fetched:
    log = leader.log
    diverging = diverging_at(log, offset, last_epoch)
    if diverging is not None:
        return Fetched(ErrorCode.NONE, log.end_offset, log.start_offset, diverging, b"")
    try:
        records = await log.read_later(offset, bytes_max=bytes_max, end_offset=log.end_offset)
    except OffsetOutOfRange:
        return Fetched(ErrorCode.OFFSET_OUT_OF_RANGE, log.end_offset, log.start_offset, None, b"")
    return Fetched(ErrorCode.NONE, log.end_offset, log.start_offset, None, records)


async def catch_up(replica: Keyed, leader: Keyed, *, bytes_max: int = 300) -> list[str]:
    """Follows until there is nothing more to fetch. A cut takes a turn of its own, as in a node."""
    log, follower, done = replica.log, Follower(EPOCH, replica.log, replica.log.start_offset), []
    for _ in range(500):
        asked = follower.next_fetch()
        answer = await answer_of(leader, asked.offset, asked.last_epoch, bytes_max)
        for step in follower.answered(asked, answer):
            done.append(type(step).__name__)
            match step:
                case Append(batches):
                    for content, header in batches:
                        log.append(content, header)
                case Truncate(offset, _):
                    await log.truncate_to(offset)
                    break
                case StartOver(offset):
                    await log.start_over(offset)
                    break
                case RaiseStart(offset):
                    log.raise_start(offset)
                case Wait(reason):
                    raise AssertionError(reason)
        if log.end_offset == leader.log.end_offset and follower.is_agreed:
            return done
    raise AssertionError(f"it never catches up: {done[-10:]}")


async def pair() -> tuple[Keyed, Keyed]:
    leader, replica = Keyed(SimDisk(1)), Keyed(SimDisk(2))
    await leader.open()
    await replica.open()
    return leader, replica


def write(bench: Keyed, count: int, epoch: int, *, keys: int = 3) -> None:
    for number in range(count):
        bench.put((b"key-%d" % (number % keys), b"%d in %d." % (number, epoch) * 8), epoch=epoch)


@pytest.mark.parametrize("bytes_max", [1, 300, 100_000])
def test_a_compacted_log_is_copied_with_its_gaps_and_the_copy_is_dense(bytes_max: int) -> None:
    async def story() -> None:
        leader, replica = await pair()
        write(leader, 30, 1)
        write(leader, 30, 2)
        await leader.compact()
        write(leader, 5, 4)
        await catch_up(replica, leader, bytes_max=bytes_max)
        assert await replica.records() == await leader.records()
        await replica.log.flush()
        assert isinstance(replica.disk, SimDisk)
        replica.disk.power_cut(Loss.ALL)
        await replica.open()
        assert replica.log.failure is None, "what stands for the gaps is as good as any batch"
        assert await replica.records() == await leader.records()
        replica.ledger = leader.ledger
        await replica.compact()
        await replica.check()

    run(story())


def test_a_replica_that_was_ahead_under_another_leader_is_cut_where_the_two_part() -> None:
    async def story() -> None:
        leader, replica = await pair()
        write(leader, 20, 1)
        await catch_up(replica, leader)
        write(replica, 7, 2)
        write(leader, 3, 3)
        done = await catch_up(replica, leader)
        assert done[0] == "Truncate"
        assert await replica.records() == await leader.records()
        assert list(replica.log.epochs) == list(leader.log.epochs)

    run(story())


@pytest.mark.parametrize("start", [10, 12])
def test_a_new_replica_begins_where_the_leader_does_also_inside_of_a_batch(start: int) -> None:
    async def story() -> None:
        leader, replica = await pair()
        for _ in range(4):
            leader.put(*((b"key-%d" % number, b"value") for number in range(5)), epoch=1)
        leader.log.raise_start(start)
        done = await catch_up(replica, leader)
        assert done[0] == "StartOver"
        assert (replica.log.start_offset, replica.log.end_offset) == (start, 20)
        assert [record.offset for record in await replica.records()] == [record.offset for record in await leader.records()]

    run(story())


def test_a_replica_of_which_the_leader_has_forgotten_everything_begins_anew() -> None:
    async def story() -> None:
        leader, replica = await pair()
        write(leader, 20, 1)
        await catch_up(replica, leader)
        write(leader, 40, 1)
        leader.log.raise_start(50)
        assert (await catch_up(replica, leader))[0] == "StartOver"
        assert (replica.log.start_offset, replica.log.end_offset) == (50, 60)

    run(story())
