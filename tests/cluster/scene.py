"""A controller with nodes, and what must hold after every command: told once, here, for all tests of this room."""

from copy import deepcopy

from penstock.cluster import commands, records, replies
from penstock.cluster.commands import (
    ChangeInSync,
    Command,
    CreateTopics,
    ElectionKind,
    ElectLeaders,
    FenceNode,
    InSyncWish,
    NewTopic,
    Reassignment,
    ReassignPartitions,
    RegisterNode,
    ReportDisk,
    StopNode,
    UnfenceNode,
)
from penstock.cluster.controller import Controller
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.cluster.records import BROKER, CONTROLLER
from penstock.cluster.replies import Reply
from penstock.errors import ErrorCode, Refusal
from penstock.settings import TopicConfig
from penstock.vocabulary import LeaderEpoch, NodeId, TopicId

BOTH = (BROKER, CONTROLLER)
ABSOLUTE = (
    records.ClusterFormed, records.NodeRegistered, records.NodeFenced, records.NodeUnfenced, records.NodeStopping, records.NodeUnregistered,
    records.PartitionsChanged, records.TopicConfigured, records.NodeConfigured, records.TopicBuried, records.ProducerBlockTaken,
    records.FlushPromised, records.NodeDiskReported,
)  # fmt: skip


def topic_id(n: int) -> TopicId:
    return TopicId(n.to_bytes(16, "big"))


def code_of(reply: Reply) -> ErrorCode:
    return reply.code if isinstance(reply, Refusal | replies.NotElected) else ErrorCode.NONE


class Scene:
    def __init__(self, nodes: int = 3, *, racks: tuple[str | None, ...] = (), partitions_max: int = 100, is_hasty: bool = False) -> None:
        """`is_hasty`: commands and records don't travel, and nobody looks whether deciding changes anything: ten times faster."""
        self._is_hasty = is_hasty
        self.controller = Controller(ClusterImage(), TopicConfig(), 3, partitions_max)
        for n in range(1, nodes + 1):
            self.come_up(n, rack=racks[n - 1] if racks else None)

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    # Asking

    def submit(self, command: Command) -> tuple[Reply, ...]:
        """Decides and replays. Deciding changes nothing, and all of it can travel and be stored."""
        if self._is_hasty:
            return self._submit_hastily(command)
        before = deepcopy(self.image)
        decision = self.controller.decide(commands.decode(commands.encode(command)))
        assert self.image == before, "deciding changes nothing"
        for record in decision.records:
            self.replay(record)
        back = replies.decode(replies.encode(decision.replies))
        assert [str(reply) for reply in back] == [str(reply) for reply in decision.replies]
        return back

    def _submit_hastily(self, command: Command) -> tuple[Reply, ...]:
        decision = self.controller.decide(command)
        for record in decision.records:
            self.image.replay(record)
        return decision.replies

    def replay(self, record: records.Record) -> None:
        """Twice, where the record tells a whole state: it must not matter."""
        read = records.decode(records.encode(record))
        assert read == record
        self.image.replay(read)
        if isinstance(record, ABSOLUTE):
            once = deepcopy(self.image)
            self.image.replay(read)
            assert self.image == once, "a whole state may be replayed twice"

    def ask(self, command: Command) -> Reply:
        (reply,) = self.submit(command)
        return reply

    def refuses(self, command: Command) -> Refusal:
        """The refusal of a command that must leave everything as it is."""
        version = self.image.version
        reply = self.ask(command)
        assert isinstance(reply, Refusal), reply
        assert self.image.version == version, "what is refused stores nothing"
        return reply

    # Nodes

    def register(
        self, n: int, *, directory: str = "", was_stopped_cleanly: bool = True, rack: str | None = None, roles: tuple[str, ...] = BOTH,
        flush_defaults: dict[str, str] | None = None,
    ) -> RegisterNode:  # fmt: skip
        return RegisterNode(
            NodeId(n), "cluster", directory or f"directory-{n}", f"host-{n}", 9092, was_stopped_cleanly, f"peer-{n}", 9093, roles, rack,
            flush_defaults,
        )  # fmt: skip

    def come_up(
        self, n: int, *, directory: str = "", was_stopped_cleanly: bool = True, rack: str | None = None, roles: tuple[str, ...] = BOTH,
        flush_defaults: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Registers and is let in."""
        wish = self.register(
            n, directory=directory, was_stopped_cleanly=was_stopped_cleanly, rack=rack, roles=roles, flush_defaults=flush_defaults
        )  # fmt: skip
        assert code_of(self.ask(wish)) is ErrorCode.NONE
        self.unfence(n)

    def epoch(self, n: int) -> int:
        return self.image.nodes[NodeId(n)].node_epoch

    def unfence(self, n: int) -> Reply:
        return self.ask(UnfenceNode(NodeId(n), self.epoch(n)))

    def fence(self, *nodes: int) -> None:
        for n in nodes:
            assert code_of(self.ask(FenceNode(NodeId(n), self.epoch(n)))) is ErrorCode.NONE

    def stop(self, n: int) -> Reply:
        return self.ask(StopNode(NodeId(n), self.epoch(n)))

    def report_disk(self, n: int, *, is_full: bool = True) -> Reply:
        return self.ask(ReportDisk(NodeId(n), self.epoch(n), is_full))

    # Partitions

    def create(self, name: str = "t", *replicas: int, **overrides: str) -> None:
        """One partition on these nodes, all of them in sync."""
        told = {setting.replace("_", "."): value for setting, value in overrides.items()}
        number = len(self.image.topics) + len(self.image.graveyard) + 1
        wish = NewTopic(name, topic_id(number), -1, overrides=told, assignments=((0, replicas),))
        assert code_of(self.ask(CreateTopics((wish,)))) is ErrorCode.NONE

    def partition(self, name: str = "t", index: int = 0) -> PartitionState:
        return self.image.topics[name].partitions[index]

    def wish(self, *members: int, name: str = "t", **instead: int) -> InSyncWish:
        state = self.partition(name)
        epochs = tuple((NodeId(n), instead.get(f"epoch_of_{n}", self.epoch(n) if n in self.image.nodes else 1)) for n in members)
        leader_epoch = LeaderEpoch(instead.get("leader_epoch", state.leader_epoch))
        partition_epoch = instead.get("partition_epoch", state.partition_epoch)
        return InSyncWish(self.image.topics[name].topic_id, instead.get("index", 0), leader_epoch, partition_epoch, epochs)

    def in_sync_wish(self, *members: int, name: str = "t", asker: int | None = None, **instead: int) -> ChangeInSync:
        leader = self.partition(name).leader if asker is None else NodeId(asker)
        return ChangeInSync(leader, instead.pop("asker_epoch", self.epoch(leader)), (self.wish(*members, name=name, **instead),))

    def set_in_sync(self, *members: int, name: str = "t") -> None:
        """The leader's wish."""
        reply = self.ask(self.in_sync_wish(*members, name=name))
        assert isinstance(reply, records.PartitionChange), reply

    def elect(self, kind: ElectionKind, name: str = "t", index: int = 0) -> Reply:
        return self.ask(ElectLeaders(kind, ((name, index),)))

    def reassign(self, *replicas: int, name: str = "t") -> Reply:
        return self.ask(ReassignPartitions((Reassignment(name, 0, tuple(NodeId(n) for n in replicas) or None),)))

    def shape(self, name: str = "t") -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """(leader, in_sync, eligible)"""
        state = self.partition(name)
        return state.leader, state.in_sync, state.eligible
