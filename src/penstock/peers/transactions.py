"""A producer whose records, on whatever partitions, and input offsets count all together or not at all.

    async with TransactionalProducer(client, TransactionSettings("orders-1")) as producer:
        producer.begin()
        await producer.send("out", b"...")
        await producer.send_offsets({TopicPartition("in", 0): 42}, GroupIdentity("orders"))
        await producer.commit()

Rules:
- `init` fences every earlier producer of the same transactional id and ends what it left open. Entering the block calls it.
- Whatever fails inside a transaction fails the whole: `commit` refuses with `MustAbort`, `abort` makes the producer ready for the next.
- A commit that got no answer stays undecided: `commit` may be called again. A new producer of the id finds it decided.
- What was given up without an answer may still arrive at the node. So the epoch is raised before the next transaction begins: by the end
  itself (version 2 of transactions, KIP-890), or by asking for it (version 1, KIP-360).
- Version 2 is used where the cluster has agreed on it, unless the settings say otherwise.
Not here: what the requests say (transaction_calls.py), batches and sequences (producer.py).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import TracebackType

from penstock.errors import ErrorCode
from penstock.peers.appending import ProducerIdentity, TransactionPart
from penstock.peers.batching import Lane, Pending
from penstock.peers.client import Client
from penstock.peers.failures import MustAbort, PeerFailure, ProducerBroken, ProducerFenced, Refused
from penstock.peers.producer import Producer, ProducerSettings
from penstock.peers.stable_offsets import GroupIdentity
from penstock.peers.transaction_calls import FENCED, MAPPING_LOST, TransactionCalls
from penstock.vocabulary import NO_PRODUCER, TopicPartition

__all__ = ["GroupIdentity", "TransactionSettings", "TransactionalProducer"]


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    transactional_id: str
    timeout_ms: int = 60_000  # How long a transaction may stay open before the coordinator aborts it.
    may_use_v2: bool = True
    deadline_s: float = 60.0  # For each call to a coordinator.
    abort_patience_s: float = 30.0  # How long an abort waits for batches that are on their way.


class State(Enum):
    NEW = "new"
    READY = "ready"
    OPEN = "in a transaction"
    DOOMED = "in a transaction that must be aborted"
    COMMITTING = "in a commit that is not decided"
    ABORTING = "in an abort that is not decided"
    BROKEN = "broken"


_MOVES: Mapping[State, tuple[State, ...]] = {
    State.NEW: (State.READY, State.BROKEN),
    State.READY: (State.OPEN, State.BROKEN),
    State.OPEN: (State.DOOMED, State.COMMITTING, State.ABORTING, State.BROKEN),
    State.DOOMED: (State.ABORTING, State.BROKEN),
    State.COMMITTING: (State.COMMITTING, State.READY, State.DOOMED, State.BROKEN),
    State.ABORTING: (State.ABORTING, State.READY, State.BROKEN),
    State.BROKEN: (State.BROKEN,),
}

_NOBODY = ProducerIdentity(NO_PRODUCER, -1)
_FENCED_ADVICE = "its transaction timed out, or another producer with this transactional id works in its place: start one if none does"
_START_ANOTHER = "start a new producer with this transactional id: it finds out what became of the transaction"


class TransactionalProducer(Producer):
    """One transaction at a time, and one caller at a time."""

    def __init__(self, client: Client, transaction: TransactionSettings, settings: ProducerSettings | None = None) -> None:
        super().__init__(client, replace(settings or ProducerSettings(), is_idempotent=True))
        self.transaction = transaction
        self.state = State.NEW
        self.is_v2 = False  # Known once it is initialised.
        self._calls = TransactionCalls(client, transaction.transactional_id, deadline_s=transaction.deadline_s)
        self._why_doomed: PeerFailure | None = None
        self._has_begun = False  # Something of the transaction may be known to its coordinator.
        self._needs_epoch = False  # Something was given up that may still arrive: the next transaction needs a higher epoch.
        self._is_mapping_lost = False  # The coordinator does not know this producer: there is nothing to end.
        self._wanted: dict[TopicPartition, None] = {}  # To be announced with the next request,
        self._announced: dict[TopicPartition, None] = {}  # and what the coordinator has been told of.
        self._announcing = asyncio.Lock()

    async def __aenter__(self) -> "TransactionalProducer":
        await self.init()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        await self.abandon()

    @property
    def identity(self) -> ProducerIdentity:
        """Which producer the coordinator takes this one for; the epoch grows."""
        return self._identity or _NOBODY

    async def init(self) -> None:
        """Takes over the transactional id: from here on every earlier producer of it is fenced."""
        if self.state is not State.NEW:
            raise ProducerBroken(f"the producer is {self.state.value}: it is initialised once")
        await self._identify_as(_NOBODY)
        self.is_v2 = self.transaction.may_use_v2 and self._calls.is_v2_agreed
        self._move(State.READY)

    def begin(self) -> None:
        self._check_state(State.READY)
        self._move(State.OPEN)

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupIdentity) -> None:
        """Makes input offsets part of the transaction: the group reads on from them if it is committed."""
        self._check_state(State.OPEN)
        self._has_begun = True
        try:
            if not self.is_v2:
                await self._calls.announce_group(self.identity, group)
            await self._calls.commit_offsets(self.identity, group, offsets, is_v2=self.is_v2)
        except PeerFailure as failure:
            raise self._stumble(failure) from failure

    async def commit(self) -> None:
        """Flushes first. Raises `MustAbort` if anything failed; of any other failure `may_have_happened` says whether it is undecided."""
        self._check_state(State.OPEN, State.COMMITTING)
        if self.state is State.OPEN:
            await self.flush()
            self._check_state(State.OPEN)
            self._move(State.COMMITTING)
        await self._end(is_commit=True)

    async def abort(self) -> None:
        """Drops what is queued. What is on its way is waited for, and given up after `abort_patience_s`."""
        self._check_state(State.OPEN, State.DOOMED, State.ABORTING)
        self._move(State.ABORTING)
        try:
            async with asyncio.timeout(max(0.001, self.transaction.abort_patience_s)):
                await self.flush()  # What is queued is refused on its way out.
        except TimeoutError:
            self._needs_epoch = True
            await self._drop_unsettled()
        await self._end(is_commit=False)

    # The end of a transaction.

    async def _end(self, *, is_commit: bool) -> None:
        try:
            if self._has_begun and not self._is_mapping_lost:
                following = await self._calls.end(self.identity, is_commit=is_commit, is_v2=self.is_v2)
                self._has_begun = False  # Whatever fails from here on, it has ended.
                if self.is_v2:
                    self._adopt(following)
                    self._needs_epoch = False
            if self._needs_epoch or self._is_mapping_lost:
                await self._identify_as(_NOBODY if self._is_mapping_lost else self.identity)
        except PeerFailure as failure:
            if not failure.is_retriable and isinstance(failure, Refused):
                raise self._stumble(failure) from failure
            raise
        self._has_begun = self._needs_epoch = self._is_mapping_lost = False
        self._announced.clear()
        self._wanted.clear()
        self._why_doomed = None
        self._move(State.READY)

    async def _identify_as(self, known: ProducerIdentity) -> None:
        self._adopt(await self._calls.init(known, timeout_ms=self.transaction.timeout_ms))

    def _adopt(self, identity: ProducerIdentity) -> None:
        if identity != self._identity:
            for lane in self._lanes.values():
                lane.sequence = 0
        self._identity = identity

    # What a producer without transactions does otherwise.

    async def _identify(self) -> None:
        self._check_state(State.OPEN)

    async def _join_transaction(self, where: TopicPartition) -> TransactionPart:
        self._has_begun = True
        if not self.is_v2:
            await self._announce(where)
        return TransactionPart(self.transaction.transactional_id, self.is_v2)

    async def _announce(self, where: TopicPartition) -> None:
        """One request at a time, with every partition that waits for it."""
        if where in self._announced:
            return
        self._wanted[where] = None
        async with self._announcing:
            if where not in self._announced:
                together = list(self._wanted)
                await self._calls.announce(self.identity, together)
                for one in together:
                    self._announced[one] = None
                    self._wanted.pop(one, None)

    def _fail(self, lane: Lane, batch: list[Pending], failure: PeerFailure) -> None:
        if self.state is State.OPEN:
            # That an epoch is too low may mean that the coordinator gave up on the transaction: the abort tells, and perhaps mends it.
            self._stumble(failure, fenced=(ErrorCode.PRODUCER_FENCED,))
        elif not isinstance(failure, MustAbort):
            self._needs_epoch = True
        for pending in batch:
            pending.fail(failure)

    def _check_going(self) -> None:
        super()._check_going()
        if self.state is not State.OPEN:
            raise self._doomed(f"the transaction is not open: the producer is {self.state.value}")

    # What goes wrong.

    def _stumble(self, failure: PeerFailure, *, fenced: Sequence[int] = FENCED) -> PeerFailure:
        """What the failure means for the transaction; returns what the caller is to be told."""
        if isinstance(failure, Refused) and failure.code in fenced:
            if not isinstance(self.failure, ProducerFenced):
                self.failure = ProducerFenced(failure.problem, _FENCED_ADVICE)
            self._move(State.BROKEN)
            return ProducerFenced(failure.problem, self.failure.advice, may_have_happened=failure.may_have_happened)
        if isinstance(failure, Refused) and failure.code in MAPPING_LOST:
            self._is_mapping_lost = True
        elif self.state in (State.COMMITTING, State.ABORTING) and not _is_abortable(failure):
            self._break(failure.problem, _START_ANOTHER)
            self._move(State.BROKEN)
            return ProducerBroken(failure.problem, _START_ANOTHER, may_have_happened=failure.may_have_happened)
        self._needs_epoch = True
        self._why_doomed = self._why_doomed or failure
        doomed = self._doomed(failure.problem, may_have_happened=self.state is State.COMMITTING and failure.may_have_happened)
        if self.state is not State.ABORTING:
            self._move(State.DOOMED)
        return doomed

    def _doomed(self, problem: str, *, may_have_happened: bool = False) -> MustAbort:
        why = self._why_doomed.problem if self._why_doomed is not None else problem
        advice = "abort it; the next may succeed"
        return MustAbort(f"the transaction must be aborted: {why}", advice, may_have_happened=may_have_happened)

    def _check_state(self, *wanted: State) -> None:
        if self.state in wanted:
            return
        Producer._check_going(self)
        if self.state is State.DOOMED:
            raise self._doomed("")
        names = " or ".join(state.value for state in wanted)
        raise ProducerBroken(f"the producer is {self.state.value}, and should be {names}")

    def _move(self, state: State) -> None:
        if state is not self.state and state not in _MOVES[self.state]:
            raise ProducerBroken(f"a producer that is {self.state.value} cannot be {state.value}")
        self.state = state


def _is_abortable(failure: PeerFailure) -> bool:
    return isinstance(failure, Refused) and failure.code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID)
