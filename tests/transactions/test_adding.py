"""Partitions become part of a transaction."""

import pytest
from transactions.scene import TIMEOUT_MS, WALL_MS, A, B, C, Scene, place

from penstock.errors import ErrorCode
from penstock.transactions.bounds import PARTITIONS_MAX
from penstock.transactions.records import TransactionPartition
from penstock.transactions.states import TransactionState
from penstock.vocabulary import TopicId


def test_the_first_partition_begins_a_transaction_and_the_others_join_it() -> None:
    scene = Scene()
    name = scene.begin()
    scene.wait(1)
    first = scene.add(name, B, A)
    scene.wait(1)
    second = scene.add(name, A, C)
    assert first is not None
    assert second is not None
    assert (first.number, second.number) == (1, 1)
    assert second.partitions == ((A, ErrorCode.NONE), (C, ErrorCode.NONE))
    saved = scene.saved()
    assert (saved.partitions, saved.started_ms, saved.updated_ms) == ((B, A, C), WALL_MS + 1_000, WALL_MS + 2_000)


@pytest.mark.invariant("transactions.number-grows")
def test_the_number_grows_with_every_transaction_and_stays_with_the_id() -> None:
    scene = Scene()
    numbers = []
    for _ in range(3):
        name = scene.begin()
        for _ in range(2):
            reply = scene.add(name, A)
            assert reply is not None
            numbers.append(reply.number)
            scene.end(name, commit=True, v2=False)
            scene.write_markers()
    assert numbers == [1, 2, 3, 4, 5, 6]


def test_what_is_asked_for_twice_is_added_once_and_answered_twice() -> None:
    scene = Scene()
    name = scene.begin()
    reply = scene.add(name, A, A)
    assert reply is not None
    assert reply.partitions == ((A, ErrorCode.NONE), (A, ErrorCode.NONE))
    assert scene.saved().partitions == (A,)


def test_a_request_without_partitions_begins_nothing() -> None:
    scene = Scene()
    name = scene.begin()
    reply = scene.add(name)
    assert reply is not None
    assert (reply.partitions, scene.recorded, scene.state) == ((), [], TransactionState.EMPTY)


@pytest.mark.invariant("transactions.batches-verified")
def test_verifying_says_of_each_partition_whether_it_is_part_and_adds_none() -> None:
    scene = Scene()
    name = scene.begin()
    scene.add(name, A, B)
    reply = scene.add(name, C, A, verify=True)
    assert reply is not None
    assert reply.partitions == ((C, ErrorCode.TRANSACTION_ABORTABLE), (A, ErrorCode.NONE))
    assert (reply.number, scene.recorded) == (1, [])


def test_a_topic_that_was_made_again_is_another() -> None:
    scene = Scene()
    name = scene.begin()
    scene.add(name, A)
    again = TransactionPartition(A.topic, TopicId(b"made another day"), A.partition)
    assert scene.added(name, again, verify=True) is ErrorCode.TRANSACTION_ABORTABLE
    assert scene.added(name, again) is ErrorCode.NONE
    assert scene.saved().partitions == (A, again)


def test_a_transaction_has_so_many_partitions_and_no_more() -> None:
    scene = Scene()
    name = scene.begin()
    assert scene.added(name, *(place("a", number) for number in range(PARTITIONS_MAX - 1))) is ErrorCode.NONE
    assert scene.added(name, B, C) is ErrorCode.POLICY_VIOLATION
    assert scene.recorded == []
    assert scene.added(name, B) is ErrorCode.NONE
    assert scene.added(name, C) is ErrorCode.POLICY_VIOLATION
    assert scene.added(name, B, place("a", 7)) is ErrorCode.NONE, "what is there already needs no room"
    assert scene.ended(name, commit=True, v2=True) is ErrorCode.NONE
    scene.write_markers()
    assert scene.state is TransactionState.COMPLETE_COMMIT


def test_adding_does_not_put_the_time_out_off() -> None:
    scene = Scene()
    name = scene.begin()
    scene.add(name, A)
    scene.wait(TIMEOUT_MS / 1000 - 1)
    scene.add(name, B)
    scene.wait(1)
    assert scene.state is TransactionState.PREPARE_ABORT
