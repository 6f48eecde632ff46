"""What a replica is, whatever its role: its term and vote, its log, its voters, and how far things are committed.

Rules that hold here and nowhere else:
- The term never falls, and in one term a replica votes for one candidate at most.
- Nothing committed is ever cut from the log.
- `committed_end` and `applied_end` never go back. They are not durable: after a restart they begin at the snapshot and are learned anew.
- What is applied is on this disk. Raft would allow to apply sooner; but a snapshot of the applied state must never be ahead of its log.
"""

from collections.abc import Callable, Iterable

from penstock.consensus.effects import Apply, Follow, KeepChunk, PersistVote
from penstock.consensus.log_view import LogView, SnapshotHead
from penstock.consensus.messages import Knock, Message
from penstock.consensus.nouns import ANY_DIRECTORY, Entry, Kind, Replica, Term
from penstock.consensus.options import Options
from penstock.consensus.outbox import Outbox
from penstock.consensus.tail import WrittenLog
from penstock.consensus.voters import Voters, VotersHistory
from penstock.errors import require
from penstock.vocabulary import Instant, NodeId, Offset

_SCAN_BYTES = 1024 * 1024


class State:
    __slots__ = (
        "_announced", "_draw", "applied_end", "committed_end", "contacts", "history", "log", "me", "options", "out", "term",
        "voted_for", "voters",
    )  # fmt: skip

    def __init__(
        self, me: Replica, view: LogView, vote: PersistVote | None, *,
        first_voters: Voters, contacts: tuple[NodeId, ...], options: Options, draw: Callable[[], float],
    ) -> None:  # fmt: skip
        self.me = me
        self.options = options
        self.contacts = contacts
        self._draw = draw
        self.out = Outbox()
        self.term = vote.term if vote is not None else Term(0)
        self.voted_for = vote.voted_for if vote is not None else None
        self.log = WrittenLog(view)
        require(self.log.last_term <= self.term, "the term is durable before any entry of it")
        self.history = _read_history(view, first_voters)
        self.voters = self.history.latest  # Those that hold now: the latest that are written.
        # Every entry below this is in the log of each leader to come.
        self.committed_end = view.start if view.snapshot is None else view.snapshot.end
        self.applied_end = self.committed_end
        self._announced: tuple[Term, NodeId | None] | None = None

    # Questions.

    @property
    def is_voter(self) -> bool:
        return self.voters.has(self.me)

    @property
    def may_stand(self) -> bool:
        """A voter, or one whose removal may not be committed: until it is, the others may need it to lead, without a vote of its own."""
        return any(voters.has(self.me) for voters in self.history.since(self.committed_end))

    def is_me(self, voter: Replica) -> bool:
        return voter.node == self.me.node and voter.directory in (self.me.directory, ANY_DIRECTORY)

    def peers(self) -> list[Replica]:
        """The other voters."""
        return [voter for voter in self.voters.replicas if not self.is_me(voter)]

    def is_at_least_as_complete(self, last_term: Term, end: Offset) -> bool:
        """Whether a log that ends so may lead this replica: it has everything that this one could have helped to commit."""
        return (last_term, end) >= (self.log.last_term, self.log.end)

    def draw_election(self, now: Instant) -> Instant:
        low, high = self.options.election_seconds_min, self.options.election_seconds_max
        return Instant(now + low + (high - low) * self._draw())

    # Changes.

    def raise_term(self, term: Term, *, voted_for: Replica | None = None) -> None:
        require(term > self.term, "the term never falls")
        self.term, self.voted_for = term, voted_for
        self.out.drop_held()
        self.out.persist_vote(term, voted_for)

    def vote_for(self, candidate: Replica) -> None:
        require(self.voted_for in (None, candidate), "one vote in a term")
        if self.voted_for is None:
            self.voted_for = candidate
            self.out.persist_vote(self.term, candidate)

    def write(self, first: Offset, entries: tuple[Entry, ...]) -> None:
        """The log goes on with these from `first`; whatever was there is cut."""
        require(first >= self.committed_end, "nothing committed is ever cut")
        self.log.replace_from(first, entries, self.out.persist_entries(first, entries))
        self.history.cut(first)
        for at, entry in enumerate(entries, first + 1):
            if entry.kind is Kind.VOTERS:
                self.history.add(Offset(at), Voters.decode(entry.payload))
        self.voters = self.history.latest

    def install(self, head: SnapshotHead) -> None:
        require(head.end > self.committed_end, "a snapshot never takes back what is committed")
        self.log.reset(head, self.out.install(head))
        self.history = VotersHistory(head.end, head.voters)
        self.voters = head.voters
        self.committed_end = self.applied_end = head.end

    def keep(self, head: SnapshotHead, position: int, content: bytes) -> None:
        self.out.add(KeepChunk(head, position, content))

    def commit(self, end: Offset) -> None:
        require(end <= self.log.end, "only what is written is committed")
        self.committed_end = max(self.committed_end, end)

    def apply(self) -> None:
        """Asks for everything to be applied that may be."""
        end = min(self.committed_end, self.log.durable_end)
        if end > self.applied_end:
            self.out.add(Apply(self.applied_end, end))
            self.applied_end = end

    def send(self, to: Replica, message: Message) -> None:
        self.out.send(to.node, message)

    def knock(self, nodes: Iterable[NodeId]) -> None:
        """Asks each of them, if it leads, for the log."""
        for node in dict.fromkeys(nodes):
            if node != self.me.node:
                self.out.send(node, Knock(self.me, self.term))

    def announce(self, leader: NodeId | None) -> None:
        """Says whom this replica follows, when that has changed."""
        if self._announced != (self.term, leader):
            self._announced = (self.term, leader)
            if leader != self.me.node:
                self.out.add(Follow(self.term, leader))


def _read_history(view: LogView, first_voters: Voters) -> VotersHistory:
    """Voters as the log tells them. Those of the beginning count only where no snapshot knows better."""
    head = view.snapshot
    history = VotersHistory(view.start, first_voters) if head is None else VotersHistory(head.end, head.voters)
    at = view.start if head is None else head.end
    while at < view.end:
        for entry in view.entries(at, view.end, _SCAN_BYTES):
            at = Offset(at + 1)
            if entry.kind is Kind.VOTERS:
                history.add(at, Voters.decode(entry.payload))
    return history
