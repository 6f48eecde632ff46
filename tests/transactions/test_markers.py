"""What is owed to partitions: from the moment the end is recorded until every one of them has its marker."""

import pytest
from transactions.scene import ID, TIMEOUT_MS, A, B, C, Scene, named

from penstock.transactions.names import name_of
from penstock.transactions.states import TransactionState
from penstock.transactions.views import MarkersOwed
from penstock.vocabulary import ProducerId

pytestmark = pytest.mark.invariant("transactions.markers-owed-until-written")


def ending(*, commit: bool = True, v2: bool = True) -> tuple[Scene, MarkersOwed]:
    scene = Scene()
    name = scene.begin()
    scene.add(name, A, B, C)
    scene.end(name, commit=commit, v2=v2)
    (owed,) = scene.owed
    return scene, owed


def test_nothing_is_owed_while_a_transaction_is_open() -> None:
    scene = Scene()
    scene.add(scene.begin(), A)
    assert (scene.owed, scene.coordinator.owed_by(ID), scene.coordinator.newly_owed()) == ([], None, [])


def test_partitions_are_owed_their_marker_until_it_is_reported_in_whatever_pieces() -> None:
    scene, owed = ending()
    assert (owed.transactional_id, owed.number, owed.partitions) == (ID, 1, (A, B, C))
    scene.report(owed, B)
    assert (scene.recorded, scene.owed[0].partitions) == ([], (A, C))
    scene.report(owed, B, A)
    assert scene.coordinator.owed_by(ID) == scene.owed[0]
    assert (scene.owed[0].partitions, scene.state) == ((C,), TransactionState.PREPARE_COMMIT)
    scene.report(owed, C)
    assert (scene.owed, scene.state, scene.saved().partitions) == ([], TransactionState.COMPLETE_COMMIT, ())
    scene.report(owed, C)
    assert scene.recorded == []


def test_everything_is_owed_again_after_a_restart() -> None:
    scene, owed = ending(commit=False)
    scene.report(owed, A, B)
    scene.restart()
    assert scene.owed == [owed]
    scene.report(owed, C)
    assert scene.owed[0].partitions == (A, B)
    scene.report(owed, A, B)
    assert scene.state is TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize(
    "wrong",
    [{"producer_id": ProducerId(5)}, {"producer_epoch": 0}, {"producer_epoch": 2}, {"number": 0}, {"number": 2}, {"transactional_id": "u"}],
)
def test_markers_of_another_transaction_do_not_count(wrong: dict[str, object]) -> None:
    scene, owed = ending()
    fields = {field: getattr(owed, field) for field in MarkersOwed.__slots__}
    scene.report(MarkersOwed(**(fields | wrong)), A, B, C)
    assert (scene.recorded, scene.owed) == ([], [owed])


def test_partitions_that_are_no_part_of_the_transaction_do_not_count() -> None:
    scene = Scene()
    name = scene.begin()
    scene.add(name, A)
    scene.end(name, commit=True, v2=True)
    scene.report(scene.owed[0], B, C)
    assert scene.state is TransactionState.PREPARE_COMMIT


def test_a_late_report_of_the_transaction_before_ends_nothing() -> None:
    """In version 1 both have the same name; the number tells them apart."""
    scene, before = ending(v2=False)
    scene.report(before, A, B, C)
    name = name_of(scene.saved())
    scene.add(name, A, B, C)
    scene.report(before, A, B, C)
    assert scene.state is TransactionState.ONGOING
    scene.end(name, commit=False, v2=False)
    scene.report(before, A, B, C)
    assert (scene.state, scene.owed[0].partitions) == (TransactionState.PREPARE_ABORT, (A, B, C))


def test_a_transaction_of_which_a_part_was_reported_owes_nothing_of_it_to_the_next() -> None:
    scene, owed = ending()
    scene.report(owed, A)
    scene.report(owed, B, C)
    name = named(scene.init())
    scene.add(name, A, B)
    scene.end(name, commit=True, v2=True)
    assert scene.owed[0].partitions == (A, B)


def test_what_has_come_to_be_owed_is_told_once() -> None:
    scene = Scene()
    names = {id: scene.begin(id=id) for id in ("t", "u", "v")}
    for id, name in names.items():
        scene.add(name, A, id=id)
    scene.end(names["u"], id="u", commit=True, v2=True)
    assert [owed.transactional_id for owed in scene.coordinator.newly_owed()] == ["u"]
    assert scene.coordinator.newly_owed() == []
    scene.end(names["t"], id="t", commit=True, v2=True)
    scene.report(scene.owed[1], A)
    assert scene.coordinator.newly_owed() == [], "it is over already"
    scene.wait(TIMEOUT_MS / 1000)
    assert [owed.transactional_id for owed in scene.coordinator.newly_owed()] == ["v"], "its time-out is over"
    assert [owed.transactional_id for owed in scene.owed] == ["u", "v"]
    scene.restart()
    assert scene.coordinator.newly_owed() == scene.owed
