"""Group commit: one round at a time over all who want one, and nobody's trouble is another's."""

import asyncio

import pytest
from serving import Line, Serving, batch, produce_body, started, virtual_timeout, virtually
from waiting import until_async

from penstock.errors import require
from penstock.partition.partition import Partition
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True


async def test_one_round_covers_all_who_came_during_the_one_before(serving: Serving) -> None:
    node = await serving.open()
    lines = [await serving.line() for _ in range(8)]
    await lines[0].create("a", 8)
    await lines[0].produce("a", b"first")
    serving.env.disk.flushes.hold()
    lines[0].send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"x")}}))
    await serving.env.disk.flushes.until_waited_for()
    rounds_before = node.flusher.rounds_done
    for place, line in enumerate(lines[1:], 1):
        for _ in range(10):
            line.send(ApiKey.PRODUCE, **produce_body({"a": {place: batch(b"x")}}))
    await until_async(lambda: node.metrics.batches_in == 72)
    serving.env.disk.flushes.let_go()
    await lines[0].receive()
    for line in lines[1:]:
        for _ in range(10):
            assert (await line.receive()).responses[0].partition_responses[0].error_code == 0
    assert node.flusher.rounds_done - rounds_before == 2


class Troublemaker:
    """A watcher that fails, as code with a defect would."""

    def __init__(self, *, breaks_promises: bool = False) -> None:
        self._breaks_promises = breaks_promises

    def advanced(self, partition: Partition, grown_bytes: int) -> None:
        require(not self._breaks_promises, "a watcher keeps its word")
        raise RuntimeError("a defect")


@pytest.mark.expects_failure
async def test_a_defect_in_one_partitions_audience_is_not_anothers_trouble(serving: Serving) -> None:
    node = await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a", 2)
    partition = node.partitions.find("a", 0)
    assert partition is not None
    partition.watchers[Troublemaker()] = None
    serving.env.disk.flushes.hold()
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"x")}}))
    other.send(ApiKey.PRODUCE, **produce_body({"a": {1: batch(b"x")}}))
    await until_async(lambda: node.metrics.batches_in == 2)
    serving.env.disk.flushes.let_go()
    assert (await other.receive()).responses[0].partition_responses[0].error_code == 0
    assert (await other.produce("a", b"y", partition=1)).error_code == 0
    async with virtual_timeout(5):
        await serving.stop()


@pytest.mark.expects_failure
async def test_a_broken_promise_during_a_round_ends_the_node(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    partition = node.partitions.find("a", 0)
    assert partition is not None
    partition.watchers[Troublemaker(breaks_promises=True)] = None
    line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"x")}}))
    async with virtual_timeout(5):
        assert "keeps its word" in await node.stopped
        await serving.stop()


class Unwritable:
    """A connection that cannot be written to."""

    is_closed = False

    def send_ready(self) -> None:
        raise RuntimeError("a defect")

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.expects_failure
async def test_a_reply_that_cannot_be_written_keeps_no_other_from_leaving(serving: Serving) -> None:
    node = await serving.open()
    lines = [await serving.line() for _ in range(3)]
    await lines[0].create("a")
    serving.env.disk.flushes.hold()
    for line in lines:
        line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"x")}}))
    await until_async(lambda: node.metrics.batches_in == 3)
    unwritable = Unwritable()
    node.send_soon(unwritable)  # type: ignore[arg-type]
    for connection in node.connections:
        node.send_soon(connection)
    serving.env.disk.flushes.let_go()
    for line in lines:
        assert (await line.receive()).responses[0].partition_responses[0].error_code == 0
    assert unwritable.is_closed


def test_many_deadlines_make_few_rounds_and_none_is_missed() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env)
        world.hosts["node"].disk.faults = DiskFaults(sync_seconds_min=0.001, sync_seconds_max=0.001)
        line = await Line.open(address)
        await line.create("a", 100, flush="interval", flush_ms=500)
        rounds_before = node.flusher.rounds_done
        began = env.now()
        for number in range(300):
            await line.produce("a", b"x", partition=number % 100)
            await asyncio.sleep(0.01)
            for partition in node.partitions:
                appended_at = began + 0.01 * (partition.log.flushed_end * 100 + partition.index)
                is_late = partition.log.flushed_end < partition.log.end_offset and env.now() - appended_at > 1.0
                assert not is_late
        rounds = node.flusher.rounds_done - rounds_before
        assert rounds < 40 * (env.now() - began)

    virtually(scenario)
