"""What is to be expected of a coordinator, kept as a person would keep it: one book for each id, and all that was ever promised.

The books are written by hand from the rules and share nothing with the code that they judge. A step returns what the asker is to hear, and
the book as it is after that; whoever plays the steps puts that book in the place of the old one, unless the decision could not be stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from penstock.errors import ErrorCode

EPOCH_LAST = 32_766  # The largest that anybody may have.

OK, FENCED, MAPPING = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
STATE, BUSY, ABORTABLE = ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.TRANSACTION_ABORTABLE

PlainName = tuple[int, int]
NO_NAME: PlainName = (-1, -1)
Place = tuple[str, bytes, int]


@dataclass(frozen=True)
class Book:
    name: PlainName
    phase: str = "empty"  # empty, open, commit or abort while it is about to end, commit! or abort! when it has.
    before: PlainName = NO_NAME  # Who may ask for its name again.
    after: PlainName = NO_NAME  # Who waits for the end under a new id.
    places: tuple[Place, ...] = ()
    unmarked: tuple[Place, ...] = ()
    number: int = 0
    is_v2: bool = True
    timeout: float = 0.0
    deadline: float = 0.0
    used: float = 0.0

    @property
    def is_ending(self) -> bool:
        return self.phase in ("commit", "abort")

    @property
    def is_free(self) -> bool:
        return self.phase in ("empty", "commit!", "abort!")

    def is_mine(self, name: PlainName) -> bool:
        return name == self.name and name[1] <= EPOCH_LAST

    def refusal(self, name: PlainName) -> ErrorCode:
        return FENCED if name[0] == self.name[0] else MAPPING


@dataclass
class Heard:
    code: ErrorCode
    name: PlainName = NO_NAME
    book: Book | None = None  # None: nothing is recorded.


def grown(book: Book, fresh: int) -> PlainName:
    return (book.name[0], book.name[1] + 1) if book.name[1] < EPOCH_LAST else (fresh, 0)


def begin(book: Book | None, name: PlainName | None, fresh: int, timeout: float, now: float) -> Heard:
    if book is None:
        return Heard(OK, (fresh, 0), Book((fresh, 0), timeout=timeout, used=now))
    knows_itself = name is None or book.is_mine(name)
    asks_again = name is not None and name == book.before
    waits = name is not None and name == book.after
    if not (knows_itself or asks_again or waits):
        return Heard(FENCED)
    if book.is_ending:
        return Heard(BUSY)
    if book.phase == "open":
        return Heard(BUSY, book=overdue(book, now)) if knows_itself else Heard(FENCED)
    given = book.name if asks_again and book.name[1] <= EPOCH_LAST else grown(book, fresh)
    return Heard(OK, given, replace(book, name=given, before=name or NO_NAME, phase="empty", timeout=timeout, used=now))


def add(book: Book | None, name: PlainName, places: Sequence[Place], *, v2: bool, now: float) -> Heard:
    fault = may_not_add(book, name)
    if book is None or fault is not None:
        return Heard(fault or MAPPING)
    new = tuple(place for place in dict.fromkeys(places) if place not in book.places)
    if not new:
        return Heard(OK)
    if book.phase == "open":
        return Heard(OK, book=replace(book, places=book.places + new, is_v2=v2, used=now))
    opened = replace(book, phase="open", places=new, number=book.number + 1, deadline=now + book.timeout, is_v2=v2, used=now)
    return Heard(OK, book=opened)


def may_not_add(book: Book | None, name: PlainName) -> ErrorCode | None:
    if book is None:
        return MAPPING
    if name == book.after != NO_NAME:
        return BUSY
    if not book.is_mine(name):
        return book.refusal(name)
    return BUSY if book.is_ending else None


def verified(book: Book | None, name: PlainName, place: Place) -> ErrorCode:
    fault = may_not_add(book, name)
    if book is None or fault is not None:
        return fault or MAPPING
    return OK if place in book.places else ABORTABLE


def end_1(book: Book | None, name: PlainName, *, commit: bool, now: float) -> Heard:
    if book is None:
        return Heard(MAPPING)
    if not book.is_mine(name):
        return Heard(book.refusal(name))
    word = "commit" if commit else "abort"
    if book.phase == "open":
        return Heard(OK, book=replace(book, phase=word, unmarked=book.places, is_v2=False, used=now))
    return Heard({word: BUSY, word + "!": OK}.get(book.phase, STATE))


def end_2(book: Book | None, name: PlainName, fresh: int, *, commit: bool, now: float) -> Heard:
    if book is None:
        return Heard(MAPPING)
    word = "commit" if commit else "abort"
    if book.is_mine(name):
        if book.phase == "open":
            return _settle(book, word, fresh, now)
        if book.is_ending:
            return Heard(BUSY)
        if commit:
            return Heard(STATE)
        given = grown(book, fresh)
        return Heard(OK, given, replace(book, name=given, before=book.name, phase="abort!", is_v2=True, used=now))
    if name == book.after != NO_NAME:
        return Heard(BUSY)
    if name == book.before and book.is_v2 and book.phase not in ("empty", "open"):
        return _told_again(book, name, word, fresh, now)
    return Heard(book.refusal(name))


def _settle(book: Book, word: str, fresh: int, now: float) -> Heard:
    given = grown(book, fresh)
    marker = (book.name[0], book.name[1] + 1)
    after = given if given != marker else NO_NAME
    settled = replace(book, name=marker, before=book.name, after=after, phase=word, unmarked=book.places, is_v2=True, used=now)
    return Heard(OK, given, settled)


def _told_again(book: Book, name: PlainName, word: str, fresh: int, now: float) -> Heard:
    if book.phase == word:
        return Heard(BUSY)
    if book.phase != word + "!":
        return Heard(STATE)
    if book.name[1] <= EPOCH_LAST:
        return Heard(OK, book.name)
    return Heard(OK, (fresh, 0), replace(book, name=(fresh, 0), before=name, used=now))


def overdue(book: Book, now: float) -> Book:
    """Aborted over its producer's head."""
    marker = (book.name[0], book.name[1] + 1)
    return replace(book, name=marker, before=book.name, phase="abort", unmarked=book.places, is_v2=True, used=now)


def marked(book: Book | None, name: PlainName, number: int, places: Sequence[Place], now: float) -> Book | None:
    """None: that was not about this transaction."""
    if book is None or not book.is_ending or (book.name, book.number) != (name, number):
        return None
    left = tuple(place for place in book.unmarked if place not in places)
    if left:
        return replace(book, unmarked=left)
    over = replace(book, phase=book.phase + "!", places=(), unmarked=(), used=now)
    return over if book.after == NO_NAME else replace(over, name=book.after, after=NO_NAME)


@dataclass
class Client:
    """A producer with what it believes. It may have missed an answer."""

    id: str
    incarnation: int
    name: PlainName
    is_v2: bool
    number: int = 0  # Of the transaction to which it has added something.


@dataclass
class Promises:
    """All that was ever told, for ever."""

    owner: dict[tuple[str, PlainName], int] = field(default_factory=dict)  # Which incarnation was given a name.
    ended: dict[tuple[str, int, int], bool] = field(default_factory=dict)  # How a transaction of an incarnation of an id ends.

    def given(self, client: Client, name: PlainName) -> None:
        assert name[1] <= EPOCH_LAST, "the last epoch is kept back"
        assert self.owner.setdefault((client.id, name), client.incarnation) == client.incarnation, "a name is given to one producer"

    def ends(self, id: str, producer: int, number: int, commit: bool) -> None:
        """Also for what partitions are told."""
        assert self.ended.setdefault((id, producer, number), commit) == commit, "a transaction ends in one way"
