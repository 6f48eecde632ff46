"""A producer begins with a transactional id, or goes on with it after an error."""

import pytest
from transactions.scene import FIRST_PRODUCER, TIMEOUT_MS, A, Scene, named

from penstock.errors import ErrorCode
from penstock.transactions.bounds import TRANSACTIONAL_ID_MAX
from penstock.transactions.names import NOBODY, Name
from penstock.transactions.states import TransactionState
from penstock.vocabulary import ProducerId


def test_the_first_producer_gets_the_fresh_id_and_the_next_ones_its_next_epochs() -> None:
    scene = Scene()
    assert [scene.begin() for _ in range(3)] == [Name(ProducerId(FIRST_PRODUCER), epoch) for epoch in range(3)]
    assert scene.state is TransactionState.EMPTY


@pytest.mark.invariant("transactions.retry-same-answer")
def test_a_producer_may_ask_again_for_the_epoch_that_it_did_not_hear_of() -> None:
    scene = Scene()
    name = scene.begin()
    bumped = named(scene.init(name))
    assert named(scene.init(name)) == bumped == Name(name.producer_id, 1)
    assert named(scene.init(name, timeout_ms=1_000)) == bumped
    assert scene.saved().timeout_ms == 1_000


@pytest.mark.invariant("transactions.retry-same-answer")
def test_a_producer_that_begins_takes_the_way_back_from_all_before_it() -> None:
    scene = Scene()
    first = scene.begin()
    second = named(scene.init(first))
    third = scene.begin()
    for name in (first, second):
        reply = scene.init(name)
        assert reply is not None
        assert reply.error is ErrorCode.PRODUCER_FENCED
    assert scene.added(third, A) is ErrorCode.NONE


@pytest.mark.invariant("transactions.one-at-a-time")
def test_an_open_transaction_is_aborted_before_the_next_producer_begins() -> None:
    scene = Scene()
    zombie = scene.begin()
    scene.add(zombie, A)
    for _ in range(2):
        reply = scene.init()
        assert reply is not None
        assert (reply.error, scene.state) == (ErrorCode.CONCURRENT_TRANSACTIONS, TransactionState.PREPARE_ABORT)
    (owed,) = scene.owed
    assert (owed.producer_epoch, owed.is_commit, owed.partitions) == (zombie.producer_epoch + 1, False, (A,))
    assert scene.added(zombie, A) is ErrorCode.PRODUCER_FENCED
    scene.write_markers()
    heir = scene.begin()
    assert heir == Name(zombie.producer_id, zombie.producer_epoch + 2)
    for v2 in (False, True):
        assert scene.added(zombie, A, v2=v2) is ErrorCode.PRODUCER_FENCED
        assert scene.ended(zombie, commit=True, v2=v2) is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_was_told_to_wait_cannot_be_mistaken_for_the_one_it_fences() -> None:
    """The old one may go on as long as the new one has no name; from then on it cannot."""
    scene = Scene()
    zombie = scene.begin()
    scene.add(zombie, A)
    scene.init()
    scene.write_markers()
    revived = named(scene.init(zombie))
    assert scene.added(revived, A) is ErrorCode.NONE
    reply = scene.init()
    assert reply is not None
    assert reply.error is ErrorCode.CONCURRENT_TRANSACTIONS
    scene.write_markers()
    heir = scene.begin()
    reply = scene.init(revived)
    assert reply is not None
    assert reply.error is ErrorCode.PRODUCER_FENCED
    assert scene.added(heir, A) is ErrorCode.NONE


def test_a_zombie_does_not_abort_the_transaction_of_its_heir() -> None:
    scene = Scene()
    zombie = scene.begin()
    heir = scene.begin()
    scene.add(heir, A)
    reply = scene.init(zombie)
    assert reply is not None
    assert (reply.error, scene.recorded, scene.state) == (ErrorCode.PRODUCER_FENCED, [], TransactionState.ONGOING)


def test_a_late_copy_of_a_request_does_not_abort_the_transaction_that_came_after_it() -> None:
    scene = Scene()
    before = scene.begin()
    name = named(scene.init(before))
    scene.add(name, A)
    reply = scene.init(before)
    assert reply is not None
    assert (reply.error, scene.state) == (ErrorCode.PRODUCER_FENCED, TransactionState.ONGOING)


def test_the_name_of_an_id_that_was_forgotten_is_replaced() -> None:
    scene = Scene()
    reply = scene.init(Name(ProducerId(5), 9))
    assert named(reply) == Name(ProducerId(FIRST_PRODUCER), 0)


@pytest.mark.invariant("transactions.invalid-requests-refused")
@pytest.mark.parametrize(
    ("name", "more", "code"),
    [
        (NOBODY, {"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (NOBODY, {"timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (NOBODY, {"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (NOBODY, {"id": ""}, ErrorCode.INVALID_REQUEST),
        (NOBODY, {"id": "x" * (TRANSACTIONAL_ID_MAX + 1)}, ErrorCode.INVALID_REQUEST),
        (Name(ProducerId(FIRST_PRODUCER), -1), {}, ErrorCode.INVALID_REQUEST),
        (Name(ProducerId(-1), 0), {}, ErrorCode.INVALID_REQUEST),
        (NOBODY, {"keeps_prepared": True}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_changes_nothing(name: Name, more: dict[str, object], code: ErrorCode) -> None:
    scene = Scene()
    right = scene.begin()
    reply = scene.init(name, **more)
    assert reply is not None
    assert (reply.error, reply.producer_id, reply.producer_epoch, scene.recorded) == (code, -1, -1, [])
    assert named(scene.init(right)).producer_epoch == 1


def test_the_longest_time_out_and_the_longest_id_are_taken() -> None:
    scene = Scene(transaction_max_timeout_ms=TIMEOUT_MS)
    assert scene.begin(timeout_ms=TIMEOUT_MS, id="x" * TRANSACTIONAL_ID_MAX).producer_epoch == 0
