"""Any sequence of what senders, workers, time and a node that dies can do, against books that are kept by hand.

Hypothesis looks for short ways to a defect; thousands of steps at random meet what lies far from the beginning. Ledgers that are broken on
purpose must be caught.
"""

from collections import Counter
from contextlib import ExitStack

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from queues.play import (
    ATTEMPTS,
    COMMON_DELAYS_MS,
    DEDUPS,
    DELAYS_MS,
    GROUPS,
    LEASES_MS,
    POLICIES,
    REASONS,
    SHARE,
    TINY,
    WAITS_MS,
    Play,
    walk,
)
from queues.variants import VARIANTS

from penstock.errors import BrokenPromise
from penstock.queues.commands import QUEUE_GROUP, Verb
from penstock.simulator.knobs import replaced

SEEDS = 6
STEPS = 120

groups = st.sampled_from((QUEUE_GROUP, SHARE))


class LedgerAgainstBooks(RuleBasedStateMachine):
    play: Play | None = None

    def __init__(self) -> None:
        super().__init__()
        self.sizes = ExitStack()

    def teardown(self) -> None:
        self.sizes.close()

    @initialize(policy=st.sampled_from(sorted(POLICIES)), is_tiny=st.booleans())
    def begin(self, policy: str, is_tiny: bool) -> None:
        self.sizes.enter_context(replaced(TINY if is_tiny else []))
        self.play = Play(policy)

    @rule(count=st.integers(1, 4))
    def send(self, count: int) -> None:
        self.play.send(count)

    @rule(
        priority=st.sampled_from((0, 4, 9)), delay_ms=st.sampled_from(DELAYS_MS), ttl_ms=st.sampled_from((0, 2_000)),
        group=st.sampled_from(GROUPS), dedup=st.sampled_from(DEDUPS), is_by_log=st.booleans(),
    )  # fmt: skip
    def send_marked(self, **options: object) -> None:
        self.play.send_marked(**options)

    @rule(
        group=groups, count=st.integers(1, 5), lease_ms=st.sampled_from(LEASES_MS), attempt=st.sampled_from(ATTEMPTS),
        is_stored=st.booleans(),
    )  # fmt: skip
    def take(self, group: str, count: int, lease_ms: int | None, attempt: str, is_stored: bool) -> None:
        self.play.take(group, count, lease_ms, attempt=attempt, is_stored=is_stored)

    @rule(which=st.integers(0, 11), verb=st.sampled_from(Verb), delay_ms=st.sampled_from((None, 0, 2_000)), reason=st.sampled_from(REASONS))
    def settle(self, which: int, verb: Verb, delay_ms: int | None, reason: str) -> None:
        self.play.settle(which, verb, delay_ms, reason)

    @rule(ms=st.sampled_from(WAITS_MS), is_noticed=st.booleans())
    def wait(self, ms: int, is_noticed: bool) -> None:
        self.play.wait(ms, is_noticed=is_noticed)

    @rule(group=groups, offset=st.integers(0, 10))
    def cancel(self, group: str, offset: int) -> None:
        self.play.cancel(group, offset)

    @rule(delay_ms=st.sampled_from(COMMON_DELAYS_MS), is_stored=st.booleans())
    def change_delay(self, delay_ms: int, is_stored: bool) -> None:
        if self.play.has_delay:
            self.play.change_delay(delay_ms, is_stored=is_stored)

    @rule()
    def bury(self) -> None:
        self.play.bury()

    @rule(group=groups)
    def purge(self, group: str) -> None:
        self.play.purge(group)

    @rule(group=groups, back=st.integers(0, 6))
    def rewind(self, group: str, back: int) -> None:
        self.play.rewind(group, back)

    @rule(at=st.integers(0, 6))
    def start(self, at: int) -> None:
        self.play.start(at)

    @rule()
    def note_checkpoint(self) -> None:
        self.play.note_checkpoint()

    @rule(from_scratch=st.booleans())
    def die(self, from_scratch: bool) -> None:
        self.play.die(from_scratch=from_scratch)

    @invariant()
    def the_ledger_agrees_with_the_books(self) -> None:
        if self.play is not None:
            self.play.check()


TestLedgerAgainstBooks = LedgerAgainstBooks.TestCase
TestLedgerAgainstBooks.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)

EXPECTED = [
    "taken", "taken again", "duplicates", "cancelled", "buried", "loads", "pages",
    "DONE OK", "DONE GONE", "DONE LOST", "RELEASE OK", "RELEASE LOST",
    "REJECT OK", "EXTEND OK", "EXTEND LOST", "UNDO OK", "UNDO LOST", "RETURN OK", "RETURN LOST", "the same attempt",
    "delays changed", "delays changed while somebody waits",
]  # fmt: skip


def test_thousands_of_steps_agree_with_the_books_and_meet_everything_on_the_way() -> None:
    seen: Counter[str] = Counter()
    for policy in POLICIES:
        for seed in range(SEEDS):
            try:
                seen += walk(policy, seed, STEPS)
            except (AssertionError, BrokenPromise) as found:
                pytest.fail(f"{policy}, seed {seed}: {found!r}")
    assert [what for what in EXPECTED if not seen[what]] == [], seen


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("policy", POLICIES)
def test_many_more_steps_agree_with_the_books(policy: str) -> None:
    for seed in range(1_000, 1_100):
        try:
            walk(policy, seed, 300)
        except (AssertionError, BrokenPromise) as found:
            pytest.fail(f"{policy}, seed {seed}: {found!r}")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_broken_ledger_is_caught(variant: str) -> None:
    with replaced(VARIANTS[variant]()), pytest.raises((AssertionError, BrokenPromise)):
        for seed in range(5 * SEEDS):
            for policy in ("fifo", "retries", "guarded", "sqs", "fifo with backoff", "fifo with a delay", "short-lived"):
                walk(policy, seed, STEPS)
