"""Records and checkpoints as bytes: what is written reads back, and what this node doesn't know it refuses."""

import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from queues.play import POLICIES, Play, step
from queues.scene import Scene

from penstock.cluster.records import UnknownRecord
from penstock.errors import BrokenPromise
from penstock.queues import checkpoint
from penstock.queues.commands import QUEUE_GROUP, Take, Verb
from penstock.queues.policy import Policy
from penstock.queues.records import Buried, Changed, CheckpointPiece, Leased, Record, Returned, Turn, Turned, decode, encode
from penstock.queues.replies import Delivery, Taken
from penstock.queues.state import LedgerState

longs = st.integers(0, (1 << 63) - 1)
names = st.text(min_size=1, max_size=40)
words = st.binary(max_size=200)
whos = st.binary(max_size=64)
pairs = st.tuples(longs, longs)

records = st.one_of(
    st.builds(Leased, names, longs, longs, longs, whos, st.binary(max_size=128), st.lists(longs, max_size=20).map(tuple)),
    st.builds(
        Changed, names, longs, st.lists(pairs, max_size=5).map(tuple),
        st.lists(st.builds(Returned, longs, longs, longs, st.booleans(), whos, words), max_size=5).map(tuple),
        st.lists(pairs, max_size=5).map(tuple), st.lists(st.builds(Buried, longs, whos, words), max_size=5).map(tuple), st.booleans(),
    ),
    st.builds(Turned, names, longs, st.sampled_from(Turn), longs, longs),
    st.builds(CheckpointPiece, longs, st.integers(0, 1_000), st.booleans(), st.binary(max_size=100)),
)  # fmt: skip


@given(records)
def test_a_record_reads_back(record: Record) -> None:
    assert decode(*encode(record)) == record


@given(records, st.data())
def test_a_record_that_is_cut_off_is_never_believed(record: Record, data: st.DataObject) -> None:
    key, value = encode(record)
    if isinstance(record, CheckpointPiece):
        value = value[: len(value) - len(record.content)]  # Its content is the checkpoint's own affair.
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(BrokenPromise):
        decode(key, value[:cut])


def test_forms_that_this_node_does_not_know_are_refused() -> None:
    key, value = encode(Turned("g", 1, Turn.PAUSED))
    with pytest.raises(UnknownRecord, match="start a newer Penstock"):
        decode(key, struct.pack(">h", 2) + value[2:])
    with pytest.raises(UnknownRecord, match="start a newer Penstock"):
        decode(struct.pack(">h", 9) + key[2:], value)
    with pytest.raises(BrokenPromise):
        decode(key, None)


@pytest.mark.parametrize("head", [struct.pack("<BH", 1, 2), struct.pack("<BH", 99, 1)])
def test_a_checkpoint_of_an_unknown_form_is_refused(head: bytes) -> None:
    state = LedgerState(lambda _: Policy(), lambda: 0.5)
    with pytest.raises(UnknownRecord, match="start a newer Penstock"):
        state.restore([head + bytes(16)])


def test_a_checkpoint_that_is_cut_off_is_not_believed() -> None:
    scene = Scene()
    scene.send(3, group="a")
    scene.release(scene.take()[0], 5, reason="boom")
    for at, piece in enumerate(pieces := list(scene.state.checkpoint())):
        if len(piece) > 3:
            with pytest.raises(BrokenPromise):
                LedgerState(lambda _: Policy(), lambda: 0.5).restore([*pieces[:at], piece[:-1]])


def test_a_checkpoint_shows_the_moment_at_which_it_was_begun() -> None:
    scene = Scene(Policy(deliveries_max=2, dead_letter="dead"))
    scene.send(40)
    scene.send(10, group="a", priority=7, deliver_at=scene.now + 5_000, dedup="x")
    held = scene.take(10)
    scene.settle(held[0], Verb.REJECT, reason="boom")
    before = [list(scene.state.checkpoint()), scene.counts()]
    drawn = scene.state.checkpoint()
    first = next(drawn)
    scene.take(5)
    for delivery in held[1:]:
        scene.done(delivery)
    scene.send(5, priority=9)
    scene.wait(40_000)
    assert [first, *drawn] == before[0]


def test_large_checkpoints_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "PIECE_BYTES", 300)
    scene = Scene()
    scene.send(200)
    scene.take(100)
    scene.send(50, priority=2)
    pieces = list(scene.state.checkpoint())
    assert len(pieces) > 20 and max(map(len, pieces)) < 500
    before = scene.counts()
    scene.load(from_checkpoint=True)
    assert scene.counts() == before


@pytest.mark.invariant("queues.load-equals-ledger")
@pytest.mark.parametrize("policy", POLICIES)
def test_at_every_step_all_ways_to_load_give_the_same_order(policy: str) -> None:
    """The live ledger, one from all records, and one from the last checkpoint give out everything in the same order."""
    for seed in range(2):
        play, rng = Play(policy), Random(seed)
        for _ in range(60):
            step(play, rng)
            states = [play.state, play.loaded(from_scratch=True), play.loaded(from_scratch=False)]
            given = [in_order_of_delivery(state, play) for state in states]
            assert given[0] == given[1] == given[2]


def in_order_of_delivery(state: LedgerState, play: Play) -> list[Delivery]:
    decision = state.decide(Take("t", QUEUE_GROUP, 1_000, None, "w"), play.instant(), play.now)
    reply = decision.replies[0][1]
    assert isinstance(reply, Taken)
    return list(reply.deliveries)
