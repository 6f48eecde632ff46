"""Any sequence of what senders, workers, time and a node that dies can do, against books that are kept by hand.

Hypothesis looks for short ways to a defect; thousands of steps at random meet what lies far from the beginning. Ledgers that are broken on
purpose must be caught.
"""

from collections import Counter
from collections.abc import Iterator
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
from tiers import pick

from penstock.errors import BrokenPromise
from penstock.queues.commands import QUEUE_GROUP, Verb
from penstock.simulator.knobs import replaced

pytestmark = pytest.mark.invariant(
    "queues.no-message-lost",
    "queues.one-holder",
    "queues.no-early-delivery",
    "queues.deliveries-counted",
    "queues.done-stays-done",
    "queues.load-equals-ledger",
    "queues.only-holder-settles",
    "queues.lease-expires",
    "queues.expired-not-delivered",
    "queues.dedup-window",
    "queues.dead-letter-after-limit",
)

SEEDS = pick(test=3, slow=6)  # Of each policy; of every two, one has tiny buckets and pages.
SEEDS_FOR_A_DEFECT = 30
STEPS = 120
# Policy and seed of the shortest walk that caught each last: tried first, to save time.
CAUGHT_LAST = {
    "buries-one-delivery-late": ("retries", 1),
    "counts-a-lost-lapse-as-recorded": ("fifo with a delay", 0),
    "counts-what-was-given-back-untouched": ("fifo with a delay", 0),
    "delivers-early": ("fifo with a delay", 0),
    "does-not-count-deliveries-after-a-failure": ("fifo", 0),
    "does-not-know-an-id-before-it-is-learned": ("fifo", 0),
    "does-not-lock-groups": ("fifo with a delay", 1),
    "finishes-neighbours": ("short-lived", 0),
    "forgets-a-bucket": ("fifo", 0),
    "forgets-a-group-whose-first-one-has-expired": ("fifo with backoff", 7),
    "forgets-common-delays-at-a-restore": ("fifo with a delay", 5),
    "forgets-dead-letters-at-a-restore": ("retries", 16),
    "forgets-dedup-ids-at-a-restore": ("sqs", 10),
    "forgets-delays-at-a-restore": ("sqs", 1),
    "forgets-failures-at-a-restore": ("sqs", 1),
    "forgets-leases-at-a-restore": ("sqs", 1),
    "forgets-locks-at-a-load": ("fifo with backoff", 3),
    "forgets-near-delays-at-a-restore": ("retries", 6),
    "forgets-options-at-a-restore": ("fifo with a delay", 1),
    "forgets-options-in-a-bucket": ("fifo with backoff", 0),
    "forgets-the-attempts-of-who-comes-back": ("fifo", 0),
    "forgets-what-is-done-at-a-restore": ("sqs", 1),
    "forgets-who-waits-at-a-restore": ("fifo with a delay", 1),
    "forgets-who-waits-in-order-at-a-restore": ("fifo with a delay", 1),
    "gives-a-lease-twice": ("guarded", 1),
    "gives-a-plain-lease-twice": ("guarded", 1),
    "gives-back-what-is-too-old": ("short-lived", 1),
    "gives-what-has-expired": ("short-lived", 0),
    "ignores-priorities": ("short-lived", 0),
    "keeps-options-of-what-is-unlearned": ("fifo", 9),
    "keeps-what-is-too-old": ("short-lived", 0),
    "lets-a-delay-hold-for-all-that-is-learned-anew": ("sqs", 0),
    "lets-ids-count-too-long": ("guarded", 0),
    "lets-those-who-wait-keep-their-delay": ("fifo with a delay", 3),
    "locks-the-whole-group": ("fifo with a delay", 8),
    "loses-priorities-on-retry": ("fifo", 1),
    "never-finishes-what-has-expired": ("fifo with backoff", 0),
    "never-lapses": ("fifo with a delay", 0),
    "rounds-times-down": ("fifo with a delay", 0),
    "takes-a-lapsed-lease-for-a-good-one": ("fifo with a delay", 0),
    "takes-any-lease-for-the-last-one": ("fifo with a delay", 4),
    "takes-up-again-what-was-given-back": ("sqs", 10),
    "tries-again-early": ("retries", 1),
    "undoes-what-somebody-has": ("sqs", 8),
    "unlocks-a-group-with-the-first-one-that-is-done": ("fifo with a delay", 7),
}

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


TestLedgerAgainstBooks = pytest.mark.repeats(LedgerAgainstBooks.TestCase)
TestLedgerAgainstBooks.settings = settings(max_examples=pick(test=15, slow=30), stateful_step_count=30, deadline=None)

EXPECTED = [
    "taken", "taken again", "duplicates", "cancelled", "buried", "loads", "pages",
    "DONE OK", "DONE GONE", "DONE LOST", "RELEASE OK", "RELEASE LOST",
    "REJECT OK", "EXTEND OK", "EXTEND LOST", "UNDO OK", "UNDO LOST", "RETURN OK", "RETURN LOST", "the same attempt",
    "delays changed", "delays changed while somebody waits",
]  # fmt: skip


@pytest.mark.repeats
def test_thousands_of_steps_agree_with_the_books_and_meet_everything_on_the_way() -> None:
    seen: Counter[str] = Counter()
    for policy in POLICIES:
        for seed in range(SEEDS):
            try:
                seen += walk(policy, seed, STEPS)
            except (AssertionError, BrokenPromise) as found:
                pytest.fail(f"{policy}, seed {seed}: {found!r}")
    assert [what for what in EXPECTED if not seen[what]] == [], seen


@pytest.mark.soak(stays="tests/queues/test_model.py::test_thousands_of_steps_agree_with_the_books_and_meet_everything_on_the_way")
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
        for policy, seed in walks_for(variant):
            walk(policy, seed, STEPS)


def walks_for(variant: str) -> Iterator[tuple[str, int]]:
    if variant in CAUGHT_LAST:
        yield CAUGHT_LAST[variant]
    for seed in range(SEEDS_FOR_A_DEFECT):
        for policy in ("fifo", "retries", "guarded", "sqs", "fifo with backoff", "fifo with a delay", "short-lived"):
            yield policy, seed
