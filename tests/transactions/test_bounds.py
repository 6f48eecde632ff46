"""What transactional ids take in memory is counted and bounded; whoever takes no more than before is never refused."""

import pytest
from transactions.scene import A, B, Scene, named

from penstock.errors import ErrorCode
from penstock.transactions import coordinator
from penstock.transactions.commands import Abandoned
from penstock.transactions.names import Name
from penstock.transactions.sizes import PARTITION_BYTES, id_bytes
from penstock.transactions.states import TransactionState
from penstock.vocabulary import Instant


def refused(scene: Scene, id: str) -> bool:
    reply = scene.init(id=id)
    assert reply is not None
    assert reply.error in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return reply.error is not ErrorCode.NONE


def test_an_id_that_does_not_fit_comes_again_and_the_others_go_on() -> None:
    scene = Scene(bytes_max=2 * id_bytes("t") + PARTITION_BYTES)
    name = scene.begin()
    assert not refused(scene, "u")
    assert refused(scene, "v")
    assert (scene.recorded, scene.coordinator.size) == ([], 2)
    assert scene.added(name, A, B) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.recorded == []
    assert scene.added(name, A) is ErrorCode.NONE
    assert scene.added(name, A) is ErrorCode.NONE
    assert scene.added(name, B) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bumped = named(scene.end(name, commit=True, v2=True))
    scene.write_markers()
    assert named(scene.init(bumped)) == Name(name.producer_id, 2)


def test_what_is_counted_goes_with_what_is_held() -> None:
    scene = Scene()
    name = scene.begin()
    assert scene.coordinator.held_bytes == id_bytes("t")
    scene.add(name, A, B)
    assert scene.coordinator.held_bytes == id_bytes("t") + 2 * PARTITION_BYTES
    scene.end(name, commit=True, v2=True)
    scene.write_markers()
    assert scene.coordinator.held_bytes == id_bytes("t")
    scene.restart()
    assert scene.coordinator.held_bytes == id_bytes("t")


def test_a_coordinator_has_so_many_ids_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "IDS_MAX", 2)
    scene = Scene()
    assert [refused(scene, id) for id in ("t", "u", "v")] == [False, False, True]
    assert scene.begin().producer_epoch == 1


def test_transactions_that_are_over_leave_no_alarms_behind() -> None:
    scene = Scene()
    name = scene.begin()
    for _ in range(3_000):
        scene.add(name, A)
        scene.end(name, commit=True, v2=False)
        scene.write_markers()
    sessions = scene.coordinator._sessions
    assert len(sessions.alarms._heap) < 2_000
    assert (sessions.deadlines, sessions.unwritten, sessions.news) == ({}, {}, {})


def test_an_asker_that_hangs_up_leaves_nothing_behind() -> None:
    scene = Scene()
    decision = scene.coordinator.decide(Abandoned("whoever"), Instant(scene.now), scene.wall_ms)
    assert (decision.records, decision.replies) == ([], [])


@pytest.mark.invariant("transactions.markers-owed-until-written")
def test_a_decision_that_could_not_be_stored_has_not_been_taken() -> None:
    scene = Scene()
    scene.is_disk_full = True
    scene.init()
    assert scene.state is TransactionState.DEAD
    scene.is_disk_full = False
    name = scene.begin()
    scene.add(name, A)
    scene.is_disk_full = True
    scene.add(name, B)
    scene.end(name, commit=True, v2=True)
    assert (scene.state, scene.owed) == (TransactionState.ONGOING, [])
    scene.is_disk_full = False
    assert scene.added(name, B, verify=True) is ErrorCode.TRANSACTION_ABORTABLE
    scene.end(name, commit=False, v2=True)
    scene.is_disk_full = True
    scene.write_markers()
    (owed,) = scene.owed
    assert (owed.partitions, owed.is_commit) == ((A,), False), "it is still owed, and so it is reported again"
    scene.is_disk_full = False
    scene.write_markers()
    assert scene.state is TransactionState.COMPLETE_ABORT
