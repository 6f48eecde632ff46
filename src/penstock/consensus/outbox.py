"""The effects of one step, and the messages that wait for the disk.

Rule: no message leaves before the term and the vote behind it are durable. A replica that told a term and forgot it could vote twice in it.
Acknowledgements of entries need no gate of their own: they name `durable_end`, which moves when the disk has spoken.
When the term changes, what still waits is dropped: to lose a message is always allowed, and it spoke for a term that is over.
"""

from penstock.consensus.effects import Effect, InstallSnapshot, PersistEntries, PersistVote, Send
from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.messages import Message
from penstock.consensus.nouns import Entry, Replica, Term
from penstock.vocabulary import NodeId, Offset


class Outbox:
    __slots__ = ("_effects", "_held", "_issued", "_vote_sequence", "persisted_sequence")

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._held: list[Send] = []
        self._issued = 0
        self._vote_sequence = 0
        self.persisted_sequence = 0

    @property
    def is_vote_durable(self) -> bool:
        return self.persisted_sequence >= self._vote_sequence

    def add(self, effect: Effect) -> None:
        self._effects.append(effect)

    def send(self, to: NodeId, message: Message) -> None:
        if self.is_vote_durable:
            self._effects.append(Send(to, message))
        else:
            self._held.append(Send(to, message))

    def persist_vote(self, term: Term, voted_for: Replica | None) -> None:
        self._issued += 1
        self._vote_sequence = self._issued
        self._effects.append(PersistVote(self._issued, term, voted_for))

    def persist_entries(self, first: Offset, entries: tuple[Entry, ...]) -> int:
        self._issued += 1
        self._effects.append(PersistEntries(self._issued, first, entries))
        return self._issued

    def install(self, head: SnapshotHead) -> int:
        self._issued += 1
        self._effects.append(InstallSnapshot(self._issued, head))
        return self._issued

    def persisted(self, sequence: int) -> None:
        self.persisted_sequence = max(self.persisted_sequence, sequence)
        if self.is_vote_durable and self._held:
            self._effects += self._held
            self._held = []

    def drop_held(self) -> None:
        self._held = []

    def take(self) -> list[Effect]:
        taken, self._effects = self._effects, []
        return taken
