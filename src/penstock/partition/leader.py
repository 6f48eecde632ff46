"""The leader's side of one partition in one epoch: how far every in-sync replica has come, and whose answers that releases.

A machine: `step(event, now) -> effects`. It holds no log and no socket. A replica has *reached* an offset when everything below it is as
durable there as the topic promises: flushed under `flush=ack`, written otherwise. The leader is a replica like the others.
The high watermark is the smallest of those offsets over the in-sync set. It never moves back, readers see nothing at or above it,
and an acks=all producer hears back when it has passed the producer's batch; an acks=1 producer when the leader alone has reached it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar, assert_never

from penstock.vocabulary import Instant, LeaderEpoch, NodeId, Offset

Token = TypeVar("Token")


class Reached(NamedTuple):
    """A replica has everything below this offset."""

    replica: NodeId
    end_offset: Offset


class LogFailed(NamedTuple):
    """This node's log takes no more writes: what is parked will never be acknowledged here."""

    reason: str


class AdvanceWatermark(NamedTuple):
    high_watermark: Offset


class Answer(NamedTuple, Generic[Token]):
    """Everything these producers wait for is durable."""

    tokens: tuple[Token, ...]


class Refuse(NamedTuple, Generic[Token]):
    tokens: tuple[Token, ...]
    reason: str


Event = Reached | LogFailed


Effect = AdvanceWatermark | Answer[Token] | Refuse[Token]
Parked = deque[tuple[Offset, Token]]


class Leader(Generic[Token]):
    __slots__ = ("_parked_for_all", "_parked_for_self", "_reached", "epoch", "high_watermark", "in_sync", "node_id", "own_end")

    def __init__(self, node_id: NodeId, epoch: LeaderEpoch, in_sync: Iterable[NodeId], end_offset: Offset) -> None:
        self.node_id = node_id
        self.epoch = epoch
        self.in_sync = tuple(in_sync)
        # Every offset below this is durable on each in-sync replica.
        self.high_watermark = end_offset
        # Every offset below this is durable here.
        self.own_end = end_offset
        self._reached = {replica: end_offset for replica in self.in_sync}
        # Appends come in order, so the first to be released stands first. The answer to a repeated batch may stand behind a later
        # batch and wait a little longer than it must; it never leaves too early.
        self._parked_for_all: Parked[Token] = deque()
        self._parked_for_self: Parked[Token] = deque()

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

    @property
    def parked_count(self) -> int:
        return len(self._parked_for_all) + len(self._parked_for_self)

    def step(self, event: Event, now: Instant) -> list[Effect[Token]]:
        match event:
            case Reached():
                return self._reach(event.replica, event.end_offset)
            case LogFailed():
                tokens = tuple(token for parked in (self._parked_for_all, self._parked_for_self) for _, token in parked)
                self._parked_for_all.clear()
                self._parked_for_self.clear()
                return [Refuse(tokens, event.reason)] if tokens else []
            case _:
                assert_never(event)

    def _reach(self, replica: NodeId, end_offset: Offset) -> list[Effect[Token]]:
        if replica not in self._reached or end_offset <= self._reached[replica]:
            return []
        self._reached[replica] = end_offset
        effects: list[Effect[Token]] = []
        released: list[Token] = []
        if replica == self.node_id:
            self.own_end = end_offset
            _release(self._parked_for_self, end_offset, released)
        lowest = min(self._reached.values())
        if lowest > self.high_watermark:
            self.high_watermark = lowest
            effects.append(AdvanceWatermark(lowest))
            _release(self._parked_for_all, lowest, released)
        if released:
            effects.append(Answer(tuple(released)))
        return effects


def _release(parked: Parked[Token], end_offset: Offset, released: list[Token]) -> None:
    while parked and parked[0][0] <= end_offset:
        released.append(parked.popleft()[1])
