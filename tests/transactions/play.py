"""What producers, partitions, time and a node that dies do to a coordinator, step by step, with the books kept beside it.

Each step says beforehand what is to be heard and recorded, and compares. `check` compares all that can be seen. `walk` takes steps at
random, as a seed has it; whoever looks for the shortest way to a defect takes them one by one.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from transactions import model
from transactions.model import NO_NAME, Book, Client, Heard, PlainName, Promises
from transactions.scene import WALL_MS, Scene, place

from penstock.errors import ErrorCode
from penstock.transactions.names import Name
from penstock.transactions.records import TransactionPartition, TransactionSaved
from penstock.transactions.states import TransactionState
from penstock.transactions.views import MarkersOwed
from penstock.vocabulary import ProducerId

IDS = ("t", "old")  # The second one has nearly used up its epochs.
PLACES = (place("a"), place("a", 1), place("b"))
MOODS = ("heard", "heard", "heard", "heard", "unheard", "unstored")  # Whether an answer arrives, and whether a record is stored.
TIMEOUTS_MS = (1_000, 60_000)
EXPIRATION = 600.0
SECONDS = (0.25, 0.5, 1.0, 30.0, 60.0, EXPIRATION, 2 * EXPIRATION)
OLD_PRODUCER = 7
GUESSED_PRODUCERS = (OLD_PRODUCER, 1_000, 1_001, 5)
PHASES = {
    TransactionState.EMPTY: "empty", TransactionState.ONGOING: "open", TransactionState.PREPARE_COMMIT: "commit",
    TransactionState.PREPARE_ABORT: "abort", TransactionState.COMPLETE_COMMIT: "commit!", TransactionState.COMPLETE_ABORT: "abort!",
}  # fmt: skip
LATE_MAX = 30  # Reports that may still come.

Places = Sequence[TransactionPartition]


class Play:
    def __init__(self, epoch: int) -> None:
        self.scene = Scene(transactional_id_expiration_ms=int(EXPIRATION * 1000))
        self.clients: list[Client] = []
        self.seen: Counter[str] = Counter()
        self._books = {"old": Book((OLD_PRODUCER, epoch), phase="abort!", timeout=1.0, used=self.scene.now)}
        self._promises = Promises()
        self._owed_before: list[MarkersOwed] = []
        self._incarnations = 0
        self.scene.put(
            TransactionSaved(
                transactional_id="old", producer_id=ProducerId(OLD_PRODUCER), producer_epoch=epoch, timeout_ms=1_000,
                state=TransactionState.COMPLETE_ABORT, updated_ms=WALL_MS, client_version=2,
            )
        )  # fmt: skip

    # Producers

    def begin(self, id: str, is_v2: bool, timeout_ms: int, mood: str) -> None:
        self._incarnations += 1
        client = Client(id, self._incarnations, NO_NAME, is_v2)
        heard = model.begin(self._books.get(id), None, self.scene.next_fresh, timeout_ms / 1000, self.scene.now)
        reply = self._play("begin", id, heard, mood, lambda: self.scene.init(id=id, timeout_ms=timeout_ms, is_transaction_v2=is_v2))
        self._name(client, heard, reply, mood)
        if client.name != NO_NAME:
            self.clients.append(client)

    def go_on(self, which: int, timeout_ms: int, mood: str) -> None:
        client = self._client(which)
        heard = model.begin(self._books.get(client.id), client.name, self.scene.next_fresh, timeout_ms / 1000, self.scene.now)
        name = _name(client.name)
        reply = self._play("go on", client.id, heard, mood, lambda: self.scene.init(name, id=client.id, timeout_ms=timeout_ms))
        self._name(client, heard, reply, mood)

    def add(self, which: int, wanted: Places, mood: str) -> None:
        client = self._client(which)
        heard = model.add(self._books.get(client.id), client.name, wanted, v2=client.is_v2, now=self.scene.now)
        name = _name(client.name)
        reply = self._play("add", client.id, heard, mood, lambda: self.scene.add(name, *wanted, id=client.id, v2=client.is_v2))
        if reply is not None:
            assert reply.partitions == tuple((each, heard.code) for each in wanted)
            if heard.code is ErrorCode.NONE:
                assert reply.number == self._books[client.id].number
                client.number = reply.number

    def verify(self, which: int, wanted: TransactionPartition) -> None:
        client = self._client(which)
        expected = model.verified(self._books.get(client.id), client.name, wanted)
        self.seen[f"verify {expected.name}"] += 1
        assert self.scene.added(_name(client.name), wanted, id=client.id, verify=True) is expected
        assert self.scene.recorded == []

    def end(self, which: int, commit: bool, mood: str) -> None:
        client = self._client(which)
        book, number, now = self._books.get(client.id), client.number, self.scene.now
        if client.is_v2:
            heard = model.end_2(book, client.name, self.scene.next_fresh, commit=commit, now=now)
        else:
            heard = model.end_1(book, client.name, commit=commit, now=now)
        self.seen["the same end told again"] += heard.code is ErrorCode.NONE and heard.book is None
        name = _name(client.name)
        reply = self._play("end", client.id, heard, mood, lambda: self.scene.end(name, id=client.id, commit=commit, v2=client.is_v2))
        if reply is not None and reply.error is ErrorCode.NONE and number:
            self._promises.ends(client.id, name.producer_id, number, commit)
        self._name(client, heard, reply, mood)

    def make_transactions(self, which: int, wanted: Places, commits: Sequence[bool]) -> None:
        """As they mostly go, undisturbed: otherwise what comes after many of them would hardly ever be seen."""
        for commit in commits:
            self.add(which, wanted, "heard")
            self.end(which, commit, "heard")
            self.check()
            for owed in self.scene.owed:
                self._report(owed, PLACES, is_stored=True)

    def guess_a_name(self, id: str, producer: int, epoch: int, v2: bool) -> None:
        name = (producer, epoch if id == "t" else model.EPOCH_LAST - 2 + epoch)
        heard = model.add(self._books.get(id), name, PLACES, v2=v2, now=self.scene.now)
        reply = self._play("guess", id, heard, "heard", lambda: self.scene.add(_name(name), *PLACES, id=id, v2=v2))
        assert {code for _, code in reply.partitions} == {heard.code}

    # Partitions

    def report(self, which: int, some: Places, is_stored: bool) -> None:
        self._report(self.scene.owed[which % len(self.scene.owed)], some, is_stored=is_stored)

    @property
    def has_late_reports(self) -> bool:
        return bool(self._owed_before)

    def report_late(self, which: int) -> None:
        late = self._owed_before[which % len(self._owed_before)]
        self.seen["late reports"] += late not in self.scene.owed
        self._report(late, PLACES, is_stored=True)

    # Time and nodes

    def wait(self, seconds: float) -> None:
        self.scene.wait(seconds)
        now = self.scene.now
        for id, book in list(self._books.items()):
            if book.phase == "open" and book.deadline <= now:
                self._books[id] = model.overdue(book, book.deadline)
                self.seen["overdue"] += 1
            elif book.is_free and self.scene.coordinator.describe(id) is None:
                assert now >= book.used + EXPIRATION, "an id that is used is kept"
                self.seen["ids forgotten"] += 1
                del self._books[id]

    def die(self) -> None:
        """Whoever coordinates after it owes everything again."""
        self.seen["restarts"] += 1
        self.scene.restart()
        for id, book in self._books.items():
            if book.is_ending:
                self._books[id] = model.replace(book, unmarked=book.places)

    # What must hold

    def check(self) -> None:
        coordinator = self.scene.coordinator
        assert coordinator.size == len(self._books)
        for id, book in self._books.items():
            saved, view = self.scene.saved(id), coordinator.describe(id)
            assert view is not None
            assert (PHASES[view.state], view.producer_id, view.producer_epoch) == (book.phase, *book.name)
            assert (saved.last_producer_id, saved.last_producer_epoch) == book.before
            assert (saved.next_producer_id == -1) == (book.after == NO_NAME)
            assert (view.number, view.partitions, view.timeout_ms) == (book.number, book.places, book.timeout * 1000)
            assert book.phase != "open" or self.scene.now < book.deadline
        self._check_what_is_owed()

    def _check_what_is_owed(self) -> None:
        found = {owed.transactional_id: owed for owed in self.scene.owed}
        assert found.keys() == {id for id, book in self._books.items() if book.is_ending}
        for id, owed in found.items():
            book = self._books[id]
            assert (owed.producer_id, owed.producer_epoch) == book.name
            assert (owed.number, owed.partitions, owed.is_v2) == (book.number, book.unmarked, book.is_v2)
            self._promises.ends(id, owed.producer_id, owed.number, owed.is_commit)
            if owed not in self._owed_before:
                self._owed_before = [*self._owed_before[-LATE_MAX:], owed]

    # Playing

    def _client(self, which: int) -> Client:
        """One of the last few: the others have been fenced many times."""
        return self.clients[-1 - which % min(len(self.clients), 5)]

    def _play(self, what: str, id: str, heard: Heard, mood: str, ask: Callable[[], Any]) -> Any:
        self.seen[f"{what} {heard.code.name}"] += 1
        self.scene.is_disk_full = mood == "unstored"
        reply = ask()
        self.scene.is_disk_full = False
        assert (len(self.scene.recorded) == 1) == (heard.book is not None)
        if reply is None:
            assert heard.book is not None
            self.seen["unstored"] += 1
            return None
        if heard.book is not None:
            self._turn_over(id, heard.book)
        if hasattr(reply, "error"):
            assert reply.error is heard.code
            assert (reply.producer_id, reply.producer_epoch) == heard.name
        return reply

    def _name(self, client: Client, heard: Heard, reply: Any, mood: str) -> None:
        if reply is not None and heard.name != NO_NAME:
            self._promises.given(client, heard.name)
            if mood == "heard":
                client.name, client.number = heard.name, 0

    def _report(self, owed: MarkersOwed, some: Places, *, is_stored: bool) -> None:
        id = owed.transactional_id
        after = model.marked(self._books.get(id), (owed.producer_id, owed.producer_epoch), owed.number, some, self.scene.now)
        self.scene.is_disk_full = not is_stored
        self.scene.report(owed, *some)
        self.scene.is_disk_full = False
        is_over = after is not None and not after.is_ending
        assert (len(self.scene.recorded) == 1) == is_over
        if after is not None and (is_stored or not is_over):
            self._turn_over(id, after)

    def _turn_over(self, id: str, after: Book) -> None:
        before = self._books.get(id)
        self._books[id] = after
        if before is not None:
            is_other = after.name[0] != before.name[0]
            self.seen["new id after a transaction"] += is_other and before.is_ending
            self.seen["new id for who begins"] += is_other and after.phase == "empty"
            self.seen["last epoch passed over"] += is_other and not before.is_ending and before.name[1] > model.EPOCH_LAST
            self.seen["nothing aborted"] += before.phase == "empty" and after.phase == "abort!"


def _name(name: PlainName) -> Name:
    return Name(ProducerId(name[0]), name[1])


def walk(seed: int, steps: int) -> Counter[str]:
    """What was met on the way."""
    dice = Random(seed)
    play = Play(dice.randint(model.EPOCH_LAST - 3, model.EPOCH_LAST + 1))
    for _ in range(steps):
        _step(play, dice)
        play.check()
    return play.seen


def _step(play: Play, dice: Random) -> None:
    which, mood, flag = dice.randrange(5), dice.choice(MOODS), dice.random() < 0.5
    some = dice.sample(PLACES, dice.randint(1, 3))
    draw = dice.random()
    if draw < 0.05 or not play.clients:
        play.begin(dice.choice(IDS), flag, dice.choice(TIMEOUTS_MS), mood)
    elif draw < 0.10:
        play.go_on(which, dice.choice(TIMEOUTS_MS), mood)
    elif draw < 0.33:
        play.add(which, some, mood)
    elif draw < 0.38:
        play.verify(which, some[0])
    elif draw < 0.58:
        play.end(which, flag, mood)
    elif draw < 0.66:
        play.make_transactions(which, some, [dice.random() < 0.5 for _ in range(dice.randint(1, 3))])
    elif draw < 0.68:
        play.guess_a_name(dice.choice(IDS), dice.choice(GUESSED_PRODUCERS), dice.randint(-1, 5), flag)
    elif draw < 0.84 and play.scene.owed:
        play.report(which, PLACES if flag else some, is_stored=mood != "unstored")
    elif draw < 0.88 and play.has_late_reports:
        play.report_late(dice.randrange(LATE_MAX))
    elif draw < 0.98:
        play.wait(dice.choices(SECONDS, (40, 40, 20, 5, 5, 1, 4))[0])
    else:
        play.die()
