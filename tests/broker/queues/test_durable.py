"""Senders that wait until what they sent is durable: those whose time is up are forgotten, and ask again as if they were the first."""

import pytest
from serving import Line, batch, produce_body, started, virtually

from penstock.broker.queues.calls import QueueRefusal
from penstock.broker.queues.durable import Durable
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey


def test_a_sender_that_asks_again_after_its_time_was_up_still_hears_when_it_is_durable() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env)
        line = await Line.open(address)
        await line.create("a")
        world.hosts["node"].disk.faults = DiskFaults(sync_seconds_min=60, sync_seconds_max=60)
        partition = node.partitions.find("a", 0)
        assert partition is not None and partition.leader is not None
        durable = Durable(env, partition)
        for attempt in range(5):
            line.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"x")}}, timeout_ms=1_000))
            await line.receive()
            heard = durable.awaited(partition.log.end_offset)
            assert heard is not None
            with pytest.raises(QueueRefusal):
                await heard
            assert partition.leader.parked_count <= 1, f"after {attempt + 1} attempts"
        again = durable.awaited(1)  # The first of them, which lies before the others.
        assert again is not None
        await again
        assert partition.high_watermark == 1

    virtually(scenario)
