"""Transactions in a cluster: whoever falls, an end that was promised reaches every partition, and nothing else does."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from clusters.scene import TOPIC, Scene

from penstock.broker.transactions import TRANSACTION_STATE
from penstock.peers.client import Client
from penstock.peers.stable_offsets import GroupIdentity
from penstock.peers.transactions import TransactionalProducer, TransactionSettings
from penstock.vocabulary import TopicPartition

ID = "mover-1"
ONE = {"transaction_partitions": 1, "offsets_topic_num_partitions": 1}


class Story:
    """A producer that goes on when it is told to."""

    def __init__(self, scene: Scene, tell: "Callable[[Story, TransactionalProducer], Coroutine[Any, Any, None]]", **settings: Any) -> None:
        self._scene = scene
        self._tell = tell
        self._settings = TransactionSettings(ID, **settings)
        self._chapter = self._told = 0
        self.task = scene.begin(self._play)

    async def _play(self, client: Client) -> None:
        async with TransactionalProducer(client, self._settings) as producer:
            await self._tell(self, producer)

    async def turn_page(self) -> None:
        """What comes next waits for the scene."""
        self._told += 1
        while self._chapter < self._told:
            await asyncio.sleep(0.01)

    def come_to(self, chapter: int, within: float = 30.0) -> None:
        self._scene.until(lambda: self._told >= chapter or self.task.done(), within)
        if self.task.done():
            self.task.result()

    def go_on(self) -> None:
        self._chapter += 1

    def to_its_end(self, within: float = 60.0) -> None:
        self._chapter = 1_000
        self._scene.until(self.task.done, within)
        self.task.result()


def coordinator(scene: Scene) -> int:
    return scene.leads(TRANSACTION_STATE)


def committed_end(scene: Scene, partition: int = 0) -> int:
    held = scene.node(scene.leads(TOPIC, partition)).partitions.find(TOPIC, partition)
    assert held is not None
    return held.last_stable_offset


def aborted(scene: Scene, partition: int = 0) -> int:
    held = scene.node(scene.leads(TOPIC, partition)).partitions.find(TOPIC, partition)
    assert held is not None
    return len(held.aborted(0, held.log.end_offset))


async def write_and_commit(story: Story, producer: TransactionalProducer) -> None:
    producer.begin()
    for partition in (0, 1):
        await producer.send(TOPIC, b"v", partition=partition)
    await story.turn_page()
    await producer.commit()


def test_a_coordinator_that_dies_after_its_word_has_a_successor_who_keeps_it():
    with Scene(**ONE) as scene:
        scene.create(partitions=2)
        story = Story(scene, write_and_commit)
        story.come_to(1)
        teller = coordinator(scene)
        others = [node for node in (1, 2, 3) if node != teller]
        scene.lead(others[0])  # The partitions are led by others, who cannot be told.
        scene.cut(teller, *others, ways="both")
        story.go_on()
        scene.run_for(0.2)
        scene.kill(teller)
        scene.heal()
        scene.start(teller)
        scene.until_available()
        story.to_its_end()
        scene.until(lambda: [committed_end(scene, partition) for partition in (0, 1)] == [2, 2])
        assert not aborted(scene) and not aborted(scene, 1)


def test_a_transaction_goes_on_under_the_next_leader_of_its_partition():
    with Scene(**ONE) as scene:
        scene.create(partitions=2)
        story = Story(scene, write_and_commit)
        story.come_to(1)
        assert committed_end(scene) == 0
        fallen = scene.leads(TOPIC, 0)
        scene.kill(fallen)
        scene.until(lambda: scene.leader(TOPIC, 0) not in (None, fallen))
        story.to_its_end()
        scene.start(fallen)
        scene.until_available()
        scene.until(lambda: [committed_end(scene, partition) for partition in (0, 1)] == [2, 2])
        scene.check()


def test_what_nobody_ends_in_time_is_aborted_by_whoever_coordinates_then():
    with Scene(**ONE) as scene:
        scene.create(partitions=2)
        story = Story(scene, write_and_commit, timeout_ms=3_000)
        story.come_to(1)
        teller = coordinator(scene)
        scene.kill(teller)
        scene.until(lambda: scene.leader(TRANSACTION_STATE) not in (None, teller))
        scene.until(lambda: [committed_end(scene, partition) for partition in (0, 1)] == [2, 2])
        assert (aborted(scene), aborted(scene, 1)) == (1, 1)
        story.task.cancel()


def test_offsets_are_committed_with_the_records_wherever_their_coordinator_went():
    async def move(story: Story, producer: TransactionalProducer) -> None:
        producer.begin()
        await producer.send(TOPIC, b"v", partition=0)
        await producer.send_offsets({TopicPartition("in", 0): 42}, GroupIdentity("movers"))
        await story.turn_page()
        await producer.commit()

    with Scene(**ONE) as scene:
        scene.create(partitions=1)
        scene.create("in", partitions=1)
        story = Story(scene, move)
        story.come_to(1)
        fallen = scene.leads("__consumer_offsets")
        scene.kill(fallen)
        scene.until(lambda: scene.leader("__consumer_offsets") not in (None, fallen))
        story.to_its_end()
        scene.start(fallen)
        scene.until_available()
        scene.until(lambda: committed_end(scene) == 2)
        where = TopicPartition("in", 0)
        assert scene.do(lambda client: client.stable_offsets("movers", [where])) == {where: 42}
