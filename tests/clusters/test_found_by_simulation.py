"""What worlds of whole clusters have found, each as the shortest story that shows it."""

import pytest
from clusters.scene import CLIENT, Scene

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.connection import Address
from penstock.simulator.clusters.menu import KAFKA_PORT
from penstock.simulator.workloads.line import Line
from penstock.wire.api_keys import ApiKey

pytestmark = pytest.mark.timeout(300)


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
