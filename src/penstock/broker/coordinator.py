"""One coordinator: a replayed state over one partition of an internal topic.

A command is decided, its records are appended as one batch, replayed, and only then is the next one decided. Replies leave when everything
that the state had replayed by then is durable: the state may run ahead of the commit, a reply may not. The same holds for what is merely
looked up. A log that fails takes the state with it: whoever waits hears NOT_COORDINATOR, and so does everybody who comes later, for
only a new start makes that log trusted again. A full disk changes nothing and is COORDINATOR_NOT_AVAILABLE; so clients come again. The
same is told where too few replicas are in sync, or nothing has been committed for a while: then nothing is appended either.
Time-outs are the state's own: one timer of the loop stands at the next of them.
Not here: loading (coordinator_loading.py), snapshots (coordinator_snapshots.py), how long replies wait (coordinator_waiting.py), what any
of the commands mean.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from penstock.broker.askers import Asker, Nobody, WaitingTask
from penstock.broker.coordinator_waiting import Replies, WaitingReplies
from penstock.errors import DiskFailed, DiskFull, ErrorCode, Refusal
from penstock.partition.partition import Partition
from penstock.vocabulary import Instant
from penstock.wire.records import build_batch

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

TIMER_SECONDS_MIN = 0.001
OWED_SECONDS = 1.0  # After which what the node itself wants, and the log did not take, is tried again.

C_contra = TypeVar("C_contra", contravariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S", bound="ReplayedState[Any, Any]")
C = TypeVar("C")
T = TypeVar("T")


class Decision(Protocol[R_co]):
    """What becomes true, and who hears what."""

    @property
    def records(self) -> Sequence[R_co]: ...

    @property
    def replies(self) -> Sequence[tuple[Any, Any]]: ...


class ReplayedState(Protocol[C_contra, R]):
    def decide(self, command: C_contra, now: Instant, wall_ms: int) -> Decision[R]:
        """Changes nothing that is not also true if the records cannot be stored."""

    def replay(self, record: R) -> None: ...

    def due(self) -> Instant | None:
        """When `lapse` has something to do; never later than the truth."""

    def lapse(self, now: Instant, wall_ms: int) -> Decision[R]: ...


class SnapshottedState(ReplayedState[C_contra, R], Protocol[C_contra, R]):
    """One whose loading is sped up by a file beside its log (coordinators.py)."""

    def snapshot_pieces(self) -> Iterable[Sequence[R]]:
        """Records that replay into this state, one for each key. Between the pieces anything may be replayed."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[S, C, R]):
    """What a runtime must know of the states that it keeps. Records are keyed: the last one of a key says all there is to say of it."""

    topic: str
    overrides: dict[str, str]  # The topic's config.
    new_state: Callable[[], S]
    encode: Callable[[R], tuple[bytes, bytes | None]]
    replay: Callable[[S, bytes, bytes | None], None]  # Of a record as it is stored.
    loaded: Callable[[S, Instant], None]  # Everything is replayed: sessions begin.
    abandoned: Callable[[Hashable], C]  # The command that an asker is gone.
    changed: "Callable[[Coordinator[S, C, R]], None] | None" = None  # Something was replayed: the state may owe something new.


class Coordinator(Generic[S, C, R]):
    def __init__(
        self, node: "Node", kind: Kind[S, C, R], partition: Partition, load_later: "Callable[[Coordinator[S, C, R]], None]"
    ) -> None:
        self._node = node
        self._kind = kind
        self._load_later = load_later
        self.partition = partition
        self.state: S | None = None  # None: loading, or gone for good.
        self.unavailable = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # What is answered meanwhile.
        self._asking: dict[Asker, None] = {}  # Parked in the core, or waiting for durability. Ordered: first come, first told.
        self._owed: list[C] = []  # The node's own commands that came while it was loading, or that the log did not take.
        self._paying: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting = WaitingReplies(node.env, partition, tell=self.tell, give_up=self._give_up, log_failed=self.log_failed)

    # Asking

    def submit(self, command: C, asker: Asker) -> None:
        """Decides the command; the asker hears of it now or later."""
        if self.state is None:
            asker.refused(self.unavailable, "the coordinator is not available")
            return
        self._asking[asker] = None
        self._carry_out(command, asker)

    async def ask(self, order: Callable[[Asker], C]) -> Any:
        """The reply to the command that `order` makes for the given token. Raises Refusal when there is none to be had."""
        asker = WaitingTask()
        self.submit(order(asker), asker)
        return await asker.heard

    def order(self, command: C) -> bool:
        """Something that the node itself wants; it waits while the state is loading, or the log takes nothing. True: it is decided."""
        if self.state is not None:
            if self._carry_out(command, Nobody()):
                return True
            self._owed.append(command)
            if self._paying is None:  # One for all of them.
                self._paying = asyncio.get_running_loop().call_later(OWED_SECONDS, self._pay)
        elif self.unavailable is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._owed.append(command)
        return False

    def abandon(self, asker: Asker) -> None:
        """Nobody waits for this answer any more."""
        if self._asking.pop(asker, self) is None and self.state is not None:
            self.order(self._kind.abandoned(asker))

    async def read(self, look: Callable[[S], T]) -> T:
        """What the state shows now, once all of it is durable. Raises Refusal."""
        if self.state is None:
            raise Refusal(self.unavailable, "the coordinator is not available")
        seen = look(self.state)
        asker = WaitingTask()
        self._asking[asker] = None
        self._answer_when_durable([(asker, None)], self._node.env.now())
        await asker.heard
        return seen

    @property
    def is_stuck(self) -> bool:
        """Nothing that was appended to its log of late is committed."""
        return self._waiting.is_stuck

    # Deciding

    def _pay(self) -> None:
        self._paying = None
        if self.state is not None:
            owed, self._owed = self._owed, []
            for command in owed:
                self.order(command)

    def _carry_out(self, command: C | None, asker: Asker) -> bool:
        """What the command calls for, or, where there is none, the time. False: the log takes nothing now, and nothing has changed."""
        state, env = self.state, self._node.env
        assert state is not None
        now, wall_ms = env.now(), env.wall_ms()
        try:
            decision = state.lapse(now, wall_ms) if command is None else state.decide(command, now, wall_ms)
            is_stored = self._store(state, decision, wall_ms)
            if is_stored and (decision.records or decision.replies):
                self._answer_when_durable(decision.replies, now)
            if is_stored and decision.records and self._kind.changed is not None:
                self._kind.changed(self)
        except DiskFailed as failure:
            self._node.settle(self.partition)
            self._drop(ErrorCode.NOT_COORDINATOR, f"the coordinator's log failed: {failure}")
            return True
        except Exception:
            log.exception("the coordinator of %s-%d failed; it is loaded again", self.partition.topic, self.partition.index)
            self._asking.pop(asker, None)
            asker.refused(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator failed")
            self.reload("the coordinator is loaded again")
            return True
        self.set_timer(TIMER_SECONDS_MIN if is_stored else OWED_SECONDS)  # What lapses now could not be stored either.
        return is_stored

    def _store(self, state: S, decision: Decision[R], wall_ms: int) -> bool:
        """Appends and replays. False: that cannot be done now; nothing has changed, and who waited for this may come again."""
        if not decision.records:
            return True
        reason = self._why_not_now()
        try:
            if reason is None:
                self._append(decision.records, wall_ms)
        except DiskFull as full:
            self._node.disk_was_full(full)
            reason = f"the disk is full: {full}"
        if reason is not None:
            self._refuse(decision.replies, reason)
            return False
        for record in decision.records:
            state.replay(record)
        return True

    def _why_not_now(self) -> str | None:
        """Why nothing that is appended now would be acknowledged in time. None: it may well be."""
        leader = self.partition.leader
        if leader is not None and not leader.is_enough:
            return "too few replicas of the coordinator's log are in sync"
        return "nothing that was appended to the coordinator's log of late is committed" if self._waiting.is_stuck else None

    def _append(self, records: Sequence[R], wall_ms: int) -> None:
        encode = self._kind.encode
        self.partition.append(build_batch([(*encode(record), ()) for record in records], wall_ms), wall_ms)
        self._node.appended(self.partition)

    def _answer_when_durable(self, replies: Replies, now: Instant) -> None:
        self._waiting.add(replies, now)

    def _give_up(self, replies: Replies) -> None:
        self._refuse(replies, "what the answer stands on was not committed in time")

    def _refuse(self, replies: Replies, reason: str) -> None:
        for asker, _ in replies:
            if self._asking.pop(asker, self) is None:
                asker.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)

    def tell(self, replies: Replies) -> None:
        for asker, reply in replies:
            if self._asking.pop(asker, self) is None:  # Otherwise it has hung up, or has heard that there is no answer.
                asker.answered(reply)

    # Losing the state

    def reload(self, reason: str) -> None:
        """A defect has left the state half changed, or it has lost what it had put aside: the log knows better."""
        self._drop(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason)
        self._load_later(self)

    def log_failed(self, reason: str) -> None:
        self._drop(ErrorCode.NOT_COORDINATOR, reason)

    def close(self) -> None:
        """The partition is gone, or the node stops."""
        self._drop(ErrorCode.NOT_COORDINATOR, "the coordinator is gone")

    def _drop(self, code: ErrorCode, reason: str) -> None:
        self.state = None
        self.unavailable = code
        self._owed.clear()
        self._waiting.clear()
        self._cancel_timer()
        asking, self._asking = self._asking, {}
        for asker in asking:
            asker.refused(code, reason)

    def begin(self, state: S) -> None:
        """Loading has ended: the coordinator answers from now on."""
        self.state = state
        self._kind.loaded(state, self._node.env.now())
        self._pay()
        self.set_timer()
        if self._kind.changed is not None:
            self._kind.changed(self)

    # Time

    def set_timer(self, seconds_min: float = TIMER_SECONDS_MIN) -> None:
        """A timer that stands too early is left alone: heartbeats push time-outs back all day, and it finds nothing to do."""
        due = None if self.state is None else self.state.due()
        if due is None:
            self._cancel_timer()
            return
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        soonest = self._node.env.now() + seconds_min
        self._timer = asyncio.get_running_loop().call_at(max(due, soonest), self._time_came)

    def catch_up(self) -> None:
        """Lets lapse what should have by now, for whom it matters at once: timers are late by a moment, and this one by another."""
        if self._timer is None or self._timer.when() - TIMER_SECONDS_MIN > self._node.env.now():
            return
        due = None if self.state is None else self.state.due()
        if due is not None and due <= self._node.env.now():
            self._cancel_timer()
            self._time_came()

    def _time_came(self) -> None:
        self._timer = None
        if self.state is None:
            return
        due = self.state.due()
        if due is not None and due <= self._node.env.now():
            self._carry_out(None, Nobody())
        else:
            self.set_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
