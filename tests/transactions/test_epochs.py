"""Epochs run out: the producer gets another id, the last epoch is given to nobody, and whoever did not hear of it may ask again."""

import pytest
from transactions.scene import ID, TIMEOUT_MS, WALL_MS, A, Scene, named

from penstock.errors import ErrorCode
from penstock.transactions.names import EPOCH_MAX, NOBODY, Name
from penstock.transactions.records import TransactionSaved
from penstock.transactions.states import TransactionState
from penstock.vocabulary import ProducerId

pytestmark = pytest.mark.invariant("transactions.one-outcome", "transactions.fencing")

LAST = Name(ProducerId(500), EPOCH_MAX - 1)  # The last name that a producer may have.


def used_up() -> Scene:
    scene = Scene()
    scene.put(
        TransactionSaved(
            transactional_id=ID, producer_id=LAST.producer_id, producer_epoch=LAST.producer_epoch - 1, timeout_ms=TIMEOUT_MS,
            state=TransactionState.EMPTY, updated_ms=WALL_MS, client_version=2,
        )
    )  # fmt: skip
    assert named(scene.init(Name(LAST.producer_id, LAST.producer_epoch - 1))) == LAST
    return scene


def test_whether_a_fresh_id_is_needed_can_be_asked_beforehand() -> None:
    scene = used_up()
    assert scene.coordinator.needs_producer_id(ID)
    assert scene.coordinator.needs_producer_id("another")
    scene.begin(id="another")
    assert not scene.coordinator.needs_producer_id("another")


def test_a_producer_that_begins_gets_another_id() -> None:
    scene = used_up()
    heir = scene.begin()
    assert heir.producer_id != LAST.producer_id
    assert heir.producer_epoch == 0
    reply = scene.init(LAST)
    assert reply is not None
    assert reply.error is ErrorCode.PRODUCER_FENCED
    assert scene.added(LAST, A) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert scene.ended(LAST, commit=False, v2=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_producer_that_goes_on_gets_another_id_and_may_ask_for_it_again() -> None:
    scene = used_up()
    heir = named(scene.init(LAST))
    assert (heir.producer_id != LAST.producer_id, heir.producer_epoch) == (True, 0)
    assert named(scene.init(LAST)) == heir
    assert scene.added(heir, A) is ErrorCode.NONE


def test_the_last_epoch_but_one_may_be_asked_for_again() -> None:
    scene = used_up()
    assert named(scene.init(Name(LAST.producer_id, LAST.producer_epoch - 1))) == LAST


@pytest.mark.parametrize("commit", [False, True])
def test_a_transaction_ends_with_the_last_epoch_in_its_markers_and_the_next_has_another_id(commit: bool) -> None:
    scene = used_up()
    scene.add(LAST, A, v2=True)
    heir = named(scene.end(LAST, commit=commit, v2=True))
    assert (heir.producer_id != LAST.producer_id, heir.producer_epoch) == (True, 0)
    (owed,) = scene.owed
    assert (owed.producer_id, owed.producer_epoch) == (LAST.producer_id, EPOCH_MAX)
    assert scene.ended(LAST, commit=commit, v2=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert scene.added(heir, A, v2=True) is ErrorCode.CONCURRENT_TRANSACTIONS, "it knows its name already"
    assert scene.ended(heir, commit=False, v2=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert scene.ended(heir, commit=commit, v2=False) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    reply = scene.init(heir)
    assert reply is not None
    assert reply.error is ErrorCode.CONCURRENT_TRANSACTIONS
    scene.restart()
    scene.write_markers()
    assert named(scene.end(LAST, commit=commit, v2=True)) == heir
    assert scene.added(LAST, A, v2=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert scene.added(heir, A, v2=True) is ErrorCode.NONE
    assert scene.ended(LAST, commit=commit, v2=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the next transaction has begun"
    assert not scene.coordinator.needs_producer_id(ID)


def test_nothing_to_abort_gives_another_id_too() -> None:
    scene = used_up()
    heir = named(scene.end(LAST, commit=False, v2=True))
    assert (heir.producer_id != LAST.producer_id, heir.producer_epoch, scene.owed) == (True, 0, [])
    assert named(scene.end(LAST, commit=False, v2=True)) == heir


def test_in_version_1_a_transaction_of_the_last_epoch_ends_with_it() -> None:
    scene = used_up()
    scene.add(LAST, A)
    assert scene.ended(LAST, commit=True, v2=False) is ErrorCode.NONE
    assert scene.owed[0].producer_epoch == LAST.producer_epoch
    scene.write_markers()
    assert scene.added(LAST, A) is ErrorCode.NONE


def aborted_over_its_head() -> Scene:
    """The abort has taken the last epoch."""
    scene = used_up()
    scene.add(LAST, A)
    scene.wait(TIMEOUT_MS / 1000)
    assert scene.owed[0].producer_epoch == EPOCH_MAX
    return scene


def test_the_last_epoch_is_given_to_nobody_who_goes_on() -> None:
    scene = aborted_over_its_head()
    scene.write_markers()
    heir = named(scene.init(LAST))
    assert (heir.producer_id != LAST.producer_id, heir.producer_epoch) == (True, 0)
    assert named(scene.init(LAST)) == heir


def test_the_last_epoch_is_given_to_nobody_who_asks_for_the_abort_again() -> None:
    scene = aborted_over_its_head()
    assert scene.ended(LAST, commit=False, v2=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    scene.write_markers()
    assert scene.ended(LAST, commit=True, v2=True) is ErrorCode.INVALID_TXN_STATE
    heir = named(scene.end(LAST, commit=False, v2=True))
    assert (heir.producer_id != LAST.producer_id, heir.producer_epoch, scene.state) == (True, 0, TransactionState.COMPLETE_ABORT)
    assert named(scene.end(LAST, commit=False, v2=True)) == heir
    assert scene.added(heir, A) is ErrorCode.NONE


def test_nobody_is_believed_who_comes_with_the_last_epoch() -> None:
    scene = aborted_over_its_head()
    never_given = Name(LAST.producer_id, EPOCH_MAX)
    for _ in range(2):
        assert scene.added(never_given, A) is ErrorCode.PRODUCER_FENCED
        for v2 in (False, True):
            assert scene.ended(never_given, commit=False, v2=v2) is ErrorCode.PRODUCER_FENCED
        reply = scene.init(never_given)
        assert reply is not None
        assert reply.error is ErrorCode.PRODUCER_FENCED
        scene.write_markers()
    assert scene.begin().producer_epoch == 0


def test_where_a_fresh_id_is_needed_and_none_was_brought_the_asker_comes_again() -> None:
    scene = Scene()
    reply = scene.init(fresh=False)
    assert reply is not None
    assert (reply.error, scene.recorded) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    scene = used_up()
    for name in (NOBODY, LAST):
        reply = scene.init(name, fresh=False)
        assert reply is not None
        assert (reply.error, scene.recorded) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    ends = [scene.end(LAST, commit=False, v2=True, fresh=False)]
    scene.add(LAST, A)
    ends += [scene.end(LAST, commit=commit, v2=True, fresh=False) for commit in (False, True)]
    scene = aborted_over_its_head()
    scene.write_markers()
    ends.append(scene.end(LAST, commit=False, v2=True, fresh=False))
    assert [reply is not None and reply.error for reply in ends] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 4
    assert scene.recorded == []
