"""What readers see of transactional ids."""

import re

from transactions.scene import ID, TIMEOUT_MS, WALL_MS, A, B, Scene

from penstock.transactions.states import STATES_BY_TITLE, TransactionState
from penstock.transactions.views import TransactionView


def four() -> Scene:
    scene = Scene()
    for seconds, id in enumerate(("empty", "open", "ending", "over")):
        name = scene.begin(id=id)
        if id != "empty":
            scene.add(name, A, B, id=id)
        if id in ("ending", "over"):
            scene.end(name, commit=id == "over", v2=True, id=id)
        if id == "over":
            scene.report(scene.owed[1], A, B)
        scene.wait(1 + seconds)
    return scene


def ids(scene: Scene, **wanted: object) -> list[str]:
    return [listed.transactional_id for listed in scene.listed(**wanted)]


def test_an_id_is_described_as_it_is() -> None:
    scene = Scene()
    name = scene.begin()
    scene.wait(1)
    scene.add(name, B, A)
    assert scene.coordinator.describe(ID) == TransactionView(
        transactional_id=ID, state=TransactionState.ONGOING, producer_id=name.producer_id, producer_epoch=0, timeout_ms=TIMEOUT_MS,
        started_ms=WALL_MS + 1_000, number=1, partitions=(B, A),
    )  # fmt: skip
    assert scene.coordinator.describe("another") is None


def test_all_ids_are_listed_with_their_states() -> None:
    scene = four()
    found = [(listed.transactional_id, listed.state.title) for listed in scene.listed()]
    assert found == [("empty", "Empty"), ("open", "Ongoing"), ("ending", "PrepareAbort"), ("over", "CompleteCommit")]


def test_a_list_has_only_what_is_wanted() -> None:
    scene = four()
    assert ids(scene, states=(TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT)) == ["open", "over"]
    assert ids(scene, states=()) == []
    assert ids(scene, producer_ids=(scene.saved("over").producer_id, scene.saved("empty").producer_id)) == ["empty", "over"]
    assert ids(scene, matches=re.compile("o.*").fullmatch) == ["open", "over"]
    assert ids(scene, matches=re.compile("o.*").fullmatch, states=(TransactionState.ONGOING,)) == ["open"]


def test_a_list_of_what_lasts_long_has_what_has_lasted_longer() -> None:
    scene = four()  # They began 9, 7 and 4 seconds ago.
    assert ids(scene, longer_than_ms=0) == ["open", "ending", "over"]
    assert ids(scene, longer_than_ms=6_999) == ["open", "ending"]
    assert ids(scene, longer_than_ms=7_000) == ["open"]
    assert ids(scene, longer_than_ms=-1) == ["empty", "open", "ending", "over"]


def test_states_have_the_names_and_numbers_that_tools_know() -> None:
    assert {state.title: int(state) for state in TransactionState} == {
        "Empty": 0, "Ongoing": 1, "PrepareCommit": 2, "PrepareAbort": 3, "CompleteCommit": 4, "CompleteAbort": 5, "Dead": 6,
        "PrepareEpochFence": 7,
    }  # fmt: skip
    assert all(STATES_BY_TITLE[state.title] is state for state in TransactionState)
