"""The client on the simulator's loop: broken links and dying nodes cost time, never a record, and a seed tells it all again."""

import asyncio
from dataclasses import dataclass, field

import pytest
from tiers import pick

from penstock.broker.node import Node
from penstock.peers.client import Client
from penstock.peers.connection import Address
from penstock.peers.positions import FROM_EARLIEST
from penstock.peers.producer import Producer, ProducerSettings
from penstock.peers.reader import Reader, ReaderSettings
from penstock.peers.routing import ClientSettings
from penstock.settings import NodeSettings
from penstock.simulator.env import SimEnv
from penstock.simulator.links import LinkQuality
from penstock.simulator.world import World
from penstock.vocabulary import TopicPartition

RECORDS = 120
PARTITIONS = 3
PATIENT = ClientSettings(request_timeout_s=3.0, deadline_s=300.0)


async def serve(env: SimEnv) -> None:
    node = Node(env, NodeSettings())
    await node.start()
    await node.listen_kafka("node", 9092)
    await asyncio.sleep(1e9)


@dataclass
class Story:
    """What a client did, and what it saw."""

    delivered: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    seen: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    followed: list[tuple[int, int, bytes | None]] = field(default_factory=list)

    async def write(self, env: SimEnv) -> None:
        async with Client(env, [Address("node", 9092)], settings=PATIENT) as client:
            await client.create_topic("orders", partitions=PARTITIONS)
            async with Producer(client, ProducerSettings(delivery_s=300.0, batch_bytes_max=200)) as producer:
                pending = []
                for number in range(RECORDS):
                    value = b"%d" % number
                    pending.append((value, await producer.send("orders", value, key=b"k%d" % (number % 7))))
                    await asyncio.sleep(0.05)
                await producer.flush()
                for value, future in pending:
                    where = future.result()
                    self.delivered[value] = (where.partition, where.offset)
            starts = {TopicPartition("orders", partition): FROM_EARLIEST for partition in range(PARTITIONS)}
            async with Reader(client, starts, ReaderSettings(patience_s=300.0)) as reader:
                self.seen = [(record.partition, record.offset, record.value) async for record in reader]

    async def follow(self, env: SimEnv) -> None:
        async with Client(env, [Address("node", 9092)], settings=PATIENT) as client:
            await client.partition_count("orders")
            starts = {TopicPartition("orders", partition): FROM_EARLIEST for partition in range(PARTITIONS)}
            async with Reader(client, starts, ReaderSettings(is_following=True, patience_s=300.0)) as reader:
                while len(self.followed) < RECORDS:
                    self.followed += [(record.partition, record.offset, record.value) for record in await reader.read()]


def live_through(seed: int, trouble) -> tuple[Story, str]:
    story = Story()
    with World(seed, link_quality=LinkQuality(split=0.2)) as world:
        world.start("node", serve)
        world.run_for(1)
        world.start("writer", story.write)
        world.run_for(0.5)
        world.start("follower", story.follow)
        trouble(world)
        world.run_until(lambda: world.has_ended("writer") and world.has_ended("follower"), within=900)
        assert world.hosts["writer"].endings == ["returned"]
        assert world.hosts["follower"].endings == ["returned"]
        assert world.complaints() == []
        return story, world.trace_hash()


def no_trouble(world: World) -> None: ...


def resets(world: World) -> None:
    for step in range(20):
        world.at(0.3 * step, lambda: world.network.reset_one("node"))


def breaking_links(world: World) -> None:
    world.network.shape(LinkQuality(reset=0.05, split=0.3))
    world.at(20.0, lambda: world.network.shape(LinkQuality()))


def power_cuts(world: World) -> None:
    for step in range(4):
        world.at(1.0 + 1.5 * step, lambda: world.power_cut("node"))
        world.at(1.7 + 1.5 * step, lambda: world.start("node", serve))


def one_way_cuts(world: World) -> None:
    """Questions arrive and answers do not, for longer than a question may take."""
    world.at(1.0, lambda: world.network.cut("node", "writer"))
    world.at(6.0, lambda: world.network.mend("node", "writer"))
    world.at(8.0, lambda: world.network.cut("writer", "node"))
    world.at(12.0, lambda: world.network.mend("writer", "node"))


def a_stopped_node(world: World) -> None:
    world.at(1.0, lambda: world.pause("node"))
    world.at(9.0, lambda: world.resume("node"))


@pytest.mark.repeats
@pytest.mark.parametrize("trouble", [no_trouble, resets, breaking_links, power_cuts, one_way_cuts, a_stopped_node])
@pytest.mark.parametrize("seed", range(pick(test=1, slow=4)))
def test_every_record_is_stored_once_in_order_and_read_back(trouble, seed: int):
    story, _ = live_through(seed, trouble)
    assert len(story.delivered) == RECORDS
    assert sorted(story.seen) == sorted((partition, offset, value) for value, (partition, offset) in story.delivered.items())
    assert sorted(story.followed) == sorted(story.seen)
    for records in (story.seen, story.followed):
        for partition in range(PARTITIONS):
            rows = [(offset, int(value or b"-1")) for where, offset, value in records if where == partition]
            assert [offset for offset, _ in rows] == list(range(len(rows)))
            assert [number for _, number in rows] == sorted(number for _, number in rows), "in the order of sending"


def test_the_same_seed_tells_the_same_story():
    first = live_through(7, breaking_links)
    assert live_through(7, breaking_links) == first
    assert live_through(8, breaking_links)[1] != first[1]
