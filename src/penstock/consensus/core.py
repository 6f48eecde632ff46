"""One replica of the metadata log: `step(event, now) -> effects`.

This is Raft (Ongaro and Ousterhout, 2014) with pre-vote, check-quorum, single-server membership changes in their corrected form, read
index, leadership transfer, and voters that are known by node *and* directory (KIP-853). One node is a quorum of one, by the same code: it
elects itself as soon as its own vote is durable and commits with its own flush alone.

What always holds, and is required where it could break:
- a term has one leader at most;
- a leader never cuts its own log, and nobody cuts what is committed;
- two logs with an entry of the same term at the same offset are the same up to there;
- what is committed is in the log of every leader of a later term;
- no message leaves before what it promises is durable.

The core keeps no clock, no disk and no source of chance. Time comes with each event and is only ever compared with itself, so that a clock
that runs wrong can delay an election and nothing else. The spread of election time-outs is drawn from `draw`, a source of numbers from 0
up to 1 that is passed in: only a core knows when it needs one, and a number in every event would be drawn thousands of times for each use.

The shell's part:
- it carries out the effects of a step, in their order, before the next step, and decides nothing;
- it makes `Persist…` durable in the order of their numbers and then says `Persisted`; a failed write or flush ends the process;
- its view of the log has at least what it has confirmed, and begins at or below the end of its newest snapshot;
- `InstallSnapshot` replaces log and applied state in one step that a crash cannot halve;
- it wakes the core at `due`, which may have moved after any step, and never blocks for a third of an election time-out;
- when it makes a core, everything that its view shows is durable, also what a killed process had left in memory;
- a disk that was lost comes back with a new directory id, without vote, log and first voters; a voter that is told to vote alone on an
  empty disk founds a cluster, so that must be somebody's explicit wish.
Not here: bytes of messages, files, retries of those who ask, and what the entries mean.
"""

from collections.abc import Callable
from typing import assert_never

from penstock.consensus import voting
from penstock.consensus.effects import Answer, Effect, PersistVote, Reason, Refused
from penstock.consensus.electing import Candidate, Prospective
from penstock.consensus.events import (
    AddVoter,
    AskBarrier,
    Event,
    Order,
    Persisted,
    Propose,
    Received,
    RemoveVoter,
    SnapshotTaken,
    TimePassed,
    TransferLeadership,
)  # fmt: skip
from penstock.consensus.follower import Follower
from penstock.consensus.leader import Leader
from penstock.consensus.log_view import LogView
from penstock.consensus.messages import Append, AppendReply, Chunk, Knock, Message, TakeOver, VoteReply, VoteRequest
from penstock.consensus.nouns import Replica, Term
from penstock.consensus.options import Options
from penstock.consensus.roles import MOVES, Role, RoleName
from penstock.consensus.state import State
from penstock.consensus.voters import Voters
from penstock.errors import require
from penstock.vocabulary import Instant, NodeId, Offset


class Core:
    """`vote` is the last `PersistVote` that became durable, None on a new disk; `first_voters` those of a cluster that begins, empty for an
    observer or a disk that was lost; `contacts` the nodes that an observer knocks at before it knows any voter."""

    __slots__ = ("_role", "_state")

    def __init__(
        self, me: Replica, view: LogView, vote: PersistVote | None, now: Instant, *,
        draw: Callable[[], float], first_voters: Voters = Voters(), contacts: tuple[NodeId, ...] = (), options: Options = Options(),  # noqa: B008 (both are frozen)
    ) -> None:  # fmt: skip
        self._state = State(me, view, vote, first_voters=first_voters, contacts=contacts, options=options, draw=draw)
        self._role: Role = Follower(self._state, now)

    # For those who look on.

    @property
    def due(self) -> Instant:
        """When this core next wants to hear that time has passed."""
        return self._role.due

    @property
    def role(self) -> Role:
        return self._role

    @property
    def term(self) -> Term:
        return self._state.term

    @property
    def leader(self) -> NodeId | None:
        return self._role.leader

    @property
    def voters(self) -> Voters:
        return self._state.voters

    @property
    def committed_end(self) -> Offset:
        return self._state.committed_end

    @property
    def state(self) -> State:
        return self._state

    def voters_at(self, end: Offset) -> Voters:
        """Those that a snapshot of everything below `end` must carry."""
        return self._state.history.at(end)

    # The machine.

    def step(self, event: Event, now: Instant) -> list[Effect]:
        match event:
            case Received():
                self._receive(event.message, now)
            case TimePassed():
                self._become(self._role.time_passed(now), now)
            case Persisted():
                self._state.log.persisted(event.sequence)
                self._state.out.persisted(event.sequence)
                self._become(self._role.persisted(now), now)
            case SnapshotTaken():
                require(event.end <= self._state.applied_end, "a snapshot is of what was applied")
                self._state.history.forget_before(event.end)
            case Propose() | AddVoter() | RemoveVoter() | AskBarrier() | TransferLeadership():
                self._obey(event, now)
            case _:
                assert_never(event)
        self._state.apply()
        if isinstance(self._role, Leader):
            self._role.settle()
        return self._state.out.take()

    def _obey(self, order: Order, now: Instant) -> None:
        if isinstance(self._role, Leader):
            self._role.obey(order, now)
        else:
            self._state.out.add(Answer(order.token, Refused(Reason.NOT_LEADER, self._role.leader)))

    def _become(self, name: RoleName | None, now: Instant, *, is_by_transfer: bool = False) -> None:
        """Moves on, and on again where a role is over before it has begun: alone, one is elected by oneself."""
        while name is not None:
            require((self._role.name, name) in MOVES, f"a {self._role.name} never becomes a {name} at once")
            self._role.leave()
            self._role = self._made(name, now, is_by_transfer=is_by_transfer)
            self._state.announce(self._role.leader)
            name = self._role.verdict() if isinstance(self._role, Prospective | Candidate) else None

    def _made(self, name: RoleName, now: Instant, *, is_by_transfer: bool) -> Role:
        match name:
            case RoleName.FOLLOWER:
                return Follower(self._state, now)
            case RoleName.PROSPECTIVE:
                return Prospective(self._state, now)
            case RoleName.CANDIDATE:
                return Candidate(self._state, now, is_by_transfer=is_by_transfer)
            case RoleName.LEADER:
                return Leader(self._state, now)
            case _:
                assert_never(name)

    # Messages.

    def _receive(self, message: Message, now: Instant) -> None:
        if message.sender.node == self._state.me.node:
            return  # Somebody else under this node's name: nothing it says concerns this disk.
        if isinstance(message, VoteRequest):
            self._answer_vote(message, now)
            return
        if message.term > self._state.term:
            self._state.raise_term(message.term)
            self._become(RoleName.FOLLOWER, now)
        if message.term < self._state.term:
            self._receive_old(message, now)
            return
        if isinstance(message, Append | Chunk):
            require(not isinstance(self._role, Leader), "a term has one leader")
            if not isinstance(self._role, Follower):
                self._become(RoleName.FOLLOWER, now)
        following = self._role.receive(message, now)
        self._state.announce(self._role.leader)
        self._become(following, now, is_by_transfer=isinstance(message, TakeOver))

    def _receive_old(self, message: Message, now: Instant) -> None:
        """A leader of an older term learns that it leads no longer; voters of one may encourage a prospective; observers may knock."""
        state = self._state
        if isinstance(message, Append | Chunk):
            state.send(message.sender, AppendReply(state.me, state.term, False, Offset(0), Offset(0), Term(0), 0))
        elif isinstance(message, Knock) or (isinstance(message, VoteReply) and message.is_trial):
            self._become(self._role.receive(message, now), now)

    def _answer_vote(self, request: VoteRequest, now: Instant) -> None:
        state, role = self._state, self._role
        if not voting.is_asked(state, request):
            return
        if isinstance(role, Leader) and not request.is_by_transfer:
            role.knocked(request.sender)
        if request.is_trial:
            is_granted = voting.would_vote(state, request) and not role.hears_a_leader(now)
            voting.reply(state, request, is_granted=is_granted)
            return
        if request.term > state.term:
            if role.hears_a_leader(now) and not request.is_by_transfer:
                return
            state.raise_term(request.term)
            self._become(RoleName.FOLLOWER, now)
        is_granted = voting.votes(state, request, has_leader=self._role.leader is not None)
        if is_granted:
            state.vote_for(request.sender)
            if isinstance(self._role, Follower):
                self._role.postpone(now)
        voting.reply(state, request, is_granted=is_granted)
