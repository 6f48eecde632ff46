"""Any sequence of what producers, partitions, time and a node that dies can do, against books that are kept by hand.

Hypothesis looks for short ways to a defect; thousands of steps at random meet what lies far from the beginning. Coordinators that are
broken on purpose must be caught.
"""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from transactions import model
from transactions.play import EXPIRATION, GUESSED_PRODUCERS, IDS, MOODS, PLACES, SECONDS, TIMEOUTS_MS, Play, walk
from transactions.variants import VARIANTS

from penstock.errors import BrokenPromise
from penstock.simulator.knobs import replaced
from penstock.transactions.records import TransactionPartition

pytestmark = pytest.mark.invariant(
    "transactions.one-outcome",
    "transactions.fencing",
    "transactions.one-at-a-time",
    "transactions.retry-same-answer",
)

SEEDS = 120
STEPS = 120

clients = st.integers(0, 4)
ids = st.sampled_from(IDS)
places = st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)
moods = st.sampled_from(MOODS)
timeouts_ms = st.sampled_from(TIMEOUTS_MS)


class CoordinatorAgainstBooks(RuleBasedStateMachine):
    play: Play | None = None

    @initialize(epoch=st.integers(model.EPOCH_LAST - 3, model.EPOCH_LAST + 1))
    def start(self, epoch: int) -> None:
        self.play = Play(epoch)

    @rule(id=ids, is_v2=st.booleans(), timeout_ms=timeouts_ms, mood=moods)
    def begin(self, id: str, is_v2: bool, timeout_ms: int, mood: str) -> None:
        self.play.begin(id, is_v2, timeout_ms, mood)

    @precondition(lambda self: self.play.clients)
    @rule(which=clients, timeout_ms=timeouts_ms, mood=moods)
    def go_on(self, which: int, timeout_ms: int, mood: str) -> None:
        self.play.go_on(which, timeout_ms, mood)

    @precondition(lambda self: self.play.clients)
    @rule(which=clients, wanted=places, mood=moods)
    def add(self, which: int, wanted: list[TransactionPartition], mood: str) -> None:
        self.play.add(which, wanted, mood)

    @precondition(lambda self: self.play.clients)
    @rule(which=clients, wanted=st.sampled_from(PLACES))
    def verify(self, which: int, wanted: TransactionPartition) -> None:
        self.play.verify(which, wanted)

    @precondition(lambda self: self.play.clients)
    @rule(which=clients, commit=st.booleans(), mood=moods)
    def end(self, which: int, commit: bool, mood: str) -> None:
        self.play.end(which, commit, mood)

    @precondition(lambda self: self.play.clients)
    @rule(which=clients, wanted=places, commits=st.lists(st.booleans(), min_size=1, max_size=3))
    def make_transactions(self, which: int, wanted: list[TransactionPartition], commits: list[bool]) -> None:
        self.play.make_transactions(which, wanted, commits)

    @rule(id=ids, producer=st.sampled_from(GUESSED_PRODUCERS), epoch=st.integers(-1, 5), v2=st.booleans())
    def guess_a_name(self, id: str, producer: int, epoch: int, v2: bool) -> None:
        self.play.guess_a_name(id, producer, epoch, v2)

    @precondition(lambda self: self.play.scene.owed)
    @rule(which=st.integers(0, 1), some=places, is_all=st.booleans(), is_stored=st.booleans())
    def report(self, which: int, some: list[TransactionPartition], is_all: bool, is_stored: bool) -> None:
        self.play.report(which, PLACES if is_all else some, is_stored)

    @precondition(lambda self: self.play.has_late_reports)
    @rule(which=st.integers(0, 30))
    def report_late(self, which: int) -> None:
        self.play.report_late(which)

    @rule(seconds=st.sampled_from(SECONDS))
    def wait(self, seconds: float) -> None:
        self.play.wait(seconds)

    @rule()
    def die(self) -> None:
        self.play.die()

    @invariant()
    def the_coordinator_agrees_with_the_books(self) -> None:
        if self.play is not None:
            self.play.check()


TestCoordinatorAgainstBooks = CoordinatorAgainstBooks.TestCase
TestCoordinatorAgainstBooks.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

EXPECTED = [
    "restarts", "ids forgotten", "overdue", "unstored", "late reports", "the same end told again", "nothing aborted",
    "new id after a transaction", "new id for who begins", "last epoch passed over",
    *(f"begin {code.name}" for code in (model.OK, model.BUSY)),
    *(f"go on {code.name}" for code in (model.OK, model.FENCED, model.BUSY)),
    *(f"add {code.name}" for code in (model.OK, model.FENCED, model.BUSY, model.MAPPING)),
    *(f"verify {code.name}" for code in (model.OK, model.FENCED, model.BUSY, model.MAPPING, model.ABORTABLE)),
    *(f"end {code.name}" for code in (model.OK, model.FENCED, model.BUSY, model.MAPPING, model.STATE)),
]  # fmt: skip


def test_thousands_of_steps_agree_with_the_books_and_meet_everything_on_the_way() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        try:
            seen += walk(seed, STEPS)
        except (AssertionError, BrokenPromise) as found:
            pytest.fail(f"seed {seed}: {found!r}")
    assert [what for what in EXPECTED if seen[what] < 5] == [], seen


@pytest.mark.soak(stays="tests/transactions/test_model.py::test_thousands_of_steps_agree_with_the_books_and_meet_everything_on_the_way")
def test_a_million_steps_agree_with_the_books() -> None:
    for seed in range(1_000, 1_500):
        try:
            walk(seed, 2_000)
        except (AssertionError, BrokenPromise) as found:
            pytest.fail(f"seed {seed}: {found!r}")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_broken_coordinator_is_caught(variant: str) -> None:
    with replaced(VARIANTS[variant]()), pytest.raises((AssertionError, BrokenPromise)):
        for seed in range(SEEDS):
            walk(seed, STEPS)


def test_the_same_seed_tells_the_same_story() -> None:
    assert walk(7, STEPS) == walk(7, STEPS)


def test_an_id_that_nobody_uses_is_gone_within_twice_its_time() -> None:
    play = Play(0)
    play.begin("t", True, 1_000, "heard")
    for _ in range(8):
        play.wait(EXPIRATION / 4)
        play.check()
    assert play.seen["ids forgotten"] == 2
