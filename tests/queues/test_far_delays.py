"""Delays that are far away: what is kept of them where, what comes of it, and that it is bounded."""

import tracemalloc
from random import Random

import pytest
from queues.scene import START_MS, Scene

from penstock.queues import checkpoint, pages, timetable
from penstock.queues.commands import QUEUE_GROUP, Cancel, Purge, Rewind, Start, Verb
from penstock.queues.headers import Traits
from penstock.queues.messages import Kept, pack
from penstock.queues.pages import MemoryPages
from penstock.queues.policy import Policy
from penstock.queues.replies import Code
from penstock.queues.state import LedgerState, Marked
from penstock.queues.states import State
from penstock.queues.timetable import WIDTHS_MS, Timetable
from penstock.settings import DAY_MS, MINUTE_MS
from penstock.simulator.knobs import replaced
from penstock.vocabulary import Instant

WEEK_MS = 7 * DAY_MS
SMALL = [(pages, "PAGE_BYTES", 80), (timetable, "TAILS_BYTES", 200)]


class Shelf(MemoryPages):
    """Knows what lies there; may be slow, or lose everything."""

    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}
        self.is_slow = False
        self._next = 0

    def put(self, name: str, content: bytes) -> object:
        self._next += 1
        self.kept[self._next] = content
        return self._next

    def get(self, place: object) -> bytes | None:
        return None if self.is_slow else self.kept[place]

    def drop(self, place: object) -> None:
        del self.kept[place]


class FarScene(Scene):
    """A scene whose pages are counted."""

    def _new(self) -> LedgerState:
        self.shelf = Shelf()
        return LedgerState(lambda _: self.policy, lambda: self.chance, self.shelf, self.now)


@pytest.fixture(autouse=True)
def small_pages():
    with replaced(SMALL):
        yield


def entries(shelf: Shelf) -> int:
    return sum(len(pages.unpack(content).pairs) // 2 for content in shelf.kept.values())


def test_delays_that_are_far_away_lie_on_pages_and_come_in_time() -> None:
    scene = FarScene(Policy(lease_ms=3_600_000))
    for number in range(50):
        scene.send(deliver_at=scene.now + WEEK_MS + number * 1_000)
    assert entries(scene.shelf) > 30
    scene.wait(WEEK_MS - 1)
    assert scene.offsets(100) == []
    for number in range(50):
        scene.wait(1 if not number else 1_000)
        assert scene.offsets(100) == [number]
    assert not scene.shelf.kept


@pytest.mark.parametrize("from_checkpoint", [False, True])
def test_a_ledger_that_is_loaded_puts_pages_of_its_own(from_checkpoint: bool) -> None:
    scene = FarScene(Policy(is_fifo=True))
    for number in range(40):
        scene.send(deliver_at=scene.now + WEEK_MS + number % 7 * DAY_MS, group=f"g{number % 3}", priority=number % 10)
    before = scene.shelf
    scene.load(from_checkpoint=from_checkpoint)
    assert scene.shelf is not before and entries(scene.shelf) > 30
    assert scene.counts().delayed == 40
    scene.wait(20 * DAY_MS)
    assert sorted(scene.offsets(100)) == list(range(40))
    assert [scene.state.messages.options(offset).priority for offset in range(10)] == list(range(10))


def test_cancel_by_id_takes_a_message_out_of_a_page_that_nobody_reads() -> None:
    scene = FarScene()
    scene.send(20, deliver_at=scene.now + WEEK_MS)
    scene.shelf.is_slow = True
    assert scene.turn(Cancel("t", QUEUE_GROUP, (3, 4, 19))).count == 3
    assert (scene.counts().delayed, scene.stands(3), scene.stands(5)) == (17, State.DONE, State.DELAYED)
    scene.shelf.is_slow = False
    scene.load(from_checkpoint=True)
    scene.wait(WEEK_MS)
    assert scene.offsets(100) == [offset for offset in range(20) if offset not in (3, 4, 19)]


def test_a_purge_drops_all_pages_at_once() -> None:
    scene = FarScene()
    scene.send(30, deliver_at=scene.now + WEEK_MS)
    scene.turn(Purge("t", QUEUE_GROUP))
    assert (scene.shelf.kept, scene.counts().delayed, len(scene.state.messages.delays)) == ({}, 0, 0)
    offset = scene.send(deliver_at=scene.now + WEEK_MS)
    scene.wait(WEEK_MS)
    assert scene.offsets(5) == [offset]


@pytest.mark.parametrize("to", [0, 7, 30])
def test_a_rewind_learns_delays_anew_and_keeps_no_second_copy(to: int) -> None:
    scene = FarScene()
    scene.send(30, deliver_at=scene.now + WEEK_MS)
    for _ in range(3):
        scene.turn(Rewind("t", QUEUE_GROUP, to))
        scene.learn_again()
        assert (scene.counts().delayed, len(scene.state.messages.delays)) == (30, 30 if not to else len(scene.state.messages.delays))
    scene.load(from_checkpoint=True)
    scene.wait(WEEK_MS)
    assert scene.offsets(100) == list(range(30))


def test_other_messages_at_the_same_offsets_have_delays_of_their_own() -> None:
    """The log has lost its end, and something else was written there: what is known of the old messages must not count."""
    scene = FarScene()
    scene.send(20, deliver_at=scene.now + DAY_MS)
    scene.turn(Rewind("t", QUEUE_GROUP, 5))
    scene.end, scene.entries = 5, scene.entries[:5]
    scene.send(15, deliver_at=scene.now + WEEK_MS)
    scene.wait(DAY_MS)
    assert [scene.done(each) for each in scene.take(100)] == [Code.OK] * 5
    scene.wait(6 * DAY_MS)
    assert scene.offsets(100) == list(range(5, 20))


def test_a_group_that_starts_late_waits_for_the_same_delays() -> None:
    scene = FarScene()
    scene.send(12, deliver_at=scene.now + WEEK_MS)
    scene.turn(Start("t", "share", 0))
    scene.learn_again()
    assert scene.counts("share").delayed == 12
    scene.wait(WEEK_MS)
    assert scene.offsets(100, group="share") == scene.offsets(100) == list(range(12))


def test_what_expires_while_its_delay_is_far_away_is_finished_unread() -> None:
    scene = FarScene()
    scene.send(12, deliver_at=scene.now + 30 * DAY_MS, expires_at=scene.now + WEEK_MS, group="g")
    assert not scene.state.messages.kept
    scene.load(from_checkpoint=True)
    scene.wait(WEEK_MS - 1)
    assert scene.counts().delayed == 12
    scene.wait(1)
    assert (scene.counts().delayed, scene.counts().finished) == (0, 12)


def test_a_page_that_is_not_at_hand_makes_messages_late_and_nobody_spins() -> None:
    scene = FarScene()
    scene.send(10, deliver_at=scene.now + WEEK_MS)
    scene.shelf.is_slow = True
    scene.wait(WEEK_MS)
    assert (scene.offsets(100), scene.counts().delayed) == ([], 10)
    due = scene.state.due()
    assert due is not None and due > scene.instant(), "it is asked for again a little later"
    scene.shelf.is_slow = False
    scene.wait(timetable.AGAIN_MS)
    assert scene.offsets(100) == list(range(10))


def test_a_lease_of_what_was_delayed_is_loaded_with_its_group() -> None:
    """The checkpoint has it far away; that it was given since is recorded, that its time had come is not."""
    scene = FarScene(Policy(is_fifo=True, lease_ms=3_600_000))
    scene.send(10, deliver_at=scene.now + WEEK_MS, group="g")
    drawn = list(scene.state.checkpoint())
    first_record = len(scene.records)
    scene.wait(WEEK_MS)
    assert scene.offsets(1) == [0]
    state = scene._new()
    state.restore(drawn)
    for record in scene.records[first_record:]:
        state.replay(record)
    scene.state = state
    scene.learn_again()
    scene.state.begin(scene.instant(), scene.now)
    assert scene.offsets(100) == [], "the group is locked"
    assert (scene.counts().leased, scene.counts().ready, scene.counts().delayed) == (1, 9, 0)


def test_a_lease_is_loaded_with_its_group_by_a_node_whose_clock_is_behind() -> None:
    scene = FarScene(Policy(is_fifo=True, lease_ms=3_600_000))
    scene.send(10, deliver_at=scene.now + WEEK_MS, group="g")
    drawn = list(scene.state.checkpoint())
    first_record = len(scene.records)
    scene.wait(WEEK_MS)
    assert scene.offsets(1) == [0]
    scene.now -= DAY_MS
    state = scene._new()
    state.restore(drawn)
    for record in scene.records[first_record:]:
        state.replay(record)
    scene.state = state
    scene.learn_again()
    scene.state.begin(scene.instant(), scene.now)
    assert (scene.state.messages.options(0).group, scene.counts().leased, scene.counts().delayed) == (b"g", 1, 9)


def test_a_checkpoint_shows_its_moment_whatever_is_opened_while_it_is_drawn() -> None:
    scene = FarScene()
    scene.send(20, deliver_at=scene.now + WEEK_MS, group="g")
    drawing = scene.state.checkpoint()
    pieces = [next(drawing) for _ in range(3)]
    then = scene.now
    scene.wait(WEEK_MS)
    assert not scene.shelf.kept, "all pages were opened"
    pieces += list(drawing)
    scene.now = then
    scene.state = scene._new()
    scene.state.restore(pieces)
    scene.state.begin(scene.instant(), scene.now)
    assert scene.counts().delayed == 20
    scene.wait(WEEK_MS)
    assert sorted(scene.offsets(100)) == list(range(20))


def test_a_checkpoint_waits_for_a_page_that_is_not_at_hand() -> None:
    scene = FarScene()
    scene.send(20, deliver_at=scene.now + WEEK_MS)
    scene.shelf.is_slow = True
    drawing = scene.state.checkpoint()
    pieces = [next(drawing) for _ in range(8)]
    assert pieces[-1] is None
    scene.shelf.is_slow = False
    pieces += list(drawing)
    scene.state = scene._new()
    scene.state.restore(pieces)
    scene.state.begin(scene.instant(), scene.now)
    assert scene.counts().delayed == 20


def test_memory_does_not_grow_with_what_is_far_away() -> None:
    with replaced([(pages, "PAGE_BYTES", 16_384), (timetable, "TAILS_BYTES", 262_144)]):
        state = LedgerState(lambda _: Policy(), Random(1).random, Nowhere(), START_MS)
        state.begin(Instant(0), START_MS)
        tracemalloc.start()
        _learn(state, 0, 6_000)
        before = tracemalloc.get_traced_memory()[0]
        _learn(state, 6_000, 26_000)
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    assert state.counts(QUEUE_GROUP, START_MS).delayed == 26_000
    assert grown < 20_000 * 6, "a bit for each, and a line for each page; a tail in memory at most"


class Nowhere(MemoryPages):
    def put(self, name: str, content: bytes) -> object:
        return len(content)


def _learn(state: LedgerState, first: int, end: int) -> None:
    rng = Random(first)
    for offset in range(first, end):
        traits = Traits(7, START_MS + rng.randrange(DAY_MS, 60 * DAY_MS), 0, b"customer-%d" % (offset % 50), b"", START_MS)
        state.learn([Marked(offset, traits)], offset + 1)


def test_a_delay_of_eight_thousand_years_is_one_of_few_buckets() -> None:
    scene = FarScene()
    rng = Random(5)
    for _ in range(300):
        scene.send(deliver_at=scene.now + rng.randrange(200_000_000_000_000))
    assert len(list(scene.state.messages.delays.buckets())) <= timetable.LAST_MS // WIDTHS_MS[-1] - START_MS // WIDTHS_MS[-1] + 70 + 144
    assert scene.counts().delayed == 300


def test_one_call_opens_a_bounded_piece_and_says_when_to_go_on() -> None:
    store, came = MemoryPages(), list[int]()
    with replaced([(timetable, "OPENED_AT_ONCE", 10)]):
        table = Timetable("t", store, 0, counts=lambda _: True, arrived=lambda offset, _: came.append(offset))
        for offset in range(100):
            table.add(WEEK_MS + 5 * MINUTE_MS, offset, b"options")
        wall_ms, looks = WEEK_MS - 5 * MINUTE_MS, 0
        while len(came) < 100:
            assert table.pop(wall_ms) is None
            next_ms = table.next_ms(wall_ms)
            assert next_ms is not None and next_ms > wall_ms
            wall_ms, looks = next_ms, looks + 1
        assert looks >= 10
    assert wall_ms < WEEK_MS + 5 * MINUTE_MS, "ahead of time"
    assert [table.pop(WEEK_MS + 5 * MINUTE_MS) for _ in range(100)] == [(WEEK_MS + 5 * MINUTE_MS, offset) for offset in range(100)]


@pytest.mark.invariant("queues.options-kept")
def test_a_message_that_was_delayed_and_failed_keeps_its_options() -> None:
    scene = FarScene(Policy(lease_ms=10_000))
    scene.send(3, deliver_at=scene.now + WEEK_MS, priority=9)
    plain = scene.send(3)
    scene.wait(WEEK_MS)
    first, *_ = scene.take(3)
    scene.settle(first, Verb.RELEASE, 0)
    assert scene.offsets(2) == [first.offset, plain]


def test_a_checkpoint_of_an_older_penstock_is_read() -> None:
    """Delays were one by one in it, and options said by themselves when a message expires."""
    scene = FarScene()
    scene.send(12)
    head, *others = scene.state.checkpoint()
    options = checkpoint._named(3, pack(Kept(9, scene.now + 2 * WEEK_MS, b"g")))
    kept = checkpoint._HEAD.pack(checkpoint.Kind.KEPT, checkpoint.VERSION) + options
    delays = b"".join(checkpoint._PAIR.pack(scene.now + WEEK_MS, offset) for offset in range(10))
    scene.state = scene._new()
    scene.state.restore([head, kept, checkpoint._HEAD.pack(checkpoint.Kind.DELAYS, checkpoint.VERSION) + delays, *others])
    scene.state.begin(scene.instant(), scene.now)
    assert (scene.counts().delayed, scene.counts().ready) == (10, 2)
    scene.wait(WEEK_MS)
    assert scene.offsets(3) == [3, 0, 1]
    scene.wait(WEEK_MS)
    assert scene.stands(3) is State.DONE, "it has expired"


def test_a_message_whose_time_to_live_is_up_is_finished_at_once_after_a_load() -> None:
    scene = FarScene()
    scene.send(deliver_at=START_MS + WEEK_MS, expires_at=START_MS + 2_000)
    scene.now += 5_000
    assert scene.stands(0) is State.DELAYED, "time has not caused anything yet"
    scene.load(from_checkpoint=True)
    scene.wait(0)
    assert scene.stands(0) is State.DONE
