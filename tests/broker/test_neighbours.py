"""A node among others, from the first moment on."""

import asyncio

from links.scene import ONE, TWO, Party, introduction

from penstock.broker.node import Node
from penstock.consensus.messages import Knock
from penstock.consensus.nouns import Replica, Term
from penstock.links.calls import Heartbeat, write_heartbeat
from penstock.links.failures import NotUnderstood
from penstock.links.kinds import Kind
from penstock.links.raft_messages import write_message
from penstock.settings import NodeSettings
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.vocabulary import Address, Offset

SECRET = b"what only these two know"
VOTERS = "1@node-1:9093,2@node-2:9093"
CLUSTER = "cluster-of-tests"


def test_what_others_say_before_a_node_has_its_quorum_is_not_heard_and_breaks_nothing() -> None:
    """It listens before it has read what it knows: the others may call in between."""
    stages: list[str] = []

    async def wait_between(env: SimEnv) -> None:
        node = Node(env, NodeSettings(node_id=1, quorum_voters=VOTERS, cluster_id=CLUSTER), secret=SECRET)
        await node.listen_peers("node-1", 9093, advertised=Address("node-1", 9093))
        stages.append("listens")
        await asyncio.sleep(5)
        await node.start()

    async def call_early(env: SimEnv) -> None:
        me = introduction(TWO, cluster=CLUSTER)
        party = Party(env, me, {ONE: Address("node-1", 9093)}, secret=SECRET)
        party.links.tell(ONE, Kind.RAFT, write_message(Knock(Replica(TWO, me.directory_id), Term(1))))
        party.links.tell(ONE, Kind.LISTENS_AT, b"9093 node-2")
        for kind in (Kind.HEARTBEAT, Kind.SUBMIT, Kind.DESCRIBE_QUORUM, Kind.CHANGE_VOTERS, Kind.REPLICA_FETCH):
            try:
                await party.links.ask(ONE, kind, write_heartbeat(Heartbeat(1, Offset(0), True, False)), timeout_s=1)
            except NotUnderstood:
                stages.append(kind.name)
        assert party.lost == []
        stages.append("still linked")

    with World(1) as world:
        world.start("node-1", wait_between)
        world.run_until(lambda: bool(stages), within=5)
        world.start("node-2", call_early)
        world.run_until(lambda: world.has_ended("node-2"), within=10)
        assert world.hosts["node-2"].endings == ["returned"]
        assert stages == ["listens", "HEARTBEAT", "SUBMIT", "DESCRIBE_QUORUM", "CHANGE_VOTERS", "REPLICA_FETCH", "still linked"]
        assert world.complaints() == []
