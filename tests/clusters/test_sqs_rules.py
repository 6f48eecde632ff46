"""The SQS door in a cluster: no node loses what another one sets, and all of them know of purges and deletions."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from clusters.scene import Scene

from penstock.http.sqs import attribute_calls, labels, making
from penstock.http.sqs.actions import Do
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.errors import PURGE_QUEUE_IN_PROGRESS, QUEUE_DELETED_RECENTLY, SqsError

pytestmark = pytest.mark.invariant("queues.concurrent-settings-merge")

URL = "http://localhost/000000000000/jobs"


@pytest.fixture
def cluster() -> Iterator[Scene]:
    with Scene() as scene:
        act(scene, 1, making.create_queue, QueueName="jobs", Attributes={"penstock.replicas": "3"})
        scene.until_available()
        yield scene


def desk_of(cluster: Scene, node: int) -> Desk:
    return Desk(cluster.node(node).queues, cluster.node(node).env)


def act(cluster: Scene, node: int, action: Do, **body: Any) -> dict[str, Any]:
    return cluster.world.call(cluster.host(node), lambda env: action(desk_of(cluster, node), Call({"QueueUrl": URL, **body})), 30.0)


def test_what_two_nodes_set_at_once_is_all_set(cluster: Scene) -> None:
    async def all_at_once() -> None:
        desks = [desk_of(cluster, node) for node in (1, 2, 3)]
        tags = [
            labels.tag_queue(desk, Call({"QueueUrl": URL, "Tags": {f"{number}-{at}": "x"}}))
            for at, desk in enumerate(desks)
            for number in range(5)
        ]
        policies = [
            labels.add_permission(
                desk, Call({"QueueUrl": URL, "Label": f"label-{at}", "AWSAccountIds": ["111111111111"], "Actions": ["*"]})
            )
            for at, desk in enumerate(desks)
        ]
        sizes = attribute_calls.set_queue_attributes(desks[0], Call({"QueueUrl": URL, "Attributes": {"MaximumMessageSize": "2048"}}))
        await asyncio.gather(*tags, *policies, sizes)

    cluster.world.call(cluster.host(1), lambda env: all_at_once(), 60.0)
    for node in (1, 2, 3):
        queue = desk_of(cluster, node).find("jobs")
        assert sorted(queue.tags) == sorted(f"{number}-{at}" for number in range(5) for at in range(3))
        assert [f'"label-{at}"' in queue.attributes["Policy"] for at in range(3)] == [True] * 3
        assert queue.attributes["MaximumMessageSize"] == "2048"


def test_every_node_knows_of_a_purge(cluster: Scene) -> None:
    act(cluster, 1, making.purge_queue)
    leader = cluster.leads("jobs")
    cluster.kill(leader)
    cluster.until(lambda: cluster.leader("jobs") not in (None, leader))
    other = next(node for node in (1, 2, 3) if node != leader)
    with pytest.raises(SqsError, match="every 60 seconds") as refused:
        act(cluster, other, making.purge_queue)
    assert refused.value.kind == PURGE_QUEUE_IN_PROGRESS
    cluster.run_for(60.0)
    act(cluster, other, making.purge_queue)


def test_every_node_knows_of_a_deletion(cluster: Scene) -> None:
    act(cluster, 1, making.delete_queue)
    cluster.run_for(1.0)
    for node in (1, 2, 3):
        with pytest.raises(SqsError) as refused:
            act(cluster, node, making.create_queue, QueueName="jobs")
        assert refused.value.kind == QUEUE_DELETED_RECENTLY
    cluster.run_for(60.0)
    act(cluster, 2, making.create_queue, QueueName="jobs")


def test_a_node_that_starts_takes_no_old_deletion_for_a_recent_one(cluster: Scene) -> None:
    act(cluster, 1, making.delete_queue)
    cluster.run_for(60.0)
    cluster.kill(2)
    cluster.start(2)
    cluster.until_available()
    act(cluster, 2, making.create_queue, QueueName="jobs")
