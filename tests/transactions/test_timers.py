"""Transactions whose time-out is over are aborted, and ids that nobody uses are forgotten."""

import pytest
from transactions.scene import ID, TIMEOUT_MS, A, B, Scene, named, place

from penstock.errors import ErrorCode
from penstock.transactions import lapsing
from penstock.transactions.bounds import ABORTS_PER_LAPSE, EXPIRY_CHECK_MS, IDS_PER_SLICE, PARTITIONS_MAX
from penstock.transactions.names import Name
from penstock.transactions.records import TransactionForgotten, TransactionSaved
from penstock.transactions.states import TransactionState
from penstock.vocabulary import Instant

pytestmark = pytest.mark.invariant("transactions.timeout-aborts")

TIMEOUT = TIMEOUT_MS / 1000
EXPIRATION_MS = 100_000


def opened() -> tuple[Scene, Name]:
    scene = Scene()
    name = scene.begin()
    scene.wait(5)
    scene.add(name, A, B)
    return scene, name


def test_a_transaction_is_aborted_when_its_time_out_is_over_and_not_before() -> None:
    scene, name = opened()
    scene.wait(TIMEOUT - 0.001)
    assert scene.state is TransactionState.ONGOING
    scene.wait(0.001)
    assert scene.state is TransactionState.PREPARE_ABORT
    (owed,) = scene.owed
    assert (owed.is_commit, owed.is_v2, owed.producer_epoch, owed.partitions) == (False, True, name.producer_epoch + 1, (A, B))


@pytest.mark.parametrize("v2", [False, True])
def test_the_producer_of_an_overdue_transaction_is_fenced_and_may_go_on_once_it_has_asked_for_its_name(v2: bool) -> None:
    scene, name = opened()
    scene.wait(TIMEOUT)
    scene.write_markers()
    assert scene.added(name, A, v2=v2) is ErrorCode.PRODUCER_FENCED
    assert scene.ended(name, commit=True, v2=v2) is (ErrorCode.INVALID_TXN_STATE if v2 else ErrorCode.PRODUCER_FENCED)
    bumped = named(scene.init(name))
    assert bumped == Name(name.producer_id, name.producer_epoch + 1)
    assert scene.added(bumped, A, v2=v2) is ErrorCode.NONE


def test_in_version_2_it_may_also_abort_what_was_aborted() -> None:
    scene, name = opened()
    scene.wait(TIMEOUT)
    scene.write_markers()
    assert named(scene.end(name, commit=False, v2=True)) == Name(name.producer_id, name.producer_epoch + 1)


def test_every_transaction_has_its_own_time() -> None:
    scene, name = opened()
    scene.wait(TIMEOUT - 1)
    scene.end(name, commit=True, v2=False)
    scene.write_markers()
    scene.add(name, A)
    scene.wait(TIMEOUT - 1)
    assert scene.state is TransactionState.ONGOING
    scene.wait(1)
    assert scene.state is TransactionState.PREPARE_ABORT


def test_the_end_of_a_transaction_may_take_as_long_as_it_must() -> None:
    scene, name = opened()
    scene.end(name, commit=True, v2=True)
    scene.wait(10 * TIMEOUT)
    assert scene.state is TransactionState.PREPARE_COMMIT


def test_many_transactions_become_due_in_their_order() -> None:
    scene = Scene()
    for number in range(3 * ABORTS_PER_LAPSE):
        id = f"t{number}"
        scene.add(scene.begin(id=id, timeout_ms=1_000 + number), A, id=id)
    scene.wait(1)
    assert [owed.transactional_id for owed in scene.owed] == ["t0"]
    scene.now += 10
    decision = scene.coordinator.lapse(Instant(scene.now), scene.wall_ms)
    assert len(decision.records) == ABORTS_PER_LAPSE, "the others follow at once"
    due = scene.coordinator.due()
    assert due is not None
    assert due <= scene.now
    scene.carry_out(decision)
    scene.wait(0.001)
    assert [owed.transactional_id for owed in scene.owed] == [f"t{number}" for number in range(3 * ABORTS_PER_LAPSE)]


def test_large_transactions_become_due_one_after_the_other() -> None:
    scene = Scene()
    for id in ("t", "u", "v"):
        scene.add(scene.begin(id=id), *(place("a", number) for number in range(PARTITIONS_MAX - 1)), id=id)
    scene.now += TIMEOUT
    sizes = []
    for _ in range(2):
        scene.carry_out(scene.coordinator.lapse(Instant(scene.now), scene.wall_ms))
        sizes.append(len(scene.recorded))
    assert sizes == [2, 1]


def test_an_abort_that_could_not_be_recorded_is_tried_again() -> None:
    scene, _ = opened()
    scene.is_disk_full = True
    scene.wait(TIMEOUT)
    assert scene.state is TransactionState.ONGOING
    scene.is_disk_full = False
    scene.wait(scene.settings.abort_again_ms / 1000 - 0.001)
    assert scene.state is TransactionState.ONGOING
    scene.wait(0.001)
    assert scene.state is TransactionState.PREPARE_ABORT


def test_a_transaction_that_could_not_be_begun_leaves_no_time_out_behind() -> None:
    scene = Scene()
    name = scene.begin()
    scene.is_disk_full = True
    scene.add(name, A)
    scene.is_disk_full = False
    scene.wait(TIMEOUT / 2)
    scene.add(name, A)
    scene.wait(TIMEOUT * 3 / 4)
    assert scene.state is TransactionState.ONGOING
    scene.wait(TIMEOUT / 4)
    assert scene.state is TransactionState.PREPARE_ABORT


def test_a_deadline_of_nothing_is_forgotten() -> None:
    scene = Scene()
    name = scene.begin()
    scene.is_disk_full = True
    scene.add(name, A)
    scene.is_disk_full = False
    scene.wait(TIMEOUT)
    assert (scene.state, scene.recorded) == (TransactionState.EMPTY, [])
    due = scene.coordinator.due()
    assert due is not None
    assert due > scene.now


def test_after_a_restart_the_rest_of_the_time_out_runs() -> None:
    scene, _ = opened()
    scene.wait(TIMEOUT / 2)
    scene.now = 5.0  # Another machine, whose clock began later.
    scene.restart()
    scene.wait(TIMEOUT / 2 - 0.5)
    assert scene.state is TransactionState.ONGOING
    scene.wait(0.5)
    assert scene.state is TransactionState.PREPARE_ABORT


def test_what_became_overdue_while_nobody_coordinated_is_aborted_at_once() -> None:
    scene, _ = opened()
    scene.now += 10 * TIMEOUT
    scene.wall_ms += 10 * TIMEOUT_MS
    scene.restart()
    scene.wait(0)
    assert scene.state is TransactionState.PREPARE_ABORT


@pytest.mark.parametrize("jump_ms", [-(10**9), 10**9])
def test_a_wall_clock_that_jumps_neither_shortens_nor_stretches_a_time_out(jump_ms: int) -> None:
    scene, _ = opened()
    scene.wall_ms += jump_ms
    scene.wait(TIMEOUT - 0.001)
    assert scene.state is TransactionState.ONGOING
    scene.wait(0.001)
    assert scene.state is TransactionState.PREPARE_ABORT


def test_a_wall_clock_that_is_behind_gives_one_more_time_out_at_the_most() -> None:
    scene, _ = opened()
    scene.wall_ms -= 10**9
    scene.restart()
    scene.wait(TIMEOUT)
    assert scene.state is TransactionState.PREPARE_ABORT


def unused(state: str) -> Scene:
    scene = Scene(transactional_id_expiration_ms=EXPIRATION_MS)
    name = scene.begin(timeout_ms=900_000)
    if state != "Empty":
        scene.add(name, A)
    if state.startswith(("Prepare", "Complete")):
        scene.end(name, commit=state.endswith("Commit"), v2=True)
    if state.startswith("Complete"):
        scene.write_markers()
    assert scene.state.title == state
    return scene


@pytest.mark.invariant("transactions.idle-ids-expire")
@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_an_id_that_nobody_uses_is_forgotten(state: str) -> None:
    scene = unused(state)
    last_used_ms = scene.wall_ms
    while scene.coordinator.describe(ID) is not None:
        assert scene.wall_ms <= last_used_ms + 2 * EXPIRATION_MS, "it is looked for about as often"
        scene.wait(1)
    assert scene.wall_ms >= last_used_ms + EXPIRATION_MS
    assert scene.recorded == [TransactionForgotten(ID)]
    assert scene.listed() == []
    assert (scene.coordinator.size, scene.coordinator.held_bytes) == (0, 0)
    scene.restart()
    assert scene.state is TransactionState.DEAD
    assert scene.begin().producer_epoch == 0


@pytest.mark.invariant("transactions.idle-ids-expire")
@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort"])
def test_an_id_with_a_transaction_is_not_forgotten(state: str) -> None:
    scene = unused(state)
    scene.wait(3 * EXPIRATION_MS / 1000)
    assert scene.state.title == state


@pytest.mark.invariant("transactions.idle-ids-expire")
def test_an_id_that_is_used_is_not_forgotten() -> None:
    scene = unused("Empty")
    name = Name(scene.saved().producer_id, 0)
    for _ in range(5):
        scene.wait(EXPIRATION_MS / 1000 - 1)
        name = named(scene.init(name))
    assert name.producer_epoch == 5


def test_ids_are_looked_through_in_slices() -> None:
    scene = Scene(transactional_id_expiration_ms=EXPIRATION_MS)
    for number in range(2 * IDS_PER_SLICE + 1):
        scene.coordinator.replay(
            TransactionSaved(
                transactional_id=f"t{number}", producer_id=scene.fresh(), producer_epoch=0, timeout_ms=1, state=TransactionState.EMPTY,
                updated_ms=scene.wall_ms, client_version=2,
            )
        )  # fmt: skip
    scene.now += EXPIRATION_MS / 1000
    scene.wall_ms += EXPIRATION_MS
    sizes = []
    while scene.coordinator.size:
        scene.wait(0.001)
        sizes.append(len(scene.recorded))
    assert max(sizes) == IDS_PER_SLICE


def test_ids_are_looked_through_once_an_hour_though_they_last_for_days(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = []
    monkeypatch.setattr(lapsing.Sweep, "slice", lambda self, wall_ms: sweeps.append(wall_ms) or _over(self))
    scene = Scene()
    scene.wait(3 * EXPIRY_CHECK_MS / 1000)
    assert len(sweeps) == 3


def _over(sweep: lapsing.Sweep) -> list[object]:
    sweep.is_over = True
    return []
