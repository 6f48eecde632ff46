"""The real controller on a metadata log that is always right: what is decided is committed, and reaches every node in order, in time.

What consensus may do to it is left to its own simulator; here it can be away for a while, and then it knows nobody's session any more.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.cluster import records
from penstock.cluster.commands import Command, RegisterNode, UnfenceNode
from penstock.cluster.controller import Controller
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.cluster.replies import Reply
from penstock.cluster.sessions import Sessions
from penstock.settings import TopicConfig
from penstock.vocabulary import LeaderEpoch, NodeId, TopicId

if TYPE_CHECKING:
    from penstock.simulator.replicas.node import SimNode
    from penstock.simulator.replicas.world import World

CONTROLLER = NodeId(0)  # Where it is, for links.
TOPIC, TOPIC_ID = "t", TopicId(bytes(15) + b"\x07")
CLUSTER = "cluster"
LOOK_SECONDS = 0.03

Replying = Callable[[tuple[Reply, ...], int], None]  # With how much of the log the asker must know before it goes by the replies.


class SimController:
    def __init__(self, world: "World") -> None:
        plan = world.plan
        self._world = world
        self.log: list[records.Record] = []
        self.image = ClusterImage()
        self.core = Controller(self.image, TopicConfig(), 1, 100, gives_leadership_back=False)
        self.sessions = Sessions(plan.session_seconds)
        self.is_away = False
        self._has_begun = False

    @property
    def partition(self) -> PartitionState:
        return self.image.topics_by_id[TOPIC_ID].partitions[0]

    def found(self, nodes: "list[SimNode]") -> None:
        """The cluster before the story begins: everybody registered and in sync."""
        plan = self._world.plan
        for node in nodes:
            self._decide(RegisterNode(node.node_id, CLUSTER, node.directory, "h", 1, was_stopped_cleanly=True))
            self._decide(UnfenceNode(node.node_id, 1))
            self.sessions.heard(node.node_id, 1, self._world.now)
        replicas = tuple(node.node_id for node in nodes[: plan.replicas])
        overrides = {"min.insync.replicas": str(plan.min_insync), "flush": "ack" if plan.flushes_before_ack else "os"}
        placed = records.Placement(replicas, replicas, replicas[0], LeaderEpoch(0))
        self._commit([records.TopicCreated(TOPIC, TOPIC_ID, (placed,), overrides)])
        self._has_begun = True
        self._world.after(LOOK_SECONDS, self._look)

    # What nodes ask

    def asked(self, command: Command, reply: Replying) -> None:
        if not self.is_away:
            reply(self._decide(command), len(self.log))

    def heard(self, node: NodeId, node_epoch: int, applied: int) -> None:
        """A heartbeat; who knows of its own registration is let in again."""
        if self.is_away or not self.sessions.heard(node, node_epoch, self._world.now):
            return
        known = self.image.nodes[node]
        is_kept_out = known.node_epoch == node_epoch and known.is_fenced and not known.is_stopping
        if is_kept_out and applied >= self._registered_at(node, node_epoch):
            self._decide(UnfenceNode(node, node_epoch))

    def lost_contact(self, node: NodeId) -> None:
        self.sessions.lost_contact(node, self._world.now)

    def order(self, command: Command) -> tuple[Reply, ...]:
        """An operator's, at the controller itself."""
        return () if self.is_away else self._decide(command)

    # Its own life

    def go_away(self, seconds: float) -> None:
        if not self.is_away:
            self.is_away = True
            self._world.after(seconds, self._come_back)

    def _come_back(self) -> None:
        self.is_away = False
        self.sessions.begin(self._world.now, {node.node_id: node.node_epoch for node in self.image.nodes.values() if not node.is_fenced})

    def _look(self) -> None:
        self._world.after(LOOK_SECONDS, self._look)
        if not self.is_away:
            for command in self.core.owed(self._world.now, self.sessions):
                self._decide(command)
            for node in self.sessions.expired(self._world.now):
                self.sessions.forget(node)

    def _decide(self, command: Command) -> tuple[Reply, ...]:
        decision = self.core.decide(command)
        self._commit(decision.records)
        return decision.replies

    def _commit(self, made: "list[records.Record] | tuple[records.Record, ...]") -> None:
        for record in made:
            self.image.replay(record)
            self.log.append(record)
        if made and self._has_begun:
            for node in self._world.nodes.values():
                node.hears_of_metadata()
            leader = self._world.nodes.get(self.partition.leader)
            if leader is not None:
                self._world.moment("after decision", leader)

    def _registered_at(self, node: NodeId, node_epoch: int) -> int:
        for index in range(len(self.log) - 1, -1, -1):
            record = self.log[index]
            if isinstance(record, records.NodeRegistered) and (record.node_id, record.node_epoch) == (node, node_epoch):
                return index + 1
        return 0
