"""What worlds of whole clusters have found, each as the shortest story that shows it."""

import gc

from clusters.scene import BOTH, CLIENT, Scene
from clusters.test_queues import QUEUE, at, made

from penstock.broker.shares.acknowledging import AcknowledgeType, Acknowledging
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.connection import Address
from penstock.simulator.clusters.menu import KAFKA_PORT
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.env import SimEnv
from penstock.simulator.workloads.line import Line
from penstock.wire.api_keys import ApiKey


def test_a_topic_that_is_new_can_be_deleted_at_a_node_that_has_not_heard_of_it():
    """The node said that there is no such topic, though the controller knew it (seed 7)."""
    with Scene() as cluster:
        decides = cluster.controller()
        other = next(node for node in (1, 2, 3) if node != decides)
        cluster.world.network.stall(cluster.host(decides), cluster.host(other), 0.4)

        async def create_and_delete(client: Client) -> int:
            there = await Line.open(cluster.notebook, CLIENT, address=Address(cluster.host(decides), KAFKA_PORT))
            wish = {"name": "new", "num_partitions": 1, "replication_factor": 1}
            made = (await there.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [wish], "timeout_ms": 5_000})).topics[0]
            assert made.error_code == ErrorCode.NONE
            here = await Line.open(cluster.notebook, CLIENT, timeout_seconds=10.0, address=Address(cluster.host(other), KAFKA_PORT))
            body = {"topics": [{"name": None, "topic_id": made.topic_id.bytes}], "timeout_ms": 5_000}
            return int((await here.ask(ApiKey.DELETE_TOPICS, 6, body)).responses[0].error_code)

        assert cluster.do(create_and_delete) == ErrorCode.NONE


def test_a_follower_that_asks_again_during_a_cold_read_hears_of_what_was_read():
    """What was read for its last question was noted as told, and told to nobody: of an idle partition it never heard more (seed 286)."""
    with Scene((BOTH, "broker")) as cluster:
        cluster.create(replicas=2, min_insync_replicas=1)
        cluster.lead(1)
        cluster.kill(2)
        cluster.until(lambda: cluster.in_sync() == {1})
        cluster.produce(b"while it was away")
        disk = cluster.world.hosts[cluster.host(1)].disk
        disk.faults = DiskFaults(cold_read=1.0, read_seconds_min=1.0, read_seconds_max=1.0)
        before = disk.fired["cold read"]
        cluster.start(2)
        cluster.until(lambda: disk.fired["cold read"] > before)
        cluster.create("others", partitions=4, replicas=2)  # Of which the follower asks at once.
        cluster.until(lambda: cluster.in_sync() == {1, 2})


def test_a_refusal_of_acknowledgements_whose_member_is_gone_is_no_complaint():
    """Nobody waited for it, and asyncio complained of that (seed 600364). The scene looks for complaints at its end."""
    with Scene((BOTH,)) as cluster:
        made(cluster, replicas=1)
        node = cluster.node(1)
        ledger = node.ledgers.find(node.image.topics[QUEUE].topic_id, 0)
        assert ledger is not None
        at(cluster, 1, lambda queues: queues.delete(QUEUE))

        async def acknowledge_and_leave(env: SimEnv) -> None:
            Acknowledging(ledger, "group", "member", [(0, 0, (AcknowledgeType.ACCEPT,))], 1_000)

        cluster.world.call(cluster.host(1), acknowledge_and_leave)
        gc.collect()
