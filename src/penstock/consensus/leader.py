"""The leader of one term.

Rules:
- It only ever appends. Its first entry is empty; when that is committed, so is everything that leaders before it had promised, and it may
  decide (`Lead`), change voters and answer barriers.
- Committed is what a majority has on its disks *and* is of this term; what is older is committed with it. A majority alone is not enough
  for entries of older terms: a later leader may rightly not have them (Figure 8 of the Raft paper).
- Its own disk counts like any other, and only if it is a voter: its entries travel while it flushes them.
- It hears from a majority within each election time-out, or it steps down: whoever waits here learns that it waits in vain.
- When it is removed it leads until its removal is committed, and then goes.
"""

from collections import deque

from penstock.consensus import changes, transfer
from penstock.consensus.effects import Answer, Done, Lead, Reason, Refused, Unknown
from penstock.consensus.events import AddVoter, AskBarrier, Order, Propose, RemoveVoter, TransferLeadership
from penstock.consensus.messages import AppendReply, ChunkReply, Knock, Message, TakeOver
from penstock.consensus.nouns import ANY_DIRECTORY, Entry, Kind, Replica
from penstock.consensus.peer import Peer
from penstock.consensus.reads import Reads
from penstock.consensus.replicating import feed
from penstock.consensus.roles import Role, RoleName
from penstock.consensus.state import State
from penstock.vocabulary import Instant, Offset


class Leader(Role):
    name = RoleName.LEADER

    def __init__(self, state: State, now: Instant) -> None:
        self._state = state
        self._now = now
        self.leader = state.me.node
        self.office_end = Offset(state.log.end + 1)  # The end of the first entry of this term.
        self._is_ready = False
        self._peers: dict[Replica, Peer] = {}
        self._reads = Reads()
        self._waiting: deque[tuple[Offset, int, object]] = deque()  # The end of a proposal, its size, whom to answer.
        self._uncommitted_bytes = 0
        self._transfer: transfer.Transfer | None = None
        self._append(Kind.OFFICE, b"")
        self.due = Instant(now + state.options.heartbeat_seconds)

    @property
    def peers(self) -> tuple[Peer, ...]:
        """For those who look on (DescribeQuorum)."""
        return tuple(self._peers.values())

    @property
    def is_ready(self) -> bool:
        return self._is_ready

    def hears_a_leader(self, now: Instant) -> bool:
        return True

    def leave(self) -> None:
        """Whoever waits learns what can be known."""
        for _, _, token in self._waiting:
            self._state.out.add(Answer(token, Unknown()))
        for token in self._reads.abandon():
            self._state.out.add(Answer(token, Refused(Reason.NOT_LEADER)))
        if self._transfer is not None:
            self._state.out.add(Answer(self._transfer.token, Done(self._state.committed_end)))
        self._waiting.clear()

    # Time.

    def time_passed(self, now: Instant) -> RoleName | None:
        if now < self.due:
            return None
        self._now = now
        if not self._hears_a_majority(now):
            return RoleName.FOLLOWER
        if self._transfer is not None and now >= self._transfer.gives_up_at:
            self._state.out.add(Answer(self._transfer.token, Refused(Reason.TRANSFER_FAILED)))
            self._transfer = None
        self._forget_silent_observers(now)
        self.due = self._beat(now)
        return None

    def _beat(self, now: Instant) -> Instant:
        for peer in self._peers.values():
            feed(self._state, peer, self._reads.round, is_beat=True)
        return Instant(now + self._state.options.heartbeat_seconds)

    def _hears_a_majority(self, now: Instant) -> bool:
        oldest = now - self._state.options.election_seconds_max
        voters = self._state.voters
        heard = [voter.node for voter in voters.replicas if self._state.is_me(voter) or self._peers[voter].heard_at >= oldest]
        return voters.is_majority(heard)

    def _forget_silent_observers(self, now: Instant) -> None:
        oldest = now - self._state.options.observer_seconds
        for replica, peer in list(self._peers.items()):
            if peer.heard_at < oldest and not self._state.voters.has(replica):
                del self._peers[replica]

    # What others say.

    def receive(self, message: Message, now: Instant) -> RoleName | None:
        self._now = now
        match message:
            case AppendReply():
                peer = self._peer(message.sender)
                if peer is not None:
                    peer.heard(message.round, now)
                    if message.is_accepted:
                        peer.accepted(message.end)
                    else:
                        peer.refused(message, self._state.log)
                    return self._progressed(peer)
            case ChunkReply():
                peer = self._peer(message.sender)
                if peer is not None:
                    peer.heard(message.round, now)
                    peer.kept(message)
                    return self._progressed(peer)
            case Knock():
                self.knocked(message.sender)
            case _:
                pass  # Votes that came too late to matter.
        return None

    def knocked(self, replica: Replica) -> None:
        """Somebody hears no leader: an observer, or a voter of old that does not know of its removal."""
        peer = self._peer(replica)
        if peer is not None:
            peer.heard_at = self._now if not self._state.voters.has(replica) else peer.heard_at
            feed(self._state, peer, self._reads.round)

    def _peer(self, sender: Replica) -> Peer | None:
        """What is known of the sender. A replica that is no voter becomes an observer by being heard, while there is room."""
        node_alone = Replica(sender.node, ANY_DIRECTORY)
        if node_alone in self._peers:
            self._peers[node_alone].identify(sender)
            return self._peers[node_alone]
        if sender not in self._peers:
            if len(self._peers) >= self._state.options.observers_max + len(self._state.voters.replicas):
                return None
            self._peers[sender] = Peer(sender, self._state.log.end, self._now)
        return self._peers[sender]

    def _progressed(self, peer: Peer) -> RoleName | None:
        self._reads.confirm(self._state.voters.reached_by_majority(self._round_of))
        following = self._commit()
        if following is None:
            feed(self._state, peer, self._reads.round)
            self._hand_over()
        return following

    def _round_of(self, voter: Replica) -> int:
        return self._reads.round if self._state.is_me(voter) else self._peers[voter].round

    def _match_of(self, voter: Replica) -> int:
        return self._state.log.durable_end if self._state.is_me(voter) else self._peers[voter].match_end

    # Commit.

    def persisted(self, now: Instant) -> RoleName | None:
        self._now = now
        return self._commit()

    def _commit(self) -> RoleName | None:
        state = self._state
        end = Offset(state.voters.reached_by_majority(self._match_of))
        if end > state.committed_end and state.log.term_before(end) == state.term:
            state.commit(end)
            for peer in self._peers.values():
                feed(state, peer, self._reads.round)
        if not state.is_voter and not changes.is_under_way(state):
            state.apply()
            self._answer_what_is_applied()
            self._ask_to_take_over(transfer.choose(state.voters, self._peers, None))
            return RoleName.FOLLOWER
        return None

    def settle(self) -> None:
        """After every step: what is applied by now is answered, and what waited for that begins."""
        state = self._state
        self._answer_what_is_applied()
        if not self._is_ready and state.applied_end >= self.office_end:
            self._is_ready = True
            state.out.add(Lead(state.term))
        if self._is_ready:
            self._write_down_what_is_owed()
        self._begin_rounds()

    def _answer_what_is_applied(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._state.applied_end:
            end, size, token = self._waiting.popleft()
            self._uncommitted_bytes -= size
            self._state.out.add(Answer(token, Done(end)))

    def _begin_rounds(self) -> None:
        self._reads.answer(self._state.applied_end, self._state.out)
        while self._reads.begin_round():
            for peer in self._peers.values():
                feed(self._state, peer, self._reads.round, is_beat=True)
            self._reads.confirm(self._state.voters.reached_by_majority(self._round_of))
            self._reads.answer(self._state.applied_end, self._state.out)

    # Orders.

    def obey(self, order: Order, now: Instant) -> None:
        self._now = now
        reason = self._refusal(order)
        if reason is not None:
            self._refuse(order.token, reason)
            return
        match order:
            case Propose():
                self._append(Kind.PAYLOAD, order.payload)
                self._await_commit(order.token, len(order.payload))
            case AskBarrier():
                self._reads.ask(order.token, self._state.committed_end)
            case AddVoter() | RemoveVoter():
                self._change(order)
            case TransferLeadership():
                self._begin_transfer(order, now)

    def _refusal(self, order: Order) -> Reason | None:
        options = self._state.options
        if not self._is_ready:
            return Reason.NOT_READY
        if self._transfer is not None and not isinstance(order, AskBarrier):
            return Reason.TRANSFERRING
        if len(self._waiting) + len(self._reads) >= options.waiting_max:
            return Reason.OVERLOADED
        if isinstance(order, Propose) and self._uncommitted_bytes > options.uncommitted_bytes_max:
            return Reason.OVERLOADED
        return None

    def _refuse(self, token: object, reason: Reason) -> None:
        self._state.out.add(Answer(token, Refused(reason, self._state.me.node)))

    def _append(self, kind: Kind, payload: bytes) -> None:
        self._state.write(self._state.log.end, (Entry(self._state.term, kind, payload),))
        self._adopt_voters()
        for peer in self._peers.values():
            feed(self._state, peer, self._reads.round)

    def _await_commit(self, token: object, size: int) -> None:
        self._waiting.append((self._state.log.end, size, token))
        self._uncommitted_bytes += size

    # Voters.

    def _change(self, order: AddVoter | RemoveVoter) -> None:
        verdict = changes.decide(self._state, order, self._peers.get(order.replica))
        if isinstance(verdict, Reason):
            self._refuse(order.token, verdict)
            return
        self._append(Kind.VOTERS, verdict.encode())
        self._await_commit(order.token, 0)

    def _write_down_what_is_owed(self) -> None:
        if self._transfer is not None or changes.is_under_way(self._state) or not self._state.is_voter:
            return
        voters = changes.owed(self._state, self._peers)
        if voters is not None:
            self._append(Kind.VOTERS, voters.encode())

    def _adopt_voters(self) -> None:
        """There is a peer for each voter. Those that no longer vote stay as observers, so that they learn of it."""
        for voter in self._state.voters.replicas:
            if self._state.is_me(voter) or voter in self._peers:
                continue
            named = self._peers.pop(Replica(voter.node, ANY_DIRECTORY), None)
            known = named if named is not None and named.replica == voter else None
            self._peers[voter] = known or Peer(voter, self._state.log.end, self._now)

    # Handing over.

    def _begin_transfer(self, order: TransferLeadership, now: Instant) -> None:
        peer = transfer.choose(self._state.voters, self._peers, order.to)
        if peer is None:
            self._refuse(order.token, Reason.NOT_A_VOTER)
            return
        gives_up_at = Instant(now + self._state.options.election_seconds_max)
        self._transfer = transfer.Transfer(order.token, peer.replica, gives_up_at)
        self._hand_over()

    def _hand_over(self) -> None:
        going = self._transfer
        if going is None or going.is_asked:
            return
        peer = self._peer(going.to)
        if peer is not None and peer.match_end == self._state.log.end:
            going.is_asked = True
            self._ask_to_take_over(peer)

    def _ask_to_take_over(self, peer: Peer | None) -> None:
        if peer is not None:
            self._state.send(peer.replica, TakeOver(self._state.me, self._state.term))
