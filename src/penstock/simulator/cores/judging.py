"""What must hold at every moment in a world of cores, looked at from outside, where all disks can be seen at once."""

from collections.abc import Iterable
from zlib import crc32

from penstock.consensus.core import Core
from penstock.consensus.leader import Leader
from penstock.consensus.messages import AppendReply, Message, VoteReply, VoteRequest
from penstock.consensus.nouns import Entry, Kind, Replica, Term
from penstock.consensus.voters import Voters, VotersHistory
from penstock.simulator.cores.store import Store
from penstock.vocabulary import NodeId, Offset


class Violation(Exception):
    def __init__(self, rule: str, story: str) -> None:
        self.rule = rule
        super().__init__(f"{rule}: {story}")


class Judge:
    def __init__(self, first_voters: Voters) -> None:
        self.chosen: list[Entry] = []  # Committed, by whomever first,
        self._chosen_in: list[Term] = []  # and in which term.
        self.chain = [0]  # For each end, a checksum of everything before it.
        self.voters = VotersHistory(Offset(0), first_voters)  # As committed.
        self._first_voters_end: Offset | None = None  # Before this the log does not say who votes.
        self.values: dict[bytes, int] = {}
        self._leaders: dict[Term, Replica] = {}
        self._votes: dict[tuple[Replica, Term], NodeId] = {}

    # A moment.

    def elected(self, core: Core, me: Replica) -> None:
        if self._leaders.setdefault(core.term, me) != me:
            raise Violation("a term has one leader", f"{me.node} and {self._leaders[core.term].node} lead in term {core.term}")
        log, end = core.state.log, Offset(len(self.chosen))
        while end and self._chosen_in[end - 1] >= core.term:
            end = Offset(end - 1)  # Votes may arrive so late that a later leader has committed more: this one will not.
        if log.end < end or (end > log.start and log.term_before(end) != self.chosen[end - 1].term):
            raise Violation("a leader has everything that is committed", f"{me.node} in term {core.term}, {log.end} against {end}")

    def committed(self, core: Core, first: Offset, end: Offset, disks: Iterable[tuple[Replica, Store]]) -> None:
        if end < first:
            raise Violation("what is committed stays so", f"from {first} back to {end}")
        log = core.state.log
        at = Offset(max(first, log.start))
        if at > len(self.chosen):
            raise Violation("what is committed is the same everywhere", f"a snapshot up to {at} of {len(self.chosen)} entries")
        if at > first and log.term_before(at) != self.chosen[at - 1].term:
            raise Violation("what is committed is the same everywhere", f"a snapshot up to {at} is of another story")
        while at < end:
            for entry in log.entries(at, entries_max=end - at, bytes_max=1 << 40):
                if at == len(self.chosen):
                    self._choose(entry, core.term)
                elif self.chosen[at] != entry:
                    raise Violation("what is committed is the same everywhere", f"at {at}: {self.chosen[at]} and {entry}")
                at = Offset(at + 1)
        if isinstance(core.role, Leader):
            self._check_disks(core, end, disks)
        if self._first_voters_end is not None and end >= self._first_voters_end and core.voters_at(end) != self.voters.at(end):
            raise Violation("everybody knows who votes", f"at {end}: {core.voters_at(end)}, not {self.voters.at(end)}")

    def _choose(self, entry: Entry, term: Term) -> None:
        self.chosen.append(entry)
        self._chosen_in.append(term)
        self.chain.append(crc32(entry.payload, self.chain[-1]))
        if entry.kind is Kind.VOTERS:
            end = Offset(len(self.chosen))
            self.voters.add(end, Voters.decode(entry.payload))
            self._first_voters_end = self._first_voters_end or end
        elif entry.kind is Kind.PAYLOAD:
            if entry.payload in self.values:
                raise Violation("what is proposed once is there once", f"{entry.payload!r} at {self.values[entry.payload]}")
            self.values[entry.payload] = len(self.chosen) - 1

    def _check_disks(self, core: Core, end: Offset, disks: Iterable[tuple[Replica, Store]]) -> None:
        term = core.state.log.term_before(end)
        holders = [replica.node for replica, store in disks if core.voters.has(replica) and store.has(end, term)]
        if not core.voters.is_majority(holders):
            raise Violation("what is committed is on the disks of a majority", f"up to {end}, of {core.voters.replicas} only {holders}")

    def sent(self, to: NodeId, message: Message, store: Store) -> None:
        """A promise leaves: it must be on the disk, and not contradict another."""
        durable = store.vote.term if store.vote is not None else 0
        if message.term > durable:
            raise Violation("a term is durable before it is told", f"{message.sender.node} tells {message.term}, its disk has {durable}")
        match message:
            case VoteRequest(is_trial=False):
                self._voted(message.sender, message.term, message.sender.node)
            case VoteReply(is_trial=False, is_granted=True):
                self._voted(message.sender, message.asked_term, to)
            case AppendReply(is_accepted=True) if message.end > store.end:
                story = f"{message.sender.node} acknowledges {message.end}, its disk ends at {store.end}"
                raise Violation("what is acknowledged is durable", story)
            case _:
                pass

    def _voted(self, voter: Replica, term: Term, candidate: NodeId) -> None:
        if self._votes.setdefault((voter, term), candidate) != candidate:
            story = f"{voter.node} votes for {self._votes[voter, term]} and for {candidate} in term {term}"
            raise Violation("one vote in a term", story)

    # Now and then.

    def check_logs_match(self, stores: list[Store]) -> None:
        """Two logs with the same term at the same offset are the same up to there."""
        for place, one in enumerate(stores):
            for other in stores[place + 1 :]:
                _check_pair(one, other)

    def check_chain(self, end: Offset, chain: int, node: NodeId) -> None:
        if end >= len(self.chain) or self.chain[end] != chain:
            raise Violation("applied state is the same everywhere", f"{node} at {end}")


def _check_pair(one: Store, other: Store) -> None:
    start, end = Offset(max(one.start, other.start)), Offset(min(one.end, other.end))
    if start >= end:
        return
    mine, yours = one.entries(start, end, 1 << 40), other.entries(start, end, 1 << 40)
    same = [a.term == b.term for a, b in zip(mine, yours, strict=True)]
    last = max((at for at, is_same in enumerate(same) if is_same), default=-1)
    if list(mine[: last + 1]) != list(yours[: last + 1]):
        raise Violation("logs that agree in one entry agree before it", f"between {start} and {start + last}")
