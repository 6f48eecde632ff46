"""A follower: takes the leader's entries, keeps them, says how far they are durable. An observer is one that does not vote.

Rules:
- The log is cut only where an entry's term contradicts the leader's. A leader's older message that ends earlier than the log cuts nothing:
  what stands behind it was acknowledged to that same leader.
- `verified_end`: everything below is what this leader has. Only that is acknowledged, and only as far as it is durable.
- Committed here is what the leader has committed, as far as it is verified.
- A snapshot replaces the log only if the log doesn't hold the snapshot's last entry. If it does, the log has all of it already, and what
  stands behind it may have been acknowledged.
"""

from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.messages import Append, AppendReply, Chunk, ChunkReply, Message, TakeOver
from penstock.consensus.nouns import Entry, Replica
from penstock.consensus.roles import Role, RoleName
from penstock.consensus.state import State
from penstock.errors import require
from penstock.vocabulary import Instant, NodeId, Offset


class Follower(Role):
    name = RoleName.FOLLOWER

    def __init__(self, state: State, now: Instant) -> None:
        self._state = state
        self.leader: NodeId | None = None
        self._leads: Replica | None = None
        self._heard_at = now
        # Alone there is nobody to wait for.
        self.due = now if state.is_voter and not state.peers() else state.draw_election(now)
        self._verified_end = Offset(0)  # Everything below this is in the leader's log too.
        self._round = 0  # The leader's latest question.
        self._owes_reply = False
        self._arriving: SnapshotHead | None = None
        self._arrived = 0  # So many bytes of it are there.

    def hears_a_leader(self, now: Instant) -> bool:
        return self.leader is not None and now < self._heard_at + self._state.options.election_seconds_min

    def postpone(self, now: Instant) -> None:
        """A vote was given away: the one who has it gets time to win."""
        self.due = self._state.draw_election(now)

    def time_passed(self, now: Instant) -> RoleName | None:
        if now < self.due:
            return None
        if self._state.may_stand:
            return RoleName.PROSPECTIVE
        self.due = self._state.draw_election(now)
        self._state.knock((*self._state.contacts, *(peer.node for peer in self._state.peers())))
        return None

    def receive(self, message: Message, now: Instant) -> RoleName | None:
        match message:
            case Append():
                self._hear(message.sender, message.round, now)
                self._take(message)
            case Chunk():
                self._hear(message.sender, message.round, now)
                self._take_chunk(message)
            case TakeOver() if message.sender == self._leads and self._state.may_stand:
                return RoleName.CANDIDATE
            case _:
                pass  # Replies to what this replica asked in another role.
        return None

    def persisted(self, now: Instant) -> RoleName | None:
        if self._owes_reply:
            self._accept()
        return None

    def _hear(self, leader: Replica, round_number: int, now: Instant) -> None:
        require(self._leads in (None, leader), "a term has one leader")
        self._leads, self.leader = leader, leader.node
        self._heard_at = now
        self.due = self._state.draw_election(now)
        self._round = max(self._round, round_number)

    # Entries.

    def _take(self, append: Append) -> None:
        state, first, entries = self._state, append.first, append.entries
        if first < state.committed_end:
            # What is committed is the leader's: nothing there needs a look, and some of it may be gone into a snapshot.
            entries = entries[state.committed_end - first :]
            first = state.committed_end
        elif first > state.log.end or state.log.term_before(first) != append.previous_term:
            self._refuse(append)
            return
        is_new = self._write_what_is_new(first, entries)
        self._verified_end = max(self._verified_end, Offset(first + len(entries)))
        state.commit(min(append.committed_end, self._verified_end))
        if is_new:
            self._owes_reply = True
        else:
            self._accept()

    def _write_what_is_new(self, first: Offset, entries: tuple[Entry, ...]) -> bool:
        """Skips what is there already; what contradicts it is cut, together with all that follows."""
        log = self._state.log
        for count, entry in enumerate(entries):
            offset = Offset(first + count)
            if offset == log.end or log.term_before(Offset(offset + 1)) != entry.term:
                self._state.write(offset, entries[count:])
                return True
        return False

    def _refuse(self, append: Append) -> None:
        log = self._state.log
        end = log.end_not_above(append.previous_term, min(log.end, append.first))
        hint = AppendReply(self._state.me, self._state.term, False, append.first, end, log.term_before(end), self._round)
        self._state.send(append.sender, hint)

    def _accept(self) -> None:
        leader = self._leads
        if leader is None:
            return
        durable = min(self._verified_end, self._state.log.durable_end)
        self._owes_reply = self._verified_end > durable
        reply = AppendReply(self._state.me, self._state.term, True, durable, durable, self._state.term, self._round)
        self._state.send(leader, reply)

    # A snapshot.

    def _take_chunk(self, chunk: Chunk) -> None:
        state, head = self._state, chunk.head
        if self._has_all_of(head):
            state.commit(head.end)
            self._verified_end = max(self._verified_end, head.end)
            self._accept()
            return
        if self._arriving != head:
            self._arriving, self._arrived = head, 0
        if chunk.position == self._arrived:
            state.keep(head, chunk.position, chunk.content)
            self._arrived += len(chunk.content)
        if self._arrived < head.size:
            state.send(chunk.sender, ChunkReply(state.me, state.term, head.end, self._arrived, self._round))
            return
        require(self._arrived == head.size, "the pieces of a snapshot add up")
        self._arriving, self._arrived = None, 0
        state.install(head)
        self._verified_end = head.end
        self._owes_reply = True

    def _has_all_of(self, head: SnapshotHead) -> bool:
        log = self._state.log
        return head.end <= self._state.committed_end or (head.end <= log.end and log.term_before(head.end) == head.term)
