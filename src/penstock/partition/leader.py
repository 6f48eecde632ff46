"""The leader's side of one partition in one epoch: how far every in-sync replica has come, and whose answers that releases.

A machine: `step(event, now) -> effects`. It holds no log and no socket. A replica has *reached* an offset when everything below it is as
durable there as the topic promises: flushed under `flush=ack`, written otherwise. The leader is a replica like the others.
The high watermark is the smallest of those offsets over all that may be in the in-sync set (in_sync.py). It never moves back, and not at
all while the set is smaller than it must be. Readers see nothing at or above it, and an acks=all producer hears back when it has passed
the producer's batch; an acks=1 producer when the leader alone has reached it.
A new leader begins with the watermark that it knew as a follower. Until that has come to the start of its own epoch, an earlier leader
may have told of a later end than this one knows (KIP-207).
Hot path: `park` and the leader's own `Reached`, once for each batch or flush. Where there are no followers, nothing else is done.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar, assert_never

from penstock.partition.in_sync import NO_NODE_EPOCH, InSync, ProposeInSync
from penstock.vocabulary import Instant, LeaderEpoch, NodeId, Offset

__all__ = [
    "AdvanceWatermark", "Answer", "Effect", "Event", "InSyncChanged", "Leader", "LogFailed", "MinInSyncChanged", "ProposalLost",
    "ProposalRefused", "ProposeInSync", "Reached", "Refuse", "Resigned", "TimePassed",
]  # fmt: skip

Token = TypeVar("Token")
NO_EPOCH = LeaderEpoch(-1)


class Reached(NamedTuple):
    """A replica has everything below this offset. A follower says in which of its lives, under which leader's epoch, and where its log
    starts."""

    replica: NodeId
    end_offset: Offset
    node_epoch: int = NO_NODE_EPOCH
    epoch: LeaderEpoch = NO_EPOCH
    start: Offset = Offset(0)


class InSyncChanged(NamedTuple):
    """The image has a later version of this partition, with the same leader in the same epoch."""

    in_sync: Sequence[tuple[NodeId, int]]  # With the epoch of each node.
    partition_epoch: int
    replicas: Sequence[NodeId]


class ProposalRefused(NamedTuple):
    """The controller said no to the proposal for this version."""

    partition_epoch: int


class ProposalLost(NamedTuple):
    """No answer came to the proposal for this version."""

    partition_epoch: int


class MinInSyncChanged(NamedTuple):
    min_insync: int


class TimePassed(NamedTuple):
    """A look at the followers is due; `log_end` is where the leader's own log ends, flushed or not."""

    log_end: Offset


class LogFailed(NamedTuple):
    """This node's log takes no more writes: what is parked will never be acknowledged here."""

    reason: str


class Resigned(NamedTuple):
    """Another node leads now, or the partition is gone: what is parked is none of this node's business any more."""

    reason: str


class AdvanceWatermark(NamedTuple):
    high_watermark: Offset


class Answer(NamedTuple, Generic[Token]):
    """Everything these producers wait for is durable."""

    tokens: tuple[Token, ...]


class Refuse(NamedTuple, Generic[Token]):
    tokens: tuple[Token, ...]
    reason: str


Event = Reached | InSyncChanged | ProposalRefused | ProposalLost | MinInSyncChanged | TimePassed | LogFailed | Resigned


Effect = AdvanceWatermark | Answer[Token] | Refuse[Token] | ProposeInSync
Parked = deque[tuple[Offset, Token]]


class Leader(Generic[Token]):
    __slots__ = (
        "_given_up_count", "_min_insync", "_parked_for_all", "_parked_for_self", "_set", "deleted_below", "epoch", "epoch_start",
        "high_watermark", "in_sync", "is_enough", "node_id", "own_end",
    )  # fmt: skip

    def __init__(
        self,
        node_id: NodeId,
        epoch: LeaderEpoch,
        *,
        in_sync: Sequence[tuple[NodeId, int]],
        replicas: Iterable[NodeId],
        partition_epoch: int,
        own_end: Offset,
        high_watermark: Offset,
        epoch_start: Offset,
        log_start: Offset,
        min_insync: int,
        lag_max_s: float,
        now: Instant,
    ) -> None:
        """`epoch_start` is where this leader's log ends when it begins to lead; `own_end` what of it is as durable as promised.
        `high_watermark` is what it knew as a follower. A leader that is alone in its set knows better at once.
        `log_start` is where its log starts: no earlier leader has told a client that records after it are deleted."""
        self.node_id = node_id
        self.epoch = epoch
        self.epoch_start = epoch_start
        self._set = InSync(node_id, in_sync, replicas, partition_epoch, lag_max_s=lag_max_s, now=now)
        self._min_insync = min_insync
        # Clients may know that every record below this is deleted: no replica joins the set that still has one.
        self.deleted_below = log_start
        # Every offset below this is durable here.
        self.own_end = own_end
        self._note_set()
        # Every offset below this is durable on each in-sync replica.
        self.high_watermark = max(min(high_watermark, epoch_start), self._lowest() if self.is_enough else Offset(0))
        # Appends come in order, so the first to be released stands first. The answer to a repeated batch may stand behind a later
        # batch and wait a little longer than it must; it never leaves too early.
        self._parked_for_all: Parked[Token] = deque()
        self._parked_for_self: Parked[Token] = deque()
        self._given_up_count = 0  # About how many of them were answered otherwise, and are only in the way.

    def take_over(self, before: "Leader[Token]") -> list[Effect[Token]]:
        """From the same node in the epoch before, whose log goes on: whoever waits there waits here."""
        self._parked_for_all, self._parked_for_self = before._parked_for_all, before._parked_for_self
        released = [*_released(self._parked_for_self, self.own_end), *_released(self._parked_for_all, self.high_watermark)]
        effects: list[Effect[Token]] = []
        if self.high_watermark > before.high_watermark:
            effects.append(AdvanceWatermark(self.high_watermark))
        return [*effects, Answer(tuple(released))] if released else effects

    def park(self, end_offset: Offset, token: Token, *, needs_all: bool) -> bool:
        """Keeps a producer's answer until everything below `end_offset` is durable; False: it is so already, answer now."""
        if needs_all:
            if end_offset <= self.high_watermark:
                return False
            self._parked_for_all.append((end_offset, token))
            return True
        if end_offset <= self.own_end:
            return False
        self._parked_for_self.append((end_offset, token))
        return True

    def records_deleted(self, start: Offset) -> None:
        """Notes that a client is told so now, as every replica in `may_lead_next` starts here or later."""
        self.deleted_below = max(self.deleted_below, start)

    def given_up(self, is_over: Callable[[Token, Offset], bool]) -> None:
        """One of those that are parked has been answered otherwise, as its time is up or its client is gone. Drops all that are over when
        they may be half of all, so that each costs a bounded share of such a round, and no more are kept than twice those that wait."""
        self._given_up_count += 1
        if 2 * self._given_up_count < self.parked_count:
            return
        self._given_up_count = 0
        for parked in (self._parked_for_all, self._parked_for_self):
            waiting = [(end_offset, token) for end_offset, token in parked if not is_over(token, end_offset)]
            if len(waiting) < len(parked):
                parked.clear()
                parked.extend(waiting)

    @property
    def parked_count(self) -> int:
        return len(self._parked_for_all) + len(self._parked_for_self)

    @property
    def partition_epoch(self) -> int:
        """The version of the in-sync set that this leader goes by."""
        return self._set.partition_epoch

    @property
    def may_lead_next(self) -> list[NodeId]:
        """The other members of the in-sync set, and whoever may have joined it without this leader's knowing yet."""
        return [follower.node for follower in self._set.bounds]

    @property
    def may_tell_end(self) -> bool:
        """Whether the watermark is no lower than any that an earlier leader may have shown."""
        return self.high_watermark >= self.epoch_start

    def step(self, event: Event, now: Instant) -> list[Effect[Token]]:
        match event:
            case Reached():
                if event.replica == self.node_id:
                    return self.reach_here(event.end_offset)
                return self._reached_there(event)
            case InSyncChanged():
                return self._adopt(event, now)
            case TimePassed():
                self._set.look(event.log_end, now)
                return self._propose()
            case ProposalRefused():
                self._set.refused(event.partition_epoch)
                return self._propose()
            case ProposalLost():
                self._set.lost(event.partition_epoch)
                return []
            case MinInSyncChanged():
                self._min_insync = event.min_insync
                self._note_set()
                return self._advance([])
            case LogFailed():
                self._set.leader_leaves = True
                return [*self._refuse_parked(event.reason), *self._propose()]
            case Resigned():
                return self._refuse_parked(event.reason)
            case _:
                assert_never(event)

    def reach_here(self, end_offset: Offset) -> list[Effect[Token]]:
        """The leader's own `Reached`."""
        if end_offset <= self.own_end:
            return []
        self.own_end = end_offset
        return self._advance(_released(self._parked_for_self, end_offset))

    def _reached_there(self, event: Reached) -> list[Effect[Token]]:
        """What a follower reached under another leader says nothing about this one's log."""
        if event.epoch != self.epoch or not self._set.note(event.replica, event.node_epoch, event.end_offset, event.start):
            return []
        return self._advance([]) if event.replica in self.in_sync else [*self._advance([]), *self._propose()]

    def _adopt(self, event: InSyncChanged, now: Instant) -> list[Effect[Token]]:
        if not self._set.adopt(event.in_sync, event.replicas, event.partition_epoch, now):
            return []
        self._note_set()
        return [*self._advance([]), *self._propose()]

    def _advance(self, released: list[Token]) -> list[Effect[Token]]:
        """Moves the watermark as far as everybody has come, and answers whom that, or what came before, releases."""
        effects: list[Effect[Token]] = []
        lowest = self._lowest()
        if lowest > self.high_watermark and self.is_enough:
            self.high_watermark = lowest
            effects.append(AdvanceWatermark(lowest))
            released += _released(self._parked_for_all, lowest)
        if released:
            effects.append(Answer(tuple(released)))
        return effects

    def _lowest(self) -> Offset:
        lowest = self.own_end
        for follower in self._set.bounds:
            lowest = min(lowest, follower.reached)
        return lowest

    def _propose(self) -> list[Effect[Token]]:
        proposal = self._set.propose(max(self.high_watermark, self.epoch_start), self.deleted_below)
        return [] if proposal is None else [proposal]

    def _note_set(self) -> None:
        """The set has another version, or another size is asked for. Fewer replicas than asked for cannot be more than all of them."""
        self.in_sync = self._set.members
        enough = min(self._min_insync, len(self._set.replicas))
        self.is_enough = len(self.in_sync) >= enough and self.node_id in self.in_sync

    def _refuse_parked(self, reason: str) -> list[Effect[Token]]:
        tokens = tuple(token for parked in (self._parked_for_all, self._parked_for_self) for _, token in parked)
        self._parked_for_all.clear()
        self._parked_for_self.clear()
        return [Refuse(tokens, reason)] if tokens else []


def _released(parked: Parked[Token], end_offset: Offset) -> list[Token]:
    """Takes out those that wait for nothing after this offset."""
    released = list[Token]()
    while parked and parked[0][0] <= end_offset:
        released.append(parked.popleft()[1])
    return released
