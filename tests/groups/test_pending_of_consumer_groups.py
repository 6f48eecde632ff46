"""Offsets in transactions of groups of the new protocol: the member's epoch takes the generation's place, all else is the same."""

import pytest
from groups.consumer.company import Company
from groups.pending_scene import PendingScene

from penstock.errors import ErrorCode
from penstock.groups.commands import NewOffset
from penstock.groups.states import GroupState

OK = ErrorCode.NONE
OFFSET = NewOffset("t", 0, 7)


class PendingCompany(PendingScene, Company):
    """With members of the new protocol and transactional producers."""


@pytest.mark.parametrize(
    ("member", "error"),
    [
        ({"member_id": "a", "generation": 1}, OK),
        ({"member_id": "a", "generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "a", "generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "a"}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "nobody", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, OK),  # Below version 3 nobody says who it is.
    ],
)
def test_a_member_commits_with_its_epoch(member: dict[str, object], error: ErrorCode) -> None:
    scene = PendingCompany(topics={"t": 3})
    assert scene.say_join("a", "t").member_epoch == 1
    assert scene.pend(OFFSET, **member) == [error]
    assert scene.unstable() == ([("t", 0)] if error is OK else [])
    scene.end(commits=True)
    assert scene.offsets() == ({("t", 0): 7} if error is OK else {})


def test_a_member_that_has_left_adds_nothing_and_what_it_had_pending_is_committed() -> None:
    scene = PendingCompany(topics={"t": 3})
    client = scene.member("a")
    other = scene.member("b")
    assert scene.pend(OFFSET, member_id="a", generation=client.epoch) == [OK]
    client.leave()
    assert scene.pend(NewOffset("t", 1, 8), member_id="a", generation=client.epoch) == [ErrorCode.UNKNOWN_MEMBER_ID]
    other.beat()
    scene.end(commits=True)
    assert scene.offsets() == {("t", 0): 7}


def test_an_empty_group_stays_while_a_transaction_is_open_and_can_be_deleted_with_it() -> None:
    scene = PendingCompany(topics={"t": 3})
    scene.say_join("a", "t")
    assert scene.pend(OFFSET, member_id="a", generation=1) == [OK]
    assert scene.delete_group() == ErrorCode.NON_EMPTY_GROUP
    scene.say("a", -1)
    assert scene.pend(NewOffset("t", 1, 8)) == [OK], "a group without members takes offsets of anybody"
    scene.wait(3_600)
    assert scene.view().state is GroupState.EMPTY
    assert scene.unstable() == [("t", 0), ("t", 1)]
    assert scene.delete_group() == OK
    scene.end(commits=True)
    assert not scene.coordinator.holds("g")
    assert scene.coordinator.held_bytes == 0


def test_a_subscribed_topic_keeps_what_is_pending_for_it() -> None:
    scene = PendingCompany(topics={"t": 3, "u": 1})
    scene.say_join("a", "t")
    scene.pend(OFFSET, NewOffset("u", 0, 8), member_id="a", generation=1)
    reply = scene.delete_offsets(("t", 0), ("u", 0))
    assert [error for *_, error in reply.partitions] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, OK]
    scene.end(commits=True)
    assert scene.offsets() == {("t", 0): 7}
