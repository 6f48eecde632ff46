"""Share fetches where something fails: a partition cannot be read, a ledger is away, a log takes nothing, a client goes.

What was taken and could not be sent was no delivery; no partition holds up another; and nobody comes again without having waited.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from broker.test_share_ledgers import served
from members import coordinated
from serving import Door, Line, Serving, SimDoorDisk
from share_members import ACCEPT, ShareMember, acquired, known, opened
from waiting import until_async

from penstock.broker.queues.leading import QueuePartition
from penstock.broker.shares.gathering import LEFT_ALONE_SECONDS
from penstock.env import File
from penstock.errors import DiskFailed, DiskFull, ErrorCode
from penstock.vocabulary import Buffer, TopicId

VIRTUAL_TIME = True

pytestmark = pytest.mark.invariant("share.unsent-records-return")

NOTHING = "/nothing"
Rows = dict[int, tuple[int, dict[int, tuple[bytes, int]]]]


class Faults:
    """What is wrong with the disk, by a part of the path."""

    def __init__(self) -> None:
        self.unreadable = self.full = self.slow = NOTHING
        self.failure: Exception = DiskFailed("a sector cannot be read")
        self.slow_reads = Door()


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    faults, append, read_later = Faults(), SimDoorDisk.append, SimDoorDisk.read_later

    def append_unless_full(disk: SimDoorDisk, file: File, chunks: Sequence[Buffer]) -> None:
        if faults.full in file.path:
            raise DiskFull("there is no room")
        append(disk, file, chunks)

    async def read_if_readable(disk: SimDoorDisk, file: File, position: int, size: int) -> bytes:
        if faults.slow in file.path:
            await faults.slow_reads.pass_through()
        if faults.unreadable in file.path:
            raise faults.failure
        return await read_later(disk, file, position, size)

    monkeypatch.setattr(SimDoorDisk, "append", append_unless_full)
    monkeypatch.setattr(SimDoorDisk, "read_later", read_if_readable)
    return faults


def ledger(serving: Serving, topic_id: bytes, index: int = 0) -> QueuePartition:
    queue = serving.node.ledgers.find(TopicId(topic_id), index)
    assert queue is not None
    return queue


def path_of(topic_id: bytes, index: int) -> str:
    return f"/{topic_id.hex()}/{index}/"


async def begun(serving: Serving, partitions: int = 1) -> tuple[Line, bytes, ShareMember]:
    """A member that has begun on all partitions of a topic."""
    line, topic_id = await opened(serving, partitions=partitions)
    member = ShareMember(await serving.line(), topic_id, partitions=range(partitions))
    await member.take()
    return line, topic_id, member


def rows_of(answer: Any) -> Rows:
    """By partition, the error and what was acquired."""
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return {row.partition_index: (row.error_code, acquired(row)) for topic in answer.responses for row in topic.partitions}


async def fetches_in(seconds: float, member: ShareMember, **said: Any) -> tuple[int, Any]:
    """How many fetches a member makes that comes again at once, a hundredth of a second away, and the last answer."""
    loop, count, answer = asyncio.get_running_loop(), 0, None
    ends = loop.time() + seconds
    while loop.time() < ends:
        answer = await member.fetch(**said)
        count += 1
        await asyncio.sleep(0.01)
    return count, answer


# Taken and not sent


async def test_a_partition_that_cannot_be_read_says_so_and_the_others_are_sent(serving: Serving, faults: Faults) -> None:
    line, topic_id, member = await begun(serving, 3)
    for each in range(3):
        await line.produce("t", b"%d" % each, partition=each)
    serving.env.disk.is_cold, faults.unreadable = True, path_of(topic_id, 1)
    found = rows_of(await member.fetch())
    assert found == {0: (0, {0: (b"0", 1)}), 1: (ErrorCode.KAFKA_STORAGE_ERROR, {}), 2: (0, {0: (b"2", 1)})}
    faults.unreadable = NOTHING
    assert rows_of(await member.fetch(wait_ms=8_000)) == {1: (ErrorCode.KAFKA_STORAGE_ERROR, {})}, "it is left alone for a moment"
    assert rows_of(await member.fetch(wait_ms=8_000)) == {1: (0, {0: (b"1", 1)})}, "nobody has seen it before"


async def test_the_only_partition_of_a_session_says_that_it_cannot_be_read(serving: Serving, faults: Faults) -> None:
    line, topic_id, member = await begun(serving)
    await line.produce("t", b"a", b"b")
    assert sorted(await member.take(records_max=1)) == [0]
    queue = ledger(serving, topic_id)
    queue.stored.let_go()
    serving.env.disk.is_cold, faults.unreadable = True, path_of(topic_id, 0)
    row = (await member.fetch({0: [(0, 0, [ACCEPT])]})).responses[0].partitions[0]
    assert (row.error_code, row.acknowledge_error_code) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE), "what it said was done"
    faults.unreadable = NOTHING
    await asyncio.sleep(0.6)
    assert await member.take(wait_ms=8_000) == {1: (b"b", 1)}


@pytest.mark.parametrize("is_defect", [pytest.param(True, marks=pytest.mark.expects_failure), False])
async def test_what_was_read_before_a_fetch_came_to_nothing_goes_back(serving: Serving, faults: Faults, is_defect: bool) -> None:
    line, topic_id, member = await begun(serving, 2)
    other = ShareMember(line, topic_id, "other", partitions=(0, 1))
    await other.take()
    for each in range(2):
        await line.produce("t", b"%d" % each, partition=each)
    serving.env.disk.is_cold, faults.slow = True, path_of(topic_id, _later_one(member))
    faults.slow_reads.hold()
    member.send()
    await faults.slow_reads.until_waited_for()
    gone = await _go_on_elsewhere(serving, member)
    if is_defect:
        faults.unreadable, faults.failure = faults.slow, RuntimeError("a defect")
        faults.slow_reads.let_go()
    else:
        gone.close()
    await until_async(lambda: all(ledger(serving, topic_id, each).state.ledgers["g"].leased == 0 for each in range(2)))
    faults.unreadable = NOTHING
    faults.slow_reads.let_go()
    found: Rows = {}
    while len(found) < 2:
        found |= rows_of(await other.fetch(wait_ms=1_000))
    assert found == {0: (0, {0: (b"0", 1)}), 1: (0, {0: (b"1", 1)})}, "these are first deliveries"


def _later_one(member: ShareMember) -> int:
    """Which of two partitions the member's next fetch reads second: they take turns."""
    return (member.epoch + 1) % 2


async def _go_on_elsewhere(serving: Serving, member: ShareMember) -> Line:
    """The member's session goes on by another connection: it outlives the one on which its fetch is under way, which is returned."""
    line, member.line = member.line, await serving.line()
    member.epoch += 1
    assert (await member.acknowledge({})).error_code == ErrorCode.NONE
    return line


async def test_an_answer_that_was_never_written_was_no_delivery(serving: Serving) -> None:
    line, topic_id, member = await begun(serving)
    idle_id = await line.create("idle", 1)
    await known(line, "idle")
    await line.produce("t", b"a")
    before = ShareMember(member.line, idle_id, "before")
    await before.take()
    before.send(wait_ms=8_000)  # Answers leave in the order of the requests: the other one's has to wait.
    member.send()
    await until_async(lambda: ledger(serving, topic_id).state.ledgers["g"].leased == 1)
    assert await member.line.is_silent()
    (await _go_on_elsewhere(serving, member)).close()
    other = ShareMember(line, topic_id, "other")
    assert await other.take(wait_ms=8_000) == {0: (b"a", 1)}


# A ledger that is away


async def test_a_ledger_that_does_not_answer_holds_up_no_other_partition(serving: Serving) -> None:
    line, topic_id, member = await begun(serving, 4)
    for each in range(4):
        await line.produce("t", b"%d" % each, partition=each)
    for each in (1, 2):
        ledger(serving, topic_id, each).coordinator.log_failed("its disk failed")
    began = asyncio.get_running_loop().time()
    found = rows_of(await member.fetch())
    assert {each: found[each] for each in (0, 3)} == {0: (0, {0: (b"0", 1)}), 3: (0, {0: (b"3", 1)})}
    member.send(wait_ms=60_000)
    assert await member.line.is_silent()
    await line.produce("t", b"come", partition=3)
    assert rows_of(await member.receive())[3] == (0, {1: (b"come", 1)})
    assert asyncio.get_running_loop().time() - began < 3.0
    told: Rows = {}
    while len(told) < 2:
        told |= rows_of(await member.fetch(wait_ms=60_000))
    assert told == dict.fromkeys((1, 2), (ErrorCode.NOT_LEADER_OR_FOLLOWER, {})), "in the end it is said that they could not be opened"
    assert asyncio.get_running_loop().time() - began < 9.0, "they are waited for side by side"


async def test_a_fetch_waits_once_where_no_ledger_answers(serving: Serving) -> None:
    _, topic_id, member = await begun(serving, 3)
    for each in range(3):
        ledger(serving, topic_id, each).coordinator.log_failed("its disk failed")
    began = asyncio.get_running_loop().time()
    found = rows_of(await member.fetch())
    assert found == dict.fromkeys(range(3), (ErrorCode.NOT_LEADER_OR_FOLLOWER, {}))
    assert 4.0 < asyncio.get_running_loop().time() - began < 7.0


async def test_a_partition_that_is_opened_meanwhile_joins_those_that_are_waited_for(serving: Serving) -> None:
    line, _, member = await begun(serving, 1)
    late_id = await line.create("late", 1)
    await known(line, "late")
    serving.env.disk.flushes.hold()
    member.send(wait_ms=8_000, topics=[{"topic_id": late_id, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}])
    await serving.env.disk.flushes.until_waited_for()
    serving.env.disk.flushes.let_go()
    await until_async(lambda: (queue := serving.node.shares.find(TopicId(late_id), 0)) is not None and queue.state.has("g"))
    await line.produce("late", b"come")
    answer = await member.receive()
    assert (bytes(answer.responses[0].topic_id.bytes), rows_of(answer)) == (late_id, {0: (0, {0: (b"come", 1)})})


# A log that takes nothing


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("acknowledges", [True, False])
async def test_nobody_spins_while_a_ledgers_log_takes_nothing(
    serving: Serving, faults: Faults, partitions: int, acknowledges: bool
) -> None:
    line, topic_id, member = await begun(serving, partitions)
    for each in range(partitions):
        await line.produce("t", b"a", b"b", b"c", partition=each)
    assert (await member.fetch(records_max=partitions)).error_code == ErrorCode.NONE
    faults.full = f"/{ledger(serving, topic_id).companion.topic_id.hex()}/"
    acks = {0: [(0, 0, [ACCEPT])]} if acknowledges else None
    count, answer = await fetches_in(1.2, member, acks=acks, wait_ms=500)
    assert count <= 4
    rows = [row for topic in answer.responses for row in topic.partitions]
    assert [row.error_code for row in rows] == [ErrorCode.KAFKA_STORAGE_ERROR] * partitions
    if acknowledges:
        assert {row.acknowledge_error_code for row in rows if row.partition_index == 0} == {ErrorCode.KAFKA_STORAGE_ERROR}
    faults.full = NOTHING
    found: dict[int, tuple[bytes, int]] = {}
    while not found:
        found = rows_of(await member.fetch(wait_ms=500)).get(0, (0, {}))[1]
    assert found == {1: (b"b", 1), 2: (b"c", 1)}


@pytest.mark.parametrize("partitions", [1, 2])
async def test_nobody_spins_while_nothing_is_committed(serving: Serving, partitions: int) -> None:
    line, topic_id, member = await begun(serving, partitions)
    await line.produce("t", *(b"%d" % each for each in range(100)), partition=0)
    serving.env.disk.flushes.hold()
    assert rows_of(await member.fetch(records_max=1)) == {0: (ErrorCode.KAFKA_STORAGE_ERROR, {})}, "it was not durable in time"
    assert ledger(serving, topic_id).coordinator.is_stuck
    count, answer = await fetches_in(1.2, member, records_max=1, wait_ms=500)
    assert (count <= 4, rows_of(answer)) == (True, {0: (ErrorCode.KAFKA_STORAGE_ERROR, {})})
    serving.env.disk.flushes.let_go()


@pytest.mark.parametrize("partitions", [1, 2])
async def test_little_is_written_for_a_partition_that_cannot_be_read(serving: Serving, faults: Faults, partitions: int) -> None:
    line, topic_id, member = await begun(serving, partitions)
    await line.produce("t", b"a", partition=0)
    serving.env.disk.is_cold, faults.unreadable = True, path_of(topic_id, 0)
    log = ledger(serving, topic_id).companion.log
    before = log.end_offset
    count, answer = await fetches_in(1.2, member)
    assert rows_of(answer) == {0: (ErrorCode.KAFKA_STORAGE_ERROR, {})}
    assert log.end_offset - before <= 8 < count, "though this member does not wait"
    assert (await fetches_in(1.2, member, wait_ms=500))[0] <= 4


async def test_a_partition_that_is_not_there_is_told_after_a_moment(serving: Serving) -> None:
    _, topic_id, member = await begun(serving, 2)
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await member.fetch(
        wait_ms=60_000, topics=[{"topic_id": topic_id, "partitions": [{"partition_index": 7, "acknowledgement_batches": []}]}]
    )
    assert rows_of(answer) == {7: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {})}
    assert 0.3 < loop.time() - began < 5.0


async def test_a_member_that_asks_again_at_once_is_kept_waiting_for_all_partitions_together(serving: Serving) -> None:
    line, topic_id = await opened(serving, partitions=8, is_known=False)
    await coordinated(line)
    stranger = ShareMember(await serving.line(), topic_id, partitions=range(8))
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(3):
        answer = await stranger.fetch(wait_ms=5_000)
        assert [row.error_code for row in answer.responses[0].partitions] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 8
    assert 2 * LEFT_ALONE_SECONDS <= loop.time() - began < 8 * LEFT_ALONE_SECONDS
    await known(line, "t")
    await served(stranger)
