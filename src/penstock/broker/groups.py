"""Consumer groups on this node: their coordinators over `__consumer_offsets`, and how a request gets to one of them.

A group lives with the coordinator of its partition, found by the hash of its name. Requests are put to it as commands and answered as soon
as the core has a reply and the disk has what stands behind it; a join or a sync may be parked with the core for minutes meanwhile.
Not here: what groups do (groups/), what is said on the wire (handlers/).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.broker.askers import Asker, Body, Nobody, WaitingRequest
from penstock.broker.calls import Call
from penstock.broker.coordinator import Coordinator, Kind
from penstock.broker.coordinators import Coordinators
from penstock.broker.group_topics import NodeTopics
from penstock.broker.patience import Patience
from penstock.errors import ErrorCode, Refusal
from penstock.groups import commands, records
from penstock.groups.bounds import DELETED_AT_ONCE, GroupSettings
from penstock.groups.commands import NO_HOLD, Command
from penstock.groups.consumer.matches import PATTERNS_MAX
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.records import NO_TOPIC_ID, Record
from penstock.patterns import pattern_of
from penstock.settings import MIB
from penstock.vocabulary import TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node

CONSUMER_OFFSETS = "__consumer_offsets"
SHARE_OF_MEMORY = 8  # What groups may take: an eighth.
SEGMENT_BYTES = 100 * MIB  # As Kafka's for this topic: compaction and loading go by the segment.
OVERRIDES = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(SEGMENT_BYTES)}

Added = tuple[tuple[TopicId, str, tuple[int, ...]], ...]  # Topic id, topic, partitions.
GroupsPartition = Coordinator[GroupCoordinator, Command, Record]


class Groups(Coordinators[GroupCoordinator, Command, Record]):
    def __init__(self, node: "Node") -> None:
        kind: Kind[GroupCoordinator, Command, Record] = Kind(
            topic=CONSUMER_OFFSETS,
            overrides=OVERRIDES,
            new_state=self._new_state,
            encode=records.encode,
            replay=GroupCoordinator.replay_stored,
            loaded=GroupCoordinator.begin,
            abandoned=commands.Abandoned,
        )
        super().__init__(node, kind, node.settings.offsets_topic_num_partitions)
        self._topics = NodeTopics(node)
        self._deleted: dict[TopicId, str] = {}  # Topics whose offsets are still to be forgotten.

    def _new_state(self) -> GroupCoordinator:
        configs = self._node.shares.configs
        return GroupCoordinator(GroupSettings.of(self._node.settings), self._free_bytes, self._topics, configs.config_of)

    def settings_changed(self) -> None:
        """The node's settings were changed while it runs."""
        settings = GroupSettings.of(self._node.settings)
        for coordinator in self:
            if coordinator.state is not None:
                coordinator.state.settings = settings

    def topics_changed(self) -> None:
        """Topics came, went or grew: groups of the new protocol share them out anew."""
        self._topics.changed()
        for coordinator in self:
            if coordinator.state is not None:
                coordinator.state.topics_changed()

    def topic_deleted(self, topic_id: TopicId, topic: str) -> None:
        """What was committed for it goes too, lest a topic made again under its name is read from the middle."""
        if topic != self.topic:
            self._deleted[topic_id] = topic
        self.topics_changed()

    def is_deleted(self, topic_id: TopicId) -> bool:
        """Whether a topic that a coordinator of this node has recorded is gone. It may not have been able to forget it yet.

        Every leader of a coordinator's log had the topic in its image when it wrote the record, and this node's image, by which it leads
        now, is later: what it lacks was deleted."""
        return topic_id != NO_TOPIC_ID and topic_id not in self._node.image.topics_by_id

    async def flush(self) -> None:
        """Also forgets what was committed for deleted topics, in pieces: there may be many groups that read them."""
        deleted, self._deleted = self._deleted, {}
        patience = Patience(self._node.env)
        for topic_id, topic in deleted.items():
            for coordinator in list(self):
                await self._forget(coordinator, commands.ForgetTopic(token=Nobody(), topic=topic, topic_id=topic_id), patience)
                await self._forget_ledgers(coordinator, topic_id, patience)
        await super().flush()

    async def _forget(self, coordinator: GroupsPartition, all_of_it: commands.ForgetTopic, patience: Patience) -> None:
        piece = replace(all_of_it, offsets_max=DELETED_AT_ONCE)
        while coordinator.state is not None:
            if not coordinator.state.has_offsets_of(piece.topic, piece.topic_id):
                return
            if not coordinator.order(piece):
                break
            await patience.pause_if_over()
        coordinator.order(all_of_it)  # When it is loaded, or there is room.

    async def _forget_ledgers(self, coordinator: GroupsPartition, topic_id: TopicId, patience: Patience) -> None:
        while coordinator.state is None or coordinator.state.has_ledgers_of(topic_id):
            if not coordinator.order(commands.ForgetLedgersOf(token=Nobody(), topic_id=topic_id)):
                return  # This piece is tried again when there is room; whoever loads next looks for himself what is left.
            await patience.pause_if_over()

    async def delete(self, group: str) -> ErrorCode:
        """Deletes a group without members, in pieces; nobody can join it meanwhile. Raises Refusal where no coordinator answers."""
        is_begun, hold = False, NO_HOLD
        while True:
            reply = await self.find(group).ask(partial(_deletion, group, hold))
            code: ErrorCode = reply.error
            if is_begun and code is ErrorCode.GROUP_ID_NOT_FOUND:
                return ErrorCode.NONE  # Somebody else has deleted the rest.
            if code is not ErrorCode.NONE or reply.is_over:
                return code
            is_begun = True
            if reply.ledgers is not None:
                await self._node.shares.forget_all(group, reply.ledgers)
                hold = reply.hold

    def loaded(self, coordinator: GroupsPartition, topics: frozenset[str]) -> None:
        """A topic may have been deleted, and the power gone before its offsets were; or nobody coordinated then. By now there may be
        another of its name."""
        if coordinator.state is not None:
            for topic, topic_id in coordinator.state.committed_topics():
                if topic not in topics or self.is_deleted(topic_id):
                    coordinator.order(commands.ForgetTopic(token=Nobody(), topic=topic, topic_id=topic_id))
            gone = list(filter(self.is_deleted, coordinator.state.ledger_topics()))
            if gone:
                self._node.spawn(self._forget_all_ledgers(coordinator, gone))
            self._node.spawn(self._look_through(coordinator.state.patterns()))

    async def _forget_all_ledgers(self, coordinator: GroupsPartition, topic_ids: Iterable[TopicId]) -> None:
        patience = Patience(self._node.env)
        for topic_id in topic_ids:
            await self._forget_ledgers(coordinator, topic_id, patience)

    async def _look_through(self, patterns: Iterable[str]) -> None:
        """Ahead of the members' heartbeats, which would have to hold all topics against them."""
        patience = Patience(self._node.env)
        for regex in islice(patterns, PATTERNS_MAX):
            await self._topics.look_through(regex, patience)

    def put(
        self, call: Call, group: str, order: Callable[[Asker], Command],
        *, write: Callable[[int, Any], Body], refuse: Callable[[ErrorCode], Any],
        needs_name: bool = True, may_begin: bool = False, pattern: str | None = None,
    ) -> None:  # fmt: skip
        """Has the group's coordinator answer a request. `order` makes the command for the token that it is given.

        `may_begin` is for requests that make a group where there is none. `pattern` is one that it brings: should there be many topics to
        hold against it, the coordinator hears of it when that is done. Later requests of the connection are not held up.
        """
        asker = WaitingRequest(self._node, call, write, refuse)
        if needs_name and not group:
            asker.refused(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
            return
        try:
            coordinator = self.find(group)
        except Refusal as refusal:
            asker.refused(refusal.code, refusal.reason)
            return
        if may_begin and not self.has_room(coordinator.state, group):
            asker.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no room for another group (setting groups.max)")
            return
        if pattern and _is_taken(pattern) and not self._topics.look(pattern):
            asker.park(len(call.frame))
            self._node.spawn(self._submit_later(coordinator, order(asker), asker, pattern))
            return
        asker.abandon = partial(coordinator.abandon, asker)
        coordinator.submit(order(asker), asker)
        asker.park(len(call.frame))

    async def _submit_later(self, coordinator: GroupsPartition, order: Command, asker: WaitingRequest, pattern: str) -> None:
        await self._topics.look_through(pattern, Patience(self._node.env))
        if not asker.is_done:
            asker.abandon = partial(coordinator.abandon, asker)
            coordinator.submit(order, asker)

    def has_room(self, state: GroupCoordinator | None, group: str) -> bool:
        if state is None or state.holds(group):
            return True
        return sum(coordinator.state.size for coordinator in self if coordinator.state is not None) < self._node.settings.groups_max

    def _free_bytes(self) -> int:
        """How much more groups may take: a part of the memory is theirs."""
        held = sum(coordinator.state.held_bytes for coordinator in self if coordinator.state is not None)
        return self._node.settings.memory_bytes_max // SHARE_OF_MEMORY - held

    def new_member_id(self, client_id: str | None, instance_id: str | None) -> str:
        """Kafka's form, which people grep their logs for: who it is, and a UUID."""
        drawn = bytearray(self._node.env.rng.randbytes(16))
        drawn[6], drawn[8] = drawn[6] & 0x0F | 0x40, drawn[8] & 0x3F | 0x80
        text = drawn.hex()
        uuid = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        return f"{instance_id or client_id or 'member'}-{uuid}"


def beginning_ledgers(group: str, added: Added, asker: Asker) -> Command:
    return commands.BeginLedgers(token=asker, group=group, added=added)


def forgetting_ledgers(group: str, asker: Asker) -> Command:
    return commands.ForgetLedgers(token=asker, group=group)


def ending_ledgers(group: str, hold: int, dropped: Iterable[tuple[TopicId, int]], is_over: bool, asker: Asker) -> Command:
    return commands.EndLedgers(token=asker, group=group, hold=hold, dropped=tuple(dropped), is_over=is_over)


def sweeping_ledger(group: str, topic_id: TopicId, partition: int, asker: Asker) -> Command:
    return commands.SweepLedger(token=asker, group=group, topic_id=topic_id, partition=partition)


def _deletion(group: str, hold: int, asker: Asker) -> Command:
    return commands.DeleteGroup(token=asker, group=group, hold=hold)


def _is_taken(pattern: str) -> bool:
    """What is not taken is the coordinator's to refuse."""
    try:
        pattern_of(pattern)
    except Refusal:
        return False
    return True


def all_with(code: ErrorCode, partitions: Iterable[tuple[str, int]]) -> tuple[tuple[str, int, ErrorCode], ...]:
    """Every partition with the same error: nothing asked for goes unanswered."""
    return tuple((topic, partition, code) for topic, partition in partitions)
