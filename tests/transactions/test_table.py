"""Every request in every state with every name: one claim for each field of the tables. Where nothing is to be recorded, nothing is.

`+` is recorded and answered without an error, `=` answered without an error and not recorded; `F` PRODUCER_FENCED, `M`
INVALID_PRODUCER_ID_MAPPING, `S` INVALID_TXN_STATE, `C` CONCURRENT_TRANSACTIONS, `C+` the same and recorded, `A` TRANSACTION_ABORTABLE.
The names are, in the order of the columns: the current one, the one before the last bump, an older epoch, a newer epoch, another id.
"""

from collections.abc import Callable

import pytest
from transactions.scene import FOREIGN_PRODUCER, TIMEOUT_MS, A, B, Scene, named, snapshot

from penstock.errors import ErrorCode
from penstock.transactions.names import NOBODY, Name
from penstock.transactions.states import MOVES, TransactionState

COLUMNS = ("current", "previous", "older", "newer", "foreign")
CODES = {
    "+": ErrorCode.NONE, "=": ErrorCode.NONE, "F": ErrorCode.PRODUCER_FENCED, "M": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "S": ErrorCode.INVALID_TXN_STATE, "C": ErrorCode.CONCURRENT_TRANSACTIONS, "C+": ErrorCode.CONCURRENT_TRANSACTIONS,
    "A": ErrorCode.TRANSACTION_ABORTABLE,
}  # fmt: skip


def empty() -> Scene:
    """With a name before the current one, and older ones."""
    scene = Scene()
    for _ in range(3):
        name = scene.begin()
    scene.init(name)
    return scene


def ongoing() -> Scene:
    scene = empty()
    assert scene.added(current(scene), A) is ErrorCode.NONE
    return scene


def preparing(*, commit: bool, v2: bool) -> Scene:
    scene = ongoing()
    assert scene.ended(current(scene), commit=commit, v2=v2) is ErrorCode.NONE
    return scene


def overdue() -> Scene:
    scene = ongoing()
    scene.wait(TIMEOUT_MS / 1000)
    return scene


def done(scene: Scene) -> Scene:
    scene.write_markers()
    return scene


STATES: dict[str, tuple[TransactionState, Callable[[], Scene]]] = {
    "Empty": (TransactionState.EMPTY, empty),
    "Ongoing": (TransactionState.ONGOING, ongoing),
    "PrepareCommit 1": (TransactionState.PREPARE_COMMIT, lambda: preparing(commit=True, v2=False)),
    "PrepareCommit 2": (TransactionState.PREPARE_COMMIT, lambda: preparing(commit=True, v2=True)),
    "PrepareAbort 1": (TransactionState.PREPARE_ABORT, lambda: preparing(commit=False, v2=False)),
    "PrepareAbort 2": (TransactionState.PREPARE_ABORT, lambda: preparing(commit=False, v2=True)),
    "PrepareAbort overdue": (TransactionState.PREPARE_ABORT, overdue),
    "CompleteCommit 1": (TransactionState.COMPLETE_COMMIT, lambda: done(preparing(commit=True, v2=False))),
    "CompleteCommit 2": (TransactionState.COMPLETE_COMMIT, lambda: done(preparing(commit=True, v2=True))),
    "CompleteAbort 1": (TransactionState.COMPLETE_ABORT, lambda: done(preparing(commit=False, v2=False))),
    "CompleteAbort 2": (TransactionState.COMPLETE_ABORT, lambda: done(preparing(commit=False, v2=True))),
    "CompleteAbort overdue": (TransactionState.COMPLETE_ABORT, lambda: done(overdue())),
}


def current(scene: Scene) -> Name:
    saved = scene.saved()
    return Name(saved.producer_id, saved.producer_epoch)


def names(scene: Scene) -> dict[str, Name]:
    saved = scene.saved()
    return {
        "current": Name(saved.producer_id, saved.producer_epoch),
        "previous": Name(saved.last_producer_id, saved.last_producer_epoch),
        "older": Name(saved.producer_id, saved.producer_epoch - 2),
        "newer": Name(saved.producer_id, saved.producer_epoch + 1),
        "foreign": Name(FOREIGN_PRODUCER, saved.producer_epoch),
    }


INIT = """
Empty                 +  +  F  F  F
Ongoing               C+ F  F  F  F
PrepareCommit 1       C  C  F  F  F
PrepareCommit 2       C  C  F  F  F
PrepareAbort 1        C  C  F  F  F
PrepareAbort 2        C  C  F  F  F
PrepareAbort overdue  C  C  F  F  F
CompleteCommit 1      +  +  F  F  F
CompleteCommit 2      +  +  F  F  F
CompleteAbort 1       +  +  F  F  F
CompleteAbort 2       +  +  F  F  F
CompleteAbort overdue +  +  F  F  F
"""

ADD = """
Empty                 +  F  F  F  M
Ongoing               +  F  F  F  M
PrepareCommit 1       C  F  F  F  M
PrepareCommit 2       C  F  F  F  M
PrepareAbort 1        C  F  F  F  M
PrepareAbort 2        C  F  F  F  M
PrepareAbort overdue  C  F  F  F  M
CompleteCommit 1      +  F  F  F  M
CompleteCommit 2      +  F  F  F  M
CompleteAbort 1       +  F  F  F  M
CompleteAbort 2       +  F  F  F  M
CompleteAbort overdue +  F  F  F  M
"""

VERIFY = """
Empty                 A  F  F  F  M
Ongoing               A  F  F  F  M
PrepareCommit 1       C  F  F  F  M
PrepareCommit 2       C  F  F  F  M
PrepareAbort 1        C  F  F  F  M
PrepareAbort 2        C  F  F  F  M
PrepareAbort overdue  C  F  F  F  M
CompleteCommit 1      A  F  F  F  M
CompleteCommit 2      A  F  F  F  M
CompleteAbort 1       A  F  F  F  M
CompleteAbort 2       A  F  F  F  M
CompleteAbort overdue A  F  F  F  M
"""

ADD_AGAIN = "Ongoing               =  F  F  F  M"

COMMIT_1 = """
Empty                 S  F  F  F  M
Ongoing               +  F  F  F  M
PrepareCommit 1       C  F  F  F  M
PrepareCommit 2       C  F  F  F  M
PrepareAbort 1        S  F  F  F  M
PrepareAbort 2        S  F  F  F  M
PrepareAbort overdue  S  F  F  F  M
CompleteCommit 1      =  F  F  F  M
CompleteCommit 2      =  F  F  F  M
CompleteAbort 1       S  F  F  F  M
CompleteAbort 2       S  F  F  F  M
CompleteAbort overdue S  F  F  F  M
"""

ABORT_1 = """
Empty                 S  F  F  F  M
Ongoing               +  F  F  F  M
PrepareCommit 1       S  F  F  F  M
PrepareCommit 2       S  F  F  F  M
PrepareAbort 1        C  F  F  F  M
PrepareAbort 2        C  F  F  F  M
PrepareAbort overdue  C  F  F  F  M
CompleteCommit 1      S  F  F  F  M
CompleteCommit 2      S  F  F  F  M
CompleteAbort 1       =  F  F  F  M
CompleteAbort 2       =  F  F  F  M
CompleteAbort overdue =  F  F  F  M
"""

COMMIT_2 = """
Empty                 S  F  F  F  M
Ongoing               +  F  F  F  M
PrepareCommit 1       C  F  F  F  M
PrepareCommit 2       C  C  F  F  M
PrepareAbort 1        C  F  F  F  M
PrepareAbort 2        C  S  F  F  M
PrepareAbort overdue  C  S  F  F  M
CompleteCommit 1      S  F  F  F  M
CompleteCommit 2      S  =  F  F  M
CompleteAbort 1       S  F  F  F  M
CompleteAbort 2       S  S  F  F  M
CompleteAbort overdue S  S  F  F  M
"""

ABORT_2 = """
Empty                 +  F  F  F  M
Ongoing               +  F  F  F  M
PrepareCommit 1       C  F  F  F  M
PrepareCommit 2       C  S  F  F  M
PrepareAbort 1        C  F  F  F  M
PrepareAbort 2        C  C  F  F  M
PrepareAbort overdue  C  C  F  F  M
CompleteCommit 1      +  F  F  F  M
CompleteCommit 2      +  S  F  F  M
CompleteAbort 1       +  F  F  F  M
CompleteAbort 2       +  =  F  F  M
CompleteAbort overdue +  =  F  F  M
"""


def init(scene: Scene, name: Name) -> ErrorCode:
    reply = scene.init(name)
    assert reply is not None
    assert (reply.producer_id == -1) == (reply.error is not ErrorCode.NONE)
    return reply.error


def ending(*, commit: bool, v2: bool) -> Callable[[Scene, Name], ErrorCode]:
    def end(scene: Scene, name: Name) -> ErrorCode:
        reply = scene.end(name, commit=commit, v2=v2)
        assert reply is not None
        assert (reply.producer_id != -1) == (v2 and reply.error is ErrorCode.NONE)
        return reply.error

    return end


TABLES: dict[str, tuple[str, Callable[[Scene, Name], ErrorCode]]] = {
    "init": (INIT, init),
    "add 1": (ADD, lambda scene, name: scene.added(name, B)),
    "add 2": (ADD, lambda scene, name: scene.added(name, B, v2=True)),
    "add again": (ADD_AGAIN, lambda scene, name: scene.added(name, A)),
    "verify": (VERIFY, lambda scene, name: scene.added(name, B, verify=True)),
    "verify what is there": (ADD_AGAIN, lambda scene, name: scene.added(name, A, verify=True)),
    "commit 1": (COMMIT_1, ending(commit=True, v2=False)),
    "abort 1": (ABORT_1, ending(commit=False, v2=False)),
    "commit 2": (COMMIT_2, ending(commit=True, v2=True)),
    "abort 2": (ABORT_2, ending(commit=False, v2=True)),
}

FIELDS = [
    (request, " ".join(words[:-5]), column, expected)
    for request, (table, _) in TABLES.items()
    for words in (line.split() for line in table.strip().splitlines())
    for column, expected in zip(COLUMNS, words[-5:], strict=True)
]


@pytest.mark.parametrize("state", STATES)
def test_the_scenes_of_this_page_are_what_they_say(state: str) -> None:
    expected, build = STATES[state]
    scene = build()
    assert scene.state is expected
    assert len(set(names(scene).values())) == len(COLUMNS)


def test_the_tables_have_every_state() -> None:
    for request in TABLES.keys() - {"add again", "verify what is there"}:
        assert {state for asked, state, _, _ in FIELDS if asked == request} == STATES.keys()


@pytest.mark.invariant("transactions.invalid-requests-refused")
@pytest.mark.parametrize(("request_name", "state", "column", "expected"), FIELDS)
def test_every_field(request_name: str, state: str, column: str, expected: str) -> None:
    scene = STATES[state][1]()
    before = snapshot(scene.coordinator)
    scene.wait(0.001)  # A record tells when it was made.
    assert TABLES[request_name][1](scene, names(scene)[column]) is CODES[expected]
    if expected.endswith("+"):
        assert len(scene.recorded) == 1
        assert snapshot(scene.coordinator) != before
    else:
        assert scene.recorded == []
        assert snapshot(scene.coordinator) == before


@pytest.mark.parametrize("state", STATES)
def test_a_producer_that_begins_fences_or_waits(state: str) -> None:
    scene = STATES[state][1]()
    before = current(scene)
    reply = scene.init()
    assert reply is not None
    if scene.saved().state.is_ending:
        assert reply.error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert len(scene.recorded) == (state == "Ongoing")
    else:
        assert named(reply) == Name(before.producer_id, before.producer_epoch + 1)
        assert scene.saved().last_producer_epoch == -1
        assert init(scene, before) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("id", ["", "another"])
def test_an_id_that_is_not_there_is_told_so(id: str, v2: bool) -> None:
    scene = ongoing()
    expected = ErrorCode.INVALID_PRODUCER_ID_MAPPING if id else ErrorCode.INVALID_REQUEST
    name = current(scene)
    assert scene.added(name, A, id=id, v2=v2) is expected
    assert scene.added(name, A, id=id, verify=True) is expected
    for commit in (False, True):
        assert scene.ended(name, id=id, commit=commit, v2=v2) is expected
    assert scene.recorded == []
    assert scene.coordinator.size == 1


def test_every_move_of_the_table_is_made_and_no_other() -> None:
    """By the requests of this page, each from every state, and by time."""
    made = set()
    for build in (build for _, build in STATES.values()):
        for act in (*(act for _, act in TABLES.values()), lambda scene, _: scene.init(NOBODY)):
            for act_then in (lambda _: None, Scene.write_markers, lambda scene: scene.wait(scene.settings.id_expiration_ms / 1000 + 4_000)):
                scene = build()
                before = scene.state
                act(scene, current(scene))
                made.add((before, scene.state))
                before = scene.state
                act_then(scene)
                made.add((before, scene.state))
    unmoved = {(state, state) for state in TransactionState}
    assert made - unmoved == MOVES.keys() - unmoved
