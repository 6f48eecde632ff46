"""The consumer groups of one partition of `__consumer_offsets`: commands in, records and replies out.

Three things stand side by side. The *image* is what is recorded; only `replay` changes it. The *sessions* are what may be forgotten
(members' time-outs, parked joins, rebalances under way); `decide` and `lapse` note things there. A *decision* is what they return.

Rules for the one who runs it:
- Loading: `replay` (or `replay_stored`, which is faster) every record, or the last of each key in any order; then `begin`.
- After that, every decision is carried out before the next is asked for: its records are stored and replayed, then its replies may leave.
- A decision whose records cannot be stored is dropped whole: its tokens are answered with an error and nothing is replayed. The sessions
  stand it: what would have become true has not, clients ask again, and a group that would have become empty says so again by itself.
- `lapse` is called when `due` says so; it does a bounded piece, after which `due` may well be in the past.
Not here: disks, tokens of the outer world, clocks. Members' subscriptions and assignments are passed on as they came.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import assert_never

from penstock.errors import ErrorCode, require
from penstock.groups import commands, committing, joining, leaving, pending, phases, syncing
from penstock.groups.bounds import GROUPS_MAX, GROUPS_PER_LAPSE, SLICE_PAUSE_MS, GroupSettings
from penstock.groups.consumer import coordinating
from penstock.groups.consumer import leaving as consumer_leaving
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.records import ConsumerRecord
from penstock.groups.consumer.topics import Topics
from penstock.groups.consumer.views import ConsumerGroupView, as_classic, described
from penstock.groups.draft import Decision, Draft, Sessions
from penstock.groups.expiry import Sweep
from penstock.groups.group import Group, subscription
from penstock.groups.guards import Guard
from penstock.groups.image import Committed, GroupsImage
from penstock.groups.records import NO_TOPIC_ID, GroupDeleted, GroupSaved, Record
from penstock.groups.replies import JoinReply, LedgerWord
from penstock.groups.share import coordinating as sharing
from penstock.groups.share import leaving as share_leaving
from penstock.groups.share.changing import groups_with, held_at, word_of
from penstock.groups.share.records import ShareRecord
from penstock.groups.share.views import ShareGroupView
from penstock.groups.share.views import as_classic as share_as_classic
from penstock.groups.share.views import described as share_described
from penstock.groups.states import GroupState
from penstock.groups.views import CONSUMER, SHARE, GroupListed, GroupView, MemberView, OffsetView, OpenTransaction
from penstock.settings import LONG_MAX, GroupConfig
from penstock.vocabulary import Instant, ProducerId, TopicId


class GroupCoordinator:
    def __init__(
        self, settings: GroupSettings, free_bytes: Callable[[], int] = lambda: LONG_MAX, topics: Topics | None = None,
        configs: Callable[[str], GroupConfig] | None = None,
    ) -> None:  # fmt: skip
        """`free_bytes` tells how much more memory all groups of the node may take, beside what they take now (`held_bytes`).

        `topics` are those that there are; whenever that view shows something else, `topics_changed` says so. `configs` tells what holds for
        a group of the new protocol or a share group; without it, what the settings have for all of them."""
        self.settings = settings
        self._free_bytes = free_bytes
        self._image = GroupsImage()
        self._sessions = Sessions(configs=configs or (lambda _: self.settings.of_all_groups))
        if topics is not None:
            self._sessions.topics.view = topics
        self._now = Instant(0)  # Of the last decision.
        self._began: Instant | None = None  # When loading ended: sessions of loaded members count from here.
        self._sweep: Sweep | None = None
        self._sweep_due: Instant | None = None

    # Loading

    def replay(self, record: Record) -> None:
        """What a record says is so. It never refuses."""
        self._image.replay(record)
        if self._began is None:
            return
        if isinstance(record, GroupSaved):
            group = self._sessions.groups.get(record.group)
            if group is not None:
                group.adopt(record)
                self._tidy(record.group)
            elif _lacks_leader(record):
                self._sessions.groups[record.group] = Group.loaded(record, self._now)
                self._sessions.alarms.set_by(record.group, self._now)
        elif isinstance(record, GroupDeleted):
            self._tidy(record.group)
        elif isinstance(record, ConsumerRecord):
            coordinating.replayed(record, self._sessions)
        elif isinstance(record, ShareRecord):
            sharing.replayed(record, self._sessions)

    def replay_stored(self, key: bytes, value: bytes | None) -> None:
        """The same for a record as it lies in the log, while loading."""
        require(self._began is None, "stored records are replayed while loading")
        self._image.replay_stored(key, value)

    def begin(self, now: Instant) -> None:
        """Loading is over: everybody who was a member gets a full session from now."""
        self._began = now
        self._sweep_due = Instant(now + self.settings.expiry_check_ms / 1000)
        for saved in self._image.saved.values():
            if saved.members:
                shortest_ms = min(member.session_timeout_ms for member in saved.members)
                self._sessions.alarms.set_by(saved.group, now if _lacks_leader(saved) else Instant(now + shortest_ms / 1000))
        coordinating.begin(self._image, self._sessions, now)
        sharing.begin(self._image, self._sessions, now)

    def snapshot(self) -> list[Record]:
        """Records that replay into what is recorded now, one for each key."""
        return [record for piece in self.snapshot_pieces() for record in piece]

    def snapshot_pieces(self) -> Iterator[list[Record]]:
        """The same in pieces, between which other records may be replayed: those belong behind the snapshot."""
        return self._image.snapshot_pieces()

    # Deciding

    def decide(self, command: commands.Command, now: Instant, wall_ms: int) -> Decision:
        draft = self._draft(now, wall_ms)
        if sharing.decide(command, draft) or coordinating.decide(command, draft):
            return draft.decision()
        if isinstance(command, commands.EndPending | commands.ForgetTopic | commands.Abandoned):
            self._decide_over_groups(command, draft)
            return draft.decision()
        match command:
            case commands.Heartbeat():
                syncing.heartbeat(self._open(command.group), command, draft)
            case commands.CommitOffsets():
                committing.commit(self._open(command.group), command, draft)
            case commands.CommitPending():
                pending.commit_pending(self._open(command.group), command, draft)
            case commands.JoinGroup():
                self._join(command, draft)
            case commands.SyncGroup():
                syncing.sync(self._open(command.group), command, draft)
            case commands.LeaveGroup():
                leaving.leave(self._open(command.group), command, draft)
            case commands.DeleteOffsets():
                committing.delete_offsets(self._open(command.group), command, self._image, draft)
            case commands.DeleteGroup():
                committing.delete_group(self._open(command.group), command, self._image, draft)
            case (
                commands.ConsumerHeartbeat() | commands.ShareHeartbeat() | commands.ForgetLedgersOf() | commands.SweepLedger()
                | commands.BeginLedgers() | commands.ForgetLedgers() | commands.EndLedgers()
            ):  # fmt: skip
                return draft.decision()  # Decided above, as is all that concerns groups of the new protocol and share groups.
            case _:
                assert_never(command)
        self._tidy(command.group)
        return draft.decision()

    def topics_changed(self) -> None:
        """Topics came, went or grew: groups of the new protocol look at them when a member is heard of next."""
        self._sessions.topics.changed()

    def patterns(self) -> Iterator[str]:
        """By which members read topics, group after group. Groups may come and go meanwhile."""
        groups = self._image.consumers.groups
        for name in list(groups):
            if name in groups:
                yield from dict.fromkeys([member.regex for member in groups[name].members.values() if member.regex])

    # Transactions

    def guard(self, producer_id: ProducerId) -> Guard:
        """To be taken before somebody is asked whether a transaction of this producer is open, and shown with its offsets."""
        return self._sessions.guards.take(producer_id)

    def needs_verification(self, producer_id: ProducerId, producer_epoch: int) -> bool:
        """Whether somebody must be asked before offsets of this producer are taken. If not, neither guard nor number is needed."""
        return not pending.is_open(self._sessions, self._image.pending, producer_id, producer_epoch)

    def open_transactions(self) -> list[OpenTransaction]:
        """Those that have offsets pending here."""
        return [OpenTransaction.of(list(held.values())) for held in self._image.pending.producers()]

    def epoch_pending(self, producer_id: ProducerId) -> int | None:
        """Of the producer whose offsets are pending here; None where none are."""
        held = self._image.pending.of_producer(producer_id)
        return next(iter(held.values())).producer_epoch if held else None

    def due(self) -> Instant | None:
        """When `lapse` has something to do, at the earliest. None before `begin`."""
        alarm = self._sessions.alarms.next()
        if alarm is None or self._sweep_due is None:
            return self._sweep_due
        return min(alarm, self._sweep_due)

    def lapse(self, now: Instant, wall_ms: int) -> Decision:
        """What the passing of time causes: sessions, joins and syncs end, old offsets go."""
        draft = self._draft(now, wall_ms)
        # A group that sets its alarm for now comes again after this decision is replayed: before that it would decide by what was.
        for name in self._rung(now):
            self._lapse_group(name, draft)
        if self._sweep_due is not None and self._sweep_due <= now:
            self._sweep_on(draft)
        return draft.decision()

    def _rung(self, now: Instant) -> list[str]:
        rung: list[str] = []
        while len(rung) < GROUPS_PER_LAPSE and (name := self._sessions.alarms.ring(now)) is not None:
            rung.append(name)
        return rung

    # Reading

    def committed_topics(self) -> list[tuple[str, TopicId]]:
        pending = ((each.topic, each.topic_id) for each in self._image.pending.everything())
        return list(dict.fromkeys(chain(self._image.committed_topics(), pending)))

    def has_offsets_of(self, topic: str, topic_id: TopicId = NO_TOPIC_ID) -> bool:
        pending = self._image.pending.for_topic(topic, (topic_id, NO_TOPIC_ID))
        return next(chain(self._image.committed_for(topic, topic_id), pending), None) is not None

    def holds(self, name: str) -> bool:
        """Whether there is such a group, or somebody about to join it."""
        return name in self._sessions.groups or self._image.holds(name)

    @property
    def size(self) -> int:
        """How many groups there are, about: those that only commit, those without offsets and those still forming are not added up."""
        image = self._image
        classic = max(len(image.saved), len(image.offsets), len(image.pending.groups), len(self._sessions.groups))
        return len(image.consumers.groups) + len(image.shares.groups) + classic

    @property
    def held_bytes(self) -> int:
        """What all groups take in memory, about: what members say and are given, committed offsets and what was noted with them."""
        image = self._image
        kinds = image.consumers.held_bytes + image.shares.held_bytes
        return image.held_bytes + kinds + image.pending.held_bytes + self._sessions.held_bytes

    def groups(self) -> list[GroupListed]:
        """Every group, those that only commit offsets too."""
        image = self._image
        names = dict.fromkeys(chain(image.saved, image.offsets, image.pending.groups, self._sessions.groups, image.consumers.groups))
        return [*map(self._listed, names), *(GroupListed(name, group.state, SHARE, SHARE) for name, group in image.shares.groups.items())]

    def describe_consumer(self, name: str) -> ConsumerGroupView | None:
        """A group of the new protocol; None where there is none of that kind."""
        group = self._image.consumers.groups.get(name)
        return None if group is None else described(group, self.settings)

    def describe_share(self, name: str) -> ShareGroupView | None:
        """A share group; None where there is none of that kind."""
        group = self._image.shares.groups.get(name)
        return None if group is None else share_described(group)

    def ledger_word(self, name: str, topic_id: TopicId, index: int, now: Instant) -> LedgerWord:
        """Whether a share group has, or may have, a ledger on a partition: for its leader, that would begin it."""
        return word_of(self._image.shares.groups.get(name), held_at(self._sessions, name, now), topic_id, index)

    def ledger_topics(self) -> list[TopicId]:
        """Of which share groups have ledgers."""
        return list(dict.fromkeys(topic_id for group in self._image.shares.groups.values() for topic_id in group.ledgers))

    def has_ledgers_of(self, topic_id: TopicId) -> bool:
        return next(groups_with(topic_id, self._image), None) is not None

    def fault_of_reader(self, name: str, member_id: str, member_epoch: int) -> ErrorCode:
        """Why somebody that says to be this member may not be told of the group's offsets; of other groups than those of the new kind
        everybody may. A share group has none."""
        if name in self._image.shares.groups:
            return ErrorCode.GROUP_ID_NOT_FOUND
        group = self._image.consumers.groups.get(name)
        return ErrorCode.NONE if group is None else coordinating.fault_of_epoch(group, member_id, member_epoch)

    def describe(self, name: str) -> GroupView:
        consumers = self._image.consumers.groups.get(name)
        if consumers is not None:
            return as_classic(consumers, self.settings, self._sessions.topics.view)
        if name in self._image.shares.groups:
            return share_as_classic(self._image.shares.groups[name])
        group = self._look(name)
        if group is None:
            return GroupView(name, GroupState.DEAD)
        chosen = group.protocol if group.state is GroupState.STABLE else None
        members = tuple(
            MemberView(
                member.member_id, member.instance_id, member.client_id, member.client_host,
                subscription(member.protocols, chosen), member.assignment,
            )
            for member in group.members.values()
        )  # fmt: skip
        return GroupView(name, group.state, group.generation, group.protocol_type or "", chosen or "", group.leader or "", members)

    def offsets(self, name: str, wanted: Iterable[tuple[str, int]] | None, *, require_stable: bool = False) -> list[OffsetView]:
        """What the group has committed for the wanted partitions, in their order; None wants all that there are.

        `require_stable` tells no offset where an open transaction may still change it, but that it is unstable."""
        pending = self._image.pending.groups.get(name, {}) if require_stable else {}
        if wanted is None:
            return [OffsetView.of(topic, number, committed, pending) for topic, number, committed in self._image.committed(name)]
        topics = self._image.offsets.get(name, {})
        return [OffsetView.of(topic, number, topics.get(topic, {}).get(number), pending) for topic, number in wanted]

    def unstable(self, name: str) -> dict[tuple[str, int], None]:
        """The partitions whose offset an open transaction may still change."""
        return dict.fromkeys(self._image.pending.groups.get(name, ()))

    def all_offsets(self, name: str) -> list[tuple[str, dict[int, Committed]]]:
        """All that the group has committed, by topic and partition: copied quickly, to be looked at in peace."""
        return [(topic, partitions.copy()) for topic, partitions in self._image.offsets.get(name, {}).items()]

    def _draft(self, now: Instant, wall_ms: int) -> Draft:
        require(self._began is not None, "a coordinator decides after it is loaded")
        self._now = now
        return Draft(self._sessions, self._image, self.settings, self._free_bytes, now, wall_ms)

    def _decide_over_groups(self, command: commands.EndPending | commands.ForgetTopic | commands.Abandoned, draft: Draft) -> None:
        match command:
            case commands.EndPending():
                pending.end_pending(command, draft)
            case commands.ForgetTopic():
                committing.forget_topic(command, self._image, draft)
            case commands.Abandoned():
                self._abandon(command, draft)

    def _join(self, command: commands.JoinGroup, draft: Draft) -> None:
        fault = joining.fault_of_request(command, draft)
        group = self._open(command.group)
        if fault is ErrorCode.NONE and group is None and command.member_id:
            fault = ErrorCode.UNKNOWN_MEMBER_ID
        if fault is ErrorCode.NONE and (draft.is_going(command.group) or (group is None and len(self._sessions.groups) >= GROUPS_MAX)):
            fault = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if fault is not ErrorCode.NONE:
            draft.answer(command.token, JoinReply(error=fault, member_id=command.member_id))
            return
        if group is None:
            group = self._sessions.groups[command.group] = Group(command.group)
        joining.join(group, command, draft)

    def _abandon(self, command: commands.Abandoned, draft: Draft) -> None:
        waiting = self._sessions.parked.get(command.token)
        if waiting is not None:
            name, member_id = waiting
            leaving.abandon(self._sessions.groups[name], member_id, command, draft)

    def _lapse_group(self, name: str, draft: Draft) -> None:
        consumers = self._image.consumers.groups.get(name)
        if consumers is not None:
            consumer_leaving.lapse(consumers, draft)
            return
        if name in self._image.shares.groups:
            share_leaving.lapse(self._image.shares.groups[name], draft)
            return
        group = self._open(name)
        if group is None:
            return
        if group.state is GroupState.STABLE and group.leader is None:
            phases.begin_rebalance(group, draft)  # It was one of the new protocol, and its members know of no generation yet.
        members_before = len(group.members)
        gone = [member_id for member_id, deadline in group.pending.items() if deadline <= draft.now]
        gone += [member.member_id for member in group.members.values() if member.deadline <= draft.now]
        for member_id in gone:
            phases.drop(group, member_id, draft)
        if gone:
            phases.somebody_went(group, members_before, draft)
        if group.join_ends <= draft.now:
            phases.join_time_is_up(group, draft)
        if group.sync_ends <= draft.now:
            phases.sync_time_is_up(group, draft)
        self._sessions.alarms.set_by(name, group.earliest_deadline())
        self._tidy(name)

    def _sweep_on(self, draft: Draft) -> None:
        if self._sweep is None:
            self._sweep = Sweep(self._image, self._look_longer, self.settings.offsets_retention_ms)
        draft.records += self._sweep.slice(draft.wall_ms)
        if self._sweep.is_over:
            self._sweep = None
        self._sweep_due = draft.after(SLICE_PAUSE_MS if self._sweep else self.settings.expiry_check_ms)

    def _open(self, name: str) -> Group | None:
        """The group's session side, made from what is recorded where there is none yet."""
        group = self._look(name)
        if group is not None:
            self._sessions.groups[name] = group
        return group

    def _look(self, name: str) -> Group | None:
        group = self._sessions.groups.get(name)
        if group is not None:
            return group
        saved = self._image.saved.get(name)
        if saved is not None:
            return Group.loaded(saved, self._began or Instant(0))
        return Group(name) if self._image.holds(name) else None

    def _look_longer(self, name: str) -> Group | ConsumerGroup | None:
        """As `_look`, for one who will ask again: what was made of the record of a group with members is kept."""
        consumers = self._image.consumers.groups.get(name)
        if consumers is not None:
            return consumers
        group = self._look(name)
        if group is not None and group.state is not GroupState.EMPTY:
            self._sessions.groups[name] = group
        return group

    def _listed(self, name: str) -> GroupListed:
        consumers = self._image.consumers.groups.get(name)
        if consumers is not None:
            return GroupListed(name, consumers.state, consumers.protocol_type, CONSUMER)
        group = self._sessions.groups.get(name)
        if group is not None:
            return GroupListed(name, group.state, group.protocol_type or "")
        saved = self._image.saved.get(name)
        if saved is None:
            return GroupListed(name, GroupState.EMPTY, "")
        return GroupListed(name, GroupState.STABLE if saved.members else GroupState.EMPTY, saved.protocol_type or "")

    def _tidy(self, name: str) -> None:
        """Counts what the group's session takes. An empty group that nobody is about to join needs none."""
        group = self._sessions.groups.get(name)
        if group is None:
            return
        held_bytes = group.unrecorded_bytes
        if group.state is GroupState.EMPTY and not group.pending:
            del self._sessions.groups[name]
            self._sessions.alarms.forget(name)
            held_bytes = 0
        self._sessions.held_bytes += held_bytes - group.counted_bytes
        group.counted_bytes = held_bytes


def _lacks_leader(saved: GroupSaved) -> bool:
    """Whether it is a group that has just become a classic one, and is to be rebalanced."""
    return bool(saved.members) and saved.leader is None
