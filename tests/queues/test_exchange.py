"""What members have done and what they take, in one decision: just what would come of one after the other."""

import random
from collections.abc import Iterator, Sequence

import pytest
from tests.queues.scene import Scene

from penstock.queues.commands import ANY_LEASE, COUNT_MAX, QUEUE_GROUP, RANGE_MAX, Exchange, Pause, Settle, Settlement, Swap, Verb
from penstock.queues.policy import Policy
from penstock.queues.records import Changed, Leased
from penstock.queues.replies import Code, Delivery, Exchanged, Settled, Taken

MEMBERS = ("one", "two", "")
PLAIN = Policy(lease_ms=1_000, deliveries_max=4)


def done(first: int, end: int, who: str = "one") -> Settlement:
    return Settlement(first, ANY_LEASE, Verb.DONE, 0, who=who, end_offset=end)


def exchange(scene: Scene, *swaps: Swap) -> tuple[Taken | None, ...]:
    reply = scene.do(Exchange("t", QUEUE_GROUP, swaps))
    assert isinstance(reply, Exchanged)
    return reply.taken


def swapped(scene: Scene, *items: Settlement, wanted: int = 2, who: str = "one") -> list[int] | None:
    (taken,) = exchange(scene, Swap(items, wanted, who))
    return None if taken is None else [each.offset for each in taken.deliveries]


def settled(scene: Scene, items: tuple[Settlement, ...]) -> list[Code]:
    reply = scene.do(Settle("t", QUEUE_GROUP, items, is_whole=True))
    assert isinstance(reply, Settled)
    return [outcome.code for outcome in reply.outcomes]


def test_both_are_decided_at_once() -> None:
    scene = Scene(PLAIN)
    scene.send(10)
    scene.take(3, who="one")
    assert swapped(scene, done(0, 3)) == [3, 4]
    assert scene.counts().base == 3
    scene.load()
    assert (scene.counts().base, scene.counts().leased) == (3, 2)


def test_who_has_nothing_to_say_gets_others_all_the_same() -> None:
    scene = Scene(PLAIN)
    scene.send(3)
    assert swapped(scene, wanted=2) == [0, 1]
    assert swapped(scene, wanted=2, who="two") == [2]
    assert swapped(scene) == []


def test_several_members_are_served_by_one_record_of_what_is_done() -> None:
    scene = Scene(PLAIN)
    scene.send(20)
    for who in ("one", "two", "three"):
        scene.take(2, who=who)
    before = len(scene.records)
    one, two, three = (Swap((done(at, at + 2, who),), 3, who) for at, who in ((0, "one"), (2, "two"), (4, "three")))
    found = exchange(scene, one, two, three)
    assert [[each.offset for each in taken.deliveries] for taken in found if taken is not None] == [[6, 7, 8], [9, 10, 11], [12, 13, 14]]
    made = scene.records[before:]
    assert [type(record) for record in made] == [Changed, Leased, Leased, Leased]
    assert [record.who for record in made if isinstance(record, Leased)] == [b"one", b"two", b"three"]
    leases = [each.lease for taken in found if taken is not None for each in taken.deliveries]
    assert leases == list(range(leases[0], leases[0] + 9))


def test_what_is_done_makes_room_for_others() -> None:
    scene = Scene(Policy(lease_ms=1_000, in_flight_max=3))
    scene.send(10)
    scene.take(3, who="one")
    assert swapped(scene, done(0, 2), wanted=5) == [3, 4]
    assert scene.counts().leased == 3


def test_nothing_is_decided_where_something_else_is_said_than_that_it_is_done() -> None:
    scene = Scene(PLAIN)
    scene.send(10)
    scene.take(4, who="one")
    release = Settlement(0, ANY_LEASE, Verb.RELEASE, 0, who="one", end_offset=2)
    assert swapped(scene, release, done(2, 4)) is None
    assert scene.counts().leased == 4


def test_nothing_is_decided_for_who_does_not_hold_all_of_it_and_others_do_not_suffer() -> None:
    scene = Scene(PLAIN)
    scene.send(10)
    scene.take(2, who="one")
    scene.take(2, who="two")
    wrong, right = Swap((done(0, 2), done(2, 4)), 1, "one"), Swap((done(2, 4, "two"),), 1, "two")
    found = exchange(scene, wrong, right)
    assert found[0] is None
    assert found[1] is not None
    assert [each.offset for each in found[1].deliveries] == [4]
    assert scene.counts().leased == 3


@pytest.mark.parametrize(
    "swaps",
    [
        (Swap((done(0, RANGE_MAX + 1),), 1, "one"),),
        (Swap(tuple(done(at, at + 1) for at in range(COUNT_MAX + 1)), 1, "one"),),
        (Swap((done(0, 1),), COUNT_MAX, "one"), Swap((), 1, "two")),
        (Swap((done(0, 1),), 0, "one"),),
        (Swap((done(0, 1),), 1, "one"), Swap((done(0, 1),), 1, "one")),
        (),
    ],
)
def test_it_has_the_bounds_of_its_halves_and_each_member_comes_once(swaps: tuple[Swap, ...]) -> None:
    scene = Scene(Policy(lease_ms=1_000, in_flight_max=100_000))
    scene.send(RANGE_MAX + 10)
    for _ in range(RANGE_MAX // COUNT_MAX + 1):
        scene.take(COUNT_MAX, who="one")
    assert exchange(scene, *swaps) == (None,) * len(swaps)
    assert scene.counts().base == 0


def test_nothing_is_decided_for_a_group_that_is_not_there() -> None:
    scene = Scene(PLAIN)
    reply = scene.do(Exchange("t", "share", (Swap((), 1, "one"),)))
    assert reply == Exchanged((None,))


def test_a_paused_queue_gives_nothing() -> None:
    scene = Scene(PLAIN)
    scene.send(10)
    scene.take(2, who="one")
    scene.turn(Pause("t", QUEUE_GROUP))
    assert exchange(scene, Swap((done(0, 2),), 1, "one")) == (Taken((), is_paused=True),)
    assert scene.counts().base == 2


POLICIES = [
    PLAIN,
    Policy(lease_ms=1_000, in_flight_max=5, deliveries_max=3),
    Policy(lease_ms=1_000, is_fifo=True),
    Policy(lease_ms=1_000, is_fair=True, dead_letter="dead", deliveries_max=2),
    Policy(lease_ms=1_000, ttl_ms=5_000),
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(8))
def test_it_is_the_same_as_one_after_the_other(policy: Policy, seed: int) -> None:
    rng, together, apart = random.Random(seed), Scene(policy), Scene(policy)
    held: dict[str, list[Delivery]] = {who: [] for who in MEMBERS}
    decided = 0
    for _ in range(150):
        options = {"group": rng.choice("ab")} if rng.random() < 0.3 else {"expires_at": together.now + 900} if rng.random() < 0.1 else {}
        count, ms = rng.randrange(6), rng.choice((0, 1, 300, 1_100))
        for scene in (together, apart):
            scene.send(count, **options)
            scene.wait(ms)
        swaps = [Swap(tuple(said(rng, held[who], who)), rng.randrange(1, 6), who) for who in rng.sample(MEMBERS, rng.randrange(1, 4))]
        found = exchange(together, *swaps)
        expected = one_after_the_other(apart, [swap for swap, taken in zip(swaps, found, strict=True) if taken is not None])
        assert [taken for taken in found if taken is not None] == expected
        decided += len(expected)
        for swap, taken in zip(swaps, found, strict=True):
            if taken is not None:
                held[swap.who] = [*([] if rng.random() < 0.8 else held[swap.who]), *taken.deliveries]
            elif swap.items:  # Nothing was done for it: it comes again in another way.
                assert settled(together, swap.items) == settled(apart, swap.items)
                held[swap.who] = together.take(swap.wanted, who=swap.who)
                assert held[swap.who] == apart.take(swap.wanted, who=swap.who)
        assert together.counts() == apart.counts()
    assert (decided > 100) is not (policy.is_fifo or policy.is_fair)
    together.load()
    assert together.counts() == apart.counts()


def one_after_the_other(scene: Scene, swaps: Sequence[Swap]) -> list[Taken]:
    """First what is done, then who gets what."""
    for swap in swaps:
        assert not swap.items or set(settled(scene, swap.items)) == {Code.OK}
    return [scene.taken(swap.wanted, who=swap.who) for swap in swaps]


def said(rng: random.Random, held: list[Delivery], who: str) -> Iterator[Settlement]:
    """Of runs side by side, mostly that they are done; now and then of more than is held."""
    offsets = sorted({each.offset for each in held})
    while offsets:
        end = 1
        while end < len(offsets) and offsets[end] == offsets[0] + end:
            end += 1
        verb = rng.choices((Verb.DONE, Verb.RELEASE, Verb.REJECT), (20, 1, 1))[0]
        yield Settlement(offsets[0], ANY_LEASE, verb, 0, who=who, end_offset=offsets[end - 1] + 1 + (rng.random() < 0.05))
        del offsets[:end]
