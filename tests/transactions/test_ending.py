"""A transaction ends once, and whoever did not hear of it may ask again."""

import pytest
from transactions.scene import A, B, Scene, named

from penstock.errors import ErrorCode
from penstock.transactions.names import Name
from penstock.transactions.states import TransactionState

ENDS = [(False, TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
        (True, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)]  # fmt: skip


@pytest.mark.parametrize(("commit", "prepared", "complete"), ENDS)
def test_in_version_1_the_epoch_stays_and_the_same_request_is_answered_again(
    commit: bool, prepared: TransactionState, complete: TransactionState
) -> None:
    scene = Scene()
    name = scene.begin()
    scene.add(name, A)
    reply = scene.end(name, commit=commit, v2=False)
    assert reply is not None
    assert (reply.error, reply.producer_id, reply.producer_epoch) == (ErrorCode.NONE, -1, -1)
    assert scene.state is prepared
    assert scene.ended(name, commit=commit, v2=False) is ErrorCode.CONCURRENT_TRANSACTIONS
    (owed,) = scene.owed
    assert (owed.producer_epoch, owed.is_commit, owed.is_v2) == (name.producer_epoch, commit, False)
    scene.write_markers()
    assert scene.state is complete
    assert scene.ended(name, commit=commit, v2=False) is ErrorCode.NONE
    assert scene.ended(name, commit=not commit, v2=False) is ErrorCode.INVALID_TXN_STATE
    assert scene.added(name, A) is ErrorCode.NONE, "the next transaction has the same name"


@pytest.mark.invariant("transactions.retry-same-answer")
@pytest.mark.parametrize(("commit", "prepared", "complete"), ENDS)
def test_in_version_2_the_epoch_grows_and_the_name_before_is_told_the_same_again(
    commit: bool, prepared: TransactionState, complete: TransactionState
) -> None:
    scene = Scene()
    name = scene.begin()
    scene.add(name, A, v2=True)
    bumped = named(scene.end(name, commit=commit, v2=True))
    assert bumped == Name(name.producer_id, name.producer_epoch + 1)
    assert scene.state is prepared
    assert scene.ended(name, commit=commit, v2=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    (owed,) = scene.owed
    assert (owed.producer_epoch, owed.is_commit, owed.is_v2) == (bumped.producer_epoch, commit, True)
    scene.write_markers()
    assert scene.state is complete
    for _ in range(2):
        assert named(scene.end(name, commit=commit, v2=True)) == bumped
    assert scene.ended(name, commit=not commit, v2=True) is ErrorCode.INVALID_TXN_STATE
    assert scene.added(bumped, A, v2=True) is ErrorCode.NONE
    assert scene.ended(name, commit=commit, v2=True) is ErrorCode.PRODUCER_FENCED, "the next transaction has begun"
    assert scene.added(name, A, v2=True) is ErrorCode.PRODUCER_FENCED


def test_in_version_2_a_transaction_in_which_nothing_was_sent_can_be_aborted_and_not_committed() -> None:
    scene = Scene()
    name = scene.begin()
    assert scene.ended(name, commit=True, v2=True) is ErrorCode.INVALID_TXN_STATE
    second = named(scene.end(name, commit=False, v2=True))
    assert (second.producer_epoch, scene.state, scene.owed) == (1, TransactionState.COMPLETE_ABORT, [])
    assert named(scene.end(name, commit=False, v2=True)) == second, "asked again"
    third = named(scene.end(second, commit=False, v2=True))
    assert third.producer_epoch == 2
    scene.add(third, A, v2=True)
    fourth = named(scene.end(third, commit=True, v2=True))
    scene.write_markers()
    assert named(scene.end(fourth, commit=False, v2=True)).producer_epoch == 4
    assert scene.saved().number == 1


def test_a_producer_whose_name_before_comes_from_beginning_anew_has_ended_nothing() -> None:
    """A version-1 commit of the current epoch is none of the epoch before."""
    scene = Scene()
    before = scene.begin()
    name = named(scene.init(before))
    scene.add(name, A)
    scene.end(name, commit=True, v2=False)
    scene.write_markers()
    assert scene.ended(before, commit=True, v2=True) is ErrorCode.PRODUCER_FENCED


@pytest.mark.invariant("transactions.one-at-a-time")
def test_nothing_can_be_added_until_all_partitions_have_their_marker() -> None:
    scene = Scene()
    name = scene.begin()
    scene.add(name, A, B)
    bumped = named(scene.end(name, commit=True, v2=True))
    (owed,) = scene.owed
    scene.report(owed, A)
    assert scene.added(bumped, A) is ErrorCode.CONCURRENT_TRANSACTIONS
    scene.report(owed, B)
    assert scene.added(bumped, A) is ErrorCode.NONE
