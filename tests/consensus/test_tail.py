"""The log as a core knows it is the log that it wrote, however far its shell has come with the disk."""

from random import Random

import pytest

from penstock.consensus.effects import InstallSnapshot, PersistEntries
from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.nouns import DirectoryId, Entry, Kind, Term
from penstock.consensus.tail import WrittenLog
from penstock.consensus.voters import Voters
from penstock.errors import BrokenPromise
from penstock.simulator.cores.store import Store
from penstock.vocabulary import Offset


class Model:
    """A core's log over a disk that shows what it has written at once, or only when it is durable."""

    def __init__(self, rng: Random, *, is_eager: bool) -> None:
        self.rng, self.is_eager = rng, is_eager
        self.store = Store(DirectoryId(bytes(16)))
        self.log = WrittenLog(self.store)
        self.start, self.entries = 0, []  # What it should be.
        self.ends: list[tuple[int, int, int]] = []  # Sequence, first, end of what is under way.
        self.term, self.sequence, self.durable_end = 1, 0, 0

    def write(self) -> None:
        """From anywhere at or above the start, a few entries of a newer term."""
        self.sequence += 1
        self.term += 1
        first = self.rng.randint(self.start, self.start + len(self.entries))
        made = tuple(Entry(Term(self.term), Kind.PAYLOAD, bytes(self.rng.randint(0, 5))) for _ in range(self.rng.randint(1, 3)))
        self.entries = self.entries[: first - self.start] + list(made)
        self.log.replace_from(Offset(first), made, self.sequence)
        self._under_way(first, PersistEntries(self.sequence, Offset(first), made))

    def install(self) -> None:
        self.sequence += 1
        self.term += 1
        end = self.start + len(self.entries) + self.rng.randint(1, 3)
        head = SnapshotHead(Offset(end), Term(self.term), Voters(), 0)
        self.start, self.entries = end, []
        self.log.reset(head, self.sequence)
        self._under_way(0, InstallSnapshot(self.sequence, head))

    def _under_way(self, first: int, persist: PersistEntries | InstallSnapshot) -> None:
        self.durable_end = min(self.durable_end, first)
        self.ends.append((self.sequence, first, self.start + len(self.entries)))
        self.store.write(persist)
        if self.is_eager:
            self.store.flush(self.sequence)

    def persist(self) -> None:
        if self.ends:
            sequence, _, end = self.ends[self.rng.randrange(len(self.ends))]
            self.store.flush(sequence)
            self.ends = [one for one in self.ends if one[0] > sequence]
            self.durable_end = min([end, *(first for _, first, _ in self.ends)])
            self.log.persisted(sequence)

    def check(self) -> None:
        log, end = self.log, self.start + len(self.entries)
        assert (log.start, log.end, log.durable_end) == (self.start, end, self.durable_end)
        for offset, entry in enumerate(self.entries, self.start):
            assert log.term_before(Offset(offset + 1)) == entry.term
            got = log.entries(Offset(offset), entries_max=2, bytes_max=6)
            assert 1 <= len(got) <= 2
            assert list(got) == self.entries[offset - self.start : offset - self.start + len(got)]
        for term in range(self.term + 1):
            expected = max([self.start, *(at for at, entry in enumerate(self.entries, self.start + 1) if entry.term <= term)])
            assert log.end_not_above(Term(term), Offset(end)) == expected or log.term_before(Offset(self.start)) > term


@pytest.mark.parametrize("is_eager", [False, True])
def test_the_log_is_what_was_written_whatever_the_disk_has_done(is_eager: bool) -> None:
    for seed in range(60):
        rng = Random(seed)
        model = Model(rng, is_eager=is_eager)
        for _ in range(25):
            act = rng.choice((model.write, model.write, model.write, model.persist, model.persist, model.install))
            if act == model.install and is_eager and model.ends:
                act = model.persist  # A disk puts a snapshot in the log's place when it is whole, not before.
            act()
            model.check()


def test_a_log_has_no_gaps() -> None:
    log = WrittenLog(Store(DirectoryId(bytes(16))))
    with pytest.raises(BrokenPromise, match="no gaps"):
        log.replace_from(Offset(1), (Entry(Term(1), Kind.OFFICE, b""),), 1)


def test_a_cut_takes_back_at_once_what_may_be_promised() -> None:
    store = Store(DirectoryId(bytes(16)))
    log = WrittenLog(store)
    entries = tuple(Entry(Term(1), Kind.PAYLOAD, b"x") for _ in range(3))
    for sequence, first, made in ((1, 0, entries), (2, 1, (Entry(Term(2), Kind.PAYLOAD, b"y"),))):
        store.write(PersistEntries(sequence, Offset(first), made))
        log.replace_from(Offset(first), made, sequence)
    store.flush(1)
    log.persisted(1)
    assert (log.durable_end, log.end) == (1, 2)
    store.flush(2)
    log.persisted(2)
    assert (log.durable_end, log.end) == (2, 2)
