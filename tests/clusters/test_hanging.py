"""Which transactions hang: told only where every coordinator can be asked, whoever of them is down, and of no transaction that lives."""

import pytest
from clusters.scene import TOPIC, Scene
from clusters.test_transactions import Story, committed_end, coordinator

from penstock.broker.transactions import TRANSACTION_STATE
from penstock.peers.client import Client
from penstock.peers.hanging_transactions import CannotTell, Hanging, hanging
from penstock.peers.transaction_admin import describe_producers, write_abort_marker
from penstock.peers.transactions import TransactionalProducer
from penstock.simulator.env import SimEnv
from penstock.vocabulary import TopicPartition
from penstock.wire.batches import Record, encode_batch, read_header

WHERE = TopicPartition(TOPIC, 0)
ONE = {"transaction_partitions": 1, "offsets_topic_num_partitions": 1}


async def look(client: Client) -> list[Hanging]:
    deadline = client.router.deadline(None)
    return await hanging(client.router, await describe_producers(client.router, WHERE, deadline), deadline)


def forge(scene: Scene, producer_id: int = 4711) -> None:
    """A record of a transaction that no coordinator has heard of."""
    records = [Record(value=b"forged", timestamp_ms=1)]
    batch = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)

    async def append(env: SimEnv) -> None:
        node = scene.node(scene.leads())
        partition = node.partitions.find(*WHERE)
        assert partition is not None
        partition.append(batch, 1, partition.guard(read_header(batch), is_v2=False))  # As if the coordinator had been asked.
        node.appended(partition)

    scene.world.call(scene.host(scene.leads()), append)


async def write_flush_and_commit(story: Story, producer: TransactionalProducer) -> None:
    producer.begin()
    for partition in (0, 1):
        await producer.send(TOPIC, b"v", partition=partition)
    await producer.flush()
    await story.turn_page()
    await producer.commit()


@pytest.mark.invariant("transactions.hanging-only-if-certain")
def test_what_a_coordinator_that_is_down_may_know_is_not_told_to_hang() -> None:
    with Scene(transaction_replication_factor=1, **ONE) as scene:
        scene.create(partitions=2)
        story = Story(scene, write_flush_and_commit)
        story.come_to(1)
        fallen = coordinator(scene)
        scene.kill(fallen)
        scene.until(lambda: scene.leader(TRANSACTION_STATE) is None and scene.leader() not in (None, fallen))
        with pytest.raises(CannotTell, match="nobody leads partition 0 of __transaction_state"):
            scene.do(look)
        scene.start(fallen)
        scene.until_available()
        assert scene.do(look) == []
        story.to_its_end()
        scene.until(lambda: [committed_end(scene, partition) for partition in (0, 1)] == [2, 2])


def test_what_hangs_is_found_and_ended_whoever_coordinates_now() -> None:
    with Scene(**ONE) as scene:
        scene.create(partitions=2)
        Story(scene, write_flush_and_commit).to_its_end()
        scene.until(lambda: committed_end(scene) == 2)
        forge(scene)
        looking = scene.begin(look)
        scene.run_for(0.5)  # The first look is over: nobody knows of it.
        fallen = coordinator(scene)
        scene.kill(fallen)
        scene.until(looking.done)
        scene.start(fallen)
        scene.until_available()
        (found,) = scene.do(look)
        assert (found.producer.producer_id, found.producer.where, found.transactional_id) == (4711, WHERE, None)
        scene.do(lambda client: write_abort_marker(client.router, found.producer, client.router.deadline(None)))
        scene.until(lambda: committed_end(scene) == 4)
        assert scene.do(look) == []
