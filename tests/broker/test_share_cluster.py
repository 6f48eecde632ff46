"""Share groups in a cluster: members are sent to the leader, locks outlive it, and a coordinator asks leaders elsewhere."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from serving import Line, patient_ms
from serving_cluster import ServingCluster, create
from share_members import ACCEPT, RELEASE, ShareMember, acquired, configure
from waiting import until_async

from penstock.broker.node import Node
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.shares import sweeping
from penstock.errors import ErrorCode
from penstock.wire.api_keys import ApiKey

UVLOOP_TOO = True


async def coordinator(cluster: ServingCluster, group: str = "g") -> Line:
    """A line to the node that coordinates the group."""
    line = await cluster.line(1)
    while True:
        answer = (await line.ask(ApiKey.FIND_COORDINATOR, key_type=0, coordinator_keys=[group])).coordinators[0]
        if answer.error_code == 0:
            return await cluster.line(answer.node_id)


async def settled(ask: Callable[[], Any]) -> Any:
    """The answer, once the coordinator is loaded."""
    while True:
        answer = await ask()
        if answer.error_code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            return answer


async def spread(cluster: ServingCluster) -> Line:
    """Each of the nodes leads a partition of the topic t."""
    line = await cluster.line(1)
    await create(line, "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    for index in range(3):
        await cluster.until(leads(index + 1, "t", index))
    return line


def leads(node: int, topic: str, index: int) -> Callable[[Node], bool]:
    def holds(each: Node) -> bool:
        return topic in each.image.topics and each.image.topics[topic].partitions[index].leader == node

    return holds


async def offsets(line: Line) -> dict[int, tuple[int, int]]:
    answer = (await line.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[{"group_id": "g", "topics": None}])).groups[0]
    assert answer.error_code == 0, answer.error_message
    return {row.partition_index: (row.start_offset, row.lag) for topic in answer.topics for row in topic.partitions}


@pytest.mark.invariant("share.one-holder")
async def test_members_find_the_leader_and_locks_outlive_it() -> None:
    cluster = ServingCluster()
    await cluster.open()
    try:
        first = await cluster.line(1)
        await create(first, "t", (1, 2, 3), (2, 3, 1))
        await configure(first, "g", {"share.auto.offset.reset": "earliest"})
        await cluster.until(leads(1, "t", 0))
        await cluster.until(leads(2, "t", 1))
        topic_id = bytes(cluster.nodes[1].image.topics["t"].topic_id)
        assert (await first.produce("t", b"held", b"released", b"done")).error_code == 0
        home = await coordinator(cluster)
        beat = {"group_id": "g", "member_id": "me", "member_epoch": 0, "subscribed_topic_names": ["t"]}
        assert (await settled(lambda: home.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **beat))).error_code == 0

        astray = ShareMember(await cluster.line(3), topic_id)
        answer = await astray.fetch()
        row = answer.responses[0].partitions[0]
        assert (row.error_code, row.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
        assert 1 in {each.node_id for each in answer.node_endpoints}

        member = ShareMember(await cluster.line(1), topic_id)
        assert sorted(await member.take(wait_ms=patient_ms(5_000))) == [0, 1, 2]
        assert await member.outcomes((2, 2, [ACCEPT])) == ErrorCode.NONE
        await cluster.stop(1)
        await cluster.until(lambda node: node.image.topics["t"].partitions[0].leader in (2, 3))
        leader = int(cluster.nodes[2].image.topics["t"].partitions[0].leader)
        other, again = ShareMember(await cluster.line(leader), topic_id, "other"), ShareMember(await cluster.line(leader), topic_id)
        assert await other.take(wait_ms=300) == {}, "what is lent is lent still"
        assert await again.take() == {}
        assert await again.take({0: [(0, 0, [ACCEPT]), (1, 1, [RELEASE])]}) == {1: (b"released", 2)}
    finally:
        await cluster.close()


async def test_a_coordinator_asks_the_leaders_of_ledgers_wherever_they_are() -> None:
    cluster = ServingCluster()
    await cluster.open()
    try:
        line = await cluster.line(1)
        await create(line, "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
        await configure(line, "g", {"share.auto.offset.reset": "earliest"})
        for index in range(3):
            await cluster.until(leads(index + 1, "t", index))
        topic_id = bytes(cluster.nodes[1].image.topics["t"].topic_id)
        home = await coordinator(cluster)
        beat = {"group_id": "g", "member_id": "me"}
        joined = await settled(lambda: home.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, member_epoch=0, subscribed_topic_names=["t"], **beat))
        assert joined.error_code == 0
        for index in range(3):
            at = await cluster.line(index + 1)
            assert (await at.produce("t", b"a", b"b", partition=index)).error_code == 0
            member = ShareMember(at, topic_id, partitions=(index,))
            found = acquired((await member.fetch(wait_ms=patient_ms(5_000))).responses[0].partitions[0])
            assert sorted(found) == [0, 1]
            answer = await member.acknowledge({index: [(0, 0, [ACCEPT])]})
            assert answer.responses[0].partitions[0].error_code == 0
        assert await offsets(home) == {index: (1, 1) for index in range(3)}
        await home.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, member_epoch=-1, **beat)
        starts = [{"partition_index": index, "start_offset": 0} for index in range(3)]
        altered = await home.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=[{"topic_name": "t", "partitions": starts}])
        assert [row.error_code for row in altered.responses[0].partitions] == [0, 0, 0]
        assert await offsets(home) == {index: (0, 2) for index in range(3)}
        assert (await home.ask(ApiKey.DELETE_GROUPS, groups_names=["g"])).results[0].error_code == 0
        for index in range(3):
            queue = cluster.nodes[index + 1].ledgers.find(cluster.nodes[1].image.topics["t"].topic_id, index)
            assert queue is not None
            assert not queue.state.has("g")
    finally:
        await cluster.close()


async def test_a_leader_asks_the_coordinator_wherever_it_is_and_waits_for_one_that_moves() -> None:
    cluster = ServingCluster()
    await cluster.open()
    try:
        line = await spread(cluster)
        topic_id = bytes(cluster.nodes[1].image.topics["t"].topic_id)
        home = await coordinator(cluster)
        for index in range(3):
            stranger = ShareMember(await cluster.line(index + 1), topic_id, partitions=(index,))
            row = (await stranger.fetch()).responses[0].partitions[0]
            assert (row.error_code, row.partition_index) == (ErrorCode.UNKNOWN_SERVER_ERROR, index)
        assert cluster.nodes[1].image.companion_of(cluster.nodes[1].image.topics["t"].topic_id) is None
        beat = {"group_id": "g", "member_id": "me", "member_epoch": 0, "subscribed_topic_names": ["t"]}
        assert (await settled(lambda: home.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **beat))).error_code == 0
        was = int((await line.ask(ApiKey.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"])).coordinators[0].node_id)
        here = next(node for node in (1, 2, 3) if node != was)
        member = ShareMember(await cluster.line(here), topic_id, partitions=(here - 1,))
        await cluster.stop(was)
        answer = await member.fetch(wait_ms=500)
        while [row for topic in answer.responses for row in topic.partitions if row.error_code]:
            (code,) = {row.error_code for topic in answer.responses for row in topic.partitions}
            assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it may pass, and is told so"
            answer = await member.fetch(wait_ms=500)
        queue = cluster.nodes[here].ledgers.find(cluster.nodes[here].image.topics["t"].topic_id, here - 1)
        assert queue is not None
        assert queue.state.has("g")
    finally:
        await cluster.close()


async def _is_swept(node: Node, queue: QueuePartition, group: str) -> bool:
    """In a round of its own: a round apart, the sweep of another leader is over."""
    await node.shares.sweeping.look()
    return not queue.state.has(group)


@pytest.mark.virtual_time("each leader is kept waiting for some seconds by the sweep of the one before")
async def test_leaders_sweep_ledgers_of_groups_that_other_nodes_know_nothing_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "SUSPECTED_SECONDS", 0.0)
    cluster = ServingCluster()
    await cluster.open()
    try:
        await spread(cluster)
        home = await coordinator(cluster)
        beat = {"group_id": "g", "member_id": "me", "member_epoch": 0, "subscribed_topic_names": ["t"]}
        assert (await settled(lambda: home.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **beat))).error_code == 0
        topic_id = cluster.nodes[1].image.topics["t"].topic_id
        for index in range(3):
            for group in ("g", "lost"):
                await cluster.nodes[1].shares.start(topic_id, index, group, 0)
        for number in (1, 2, 3):
            node = cluster.nodes[number]
            queue = node.ledgers.find(topic_id, number - 1)
            assert queue is not None
            await until_async(partial(_is_swept, node, queue, "lost"), every_s=0.5)
            assert queue.state.has("g")
    finally:
        await cluster.close()
