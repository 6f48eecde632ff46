"""A coordinator that is lost at any moment is the same again when the log is read, whatever of it compaction has left."""

import pytest
from transactions.scene import TIMEOUT_MS, A, B, C, Scene, named, snapshot

from penstock.errors import ErrorCode
from penstock.transactions import records
from penstock.transactions.names import Name
from penstock.transactions.states import TransactionState

pytestmark = pytest.mark.invariant("transactions.markers-owed-until-written")


def story(scene: Scene, *, v2: bool) -> Name:
    """Two ids: one commits, aborts, is fenced and runs out of time; the other is in the way."""
    other = scene.begin(id="u")
    scene.add(other, C, id="u", v2=v2)
    name = scene.begin()
    for commit in (True, False):
        scene.add(name, A, v2=v2)
        scene.add(name, B, v2=v2)
        reply = scene.end(name, commit=commit, v2=v2)
        name = named(reply) if v2 else name
        scene.write_markers()
    scene.add(name, A, v2=v2)
    scene.init()
    scene.write_markers()
    name = scene.begin()
    scene.add(name, A, v2=v2)
    scene.wait(TIMEOUT_MS / 1000)
    return name


@pytest.mark.invariant("transactions.last-record-is-state")
@pytest.mark.parametrize("v2", [False, True])
def test_at_every_cut_the_last_record_of_each_key_is_all_that_is_needed(v2: bool) -> None:
    """All records up to the cut, and the last ones in reverse order, give the same state, the same debts and the same answers."""
    told = Scene()
    story(told, v2=v2)
    assert len(told.history) > 15
    for cut in range(len(told.history) + 1):
        whole, compacted = Scene(), Scene()
        for key, value in told.history[:cut]:
            whole.put_stored(key, value)
            compacted.log[key] = value
        compacted.log = dict(reversed(compacted.log.items()))
        compacted.restart()
        assert snapshot(compacted.coordinator) == snapshot(whole.coordinator)
        by_id = {owed.transactional_id: owed for owed in whole.owed}
        assert {owed.transactional_id: owed for owed in compacted.owed} == by_id
        assert {owed.transactional_id: owed for owed in compacted.coordinator.newly_owed()} == by_id
        for scene in (whole, compacted):
            scene.wall_ms, scene.now = told.wall_ms, told.now
        assert _what_follows(whole) == _what_follows(compacted)


def _what_follows(scene: Scene) -> list[object]:
    """Everything that is open comes to its end, and the next transactions begin."""
    scene.wait(2 * TIMEOUT_MS / 1000)
    scene.write_markers()
    name = scene.begin()
    scene.add(name, A)
    return [name, *snapshot(scene.coordinator)]


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_a_node_that_dies_after_any_record_ends_what_was_promised(commit: bool, v2: bool) -> None:
    """The producer asks again until it hears that its transaction has ended; every partition gets the marker of that very end."""
    for cut in range(1, 6):
        scene = Scene()
        name = scene.begin()
        scene.add(name, A)
        scene.add(name, B)
        if cut > 3:
            scene.end(name, commit=commit, v2=v2)
        if cut > 4:
            scene.write_markers()
        before = len(scene.history)
        scene.restart()
        assert len(scene.history) == before
        markers = []
        for _ in range(3):
            scene.end(name, commit=commit, v2=v2)
            markers += [(owed.is_commit, owed.number, owed.partitions) for owed in scene.owed]
            scene.restart()
            scene.write_markers()
        assert scene.ended(name, commit=commit, v2=v2) is ErrorCode.NONE
        assert scene.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
        assert set(markers) <= {(commit, 1, (A, B))}


def test_an_id_that_was_forgotten_stays_so() -> None:
    scene = Scene()
    scene.begin()
    key, _ = records.encode(records.TransactionForgotten("t"))
    scene.put_stored(key, None)
    scene.restart()
    assert scene.coordinator.describe("t") is None
