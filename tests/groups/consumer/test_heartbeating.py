"""Members of the new protocol join, stay, are fenced and leave; each wrong request gets its code, and nothing is stored of it."""

from typing import Any

import pytest
from groups.consumer.company import Company, id_of, settle

from penstock.errors import ErrorCode
from penstock.groups.commands import NewOffset
from penstock.groups.states import GroupState

NONE = ErrorCode.NONE


def test_the_first_member_gets_everything_at_once() -> None:
    company = Company({"t": 3})
    reply = company.say_join("a", "t")
    assert (reply.error, reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == (NONE, "a", 1, 5_000)
    assert reply.assignment == {id_of("t"): (0, 1, 2)}
    assert company.view().state is GroupState.STABLE


def test_a_steady_heartbeat_says_nothing_new_and_stores_nothing() -> None:
    company = Company({"t": 3})
    company.say_join("a", "t")
    company.sizes.clear()
    reply = company.say("a", 1)
    assert (reply.error, reply.member_epoch, reply.assignment) == (NONE, 1, None)
    assert company.sizes == [0]


def test_a_member_that_says_everything_is_told_everything() -> None:
    company = Company({"t": 2})
    company.say_join("a", "t")
    reply = company.say("a", 1, topics=("t",), rebalance_timeout_ms=60_000, owned={id_of("t"): (0, 1)})
    assert reply.assignment == {id_of("t"): (0, 1)}


def test_a_newcomer_waits_until_the_other_has_let_go() -> None:
    """Only what moves is given up: the first keeps one of its two the whole time."""
    company = Company({"t": 2})
    first = company.member("a")
    second = company.member("b")
    assert (first.has, second.has) == ([("t", 0), ("t", 1)], [])
    assert company.view().state is GroupState.RECONCILING
    assert first.beat(obeys=False) is NONE
    assert first.epoch == 1, "its epoch is held back"
    assert second.beat() is NONE and second.has == [], "the first hasn't said yet that it has let go"
    first.obey()
    assert len(first.owned[id_of("t")]) == 1
    assert first.beat() is NONE and first.epoch == 2
    assert second.beat() is NONE
    assert sorted(first.has + second.has) == [("t", 0), ("t", 1)]
    assert len(first.lost) == 1
    assert company.view().state is GroupState.STABLE


def test_a_heartbeat_that_does_not_say_what_it_has_frees_nothing() -> None:
    company = Company({"t": 2})
    first, second = company.member("a"), company.member("b")
    first.beat(obeys=False)
    assert company.say("a", 1).error is NONE
    assert second.beat() is NONE and second.has == []


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"group": " "}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": {id_of("t"): (0,)}}, ErrorCode.INVALID_REQUEST),
        ({"topics": None}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"regex": "(a)\\1"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_a_join_that_is_wrong_is_refused_and_stores_nothing(said: dict[str, Any], code: ErrorCode) -> None:
    company = Company({"t": 1})
    details = {"member_id": "a"} | said
    reply = company.say_join(details.pop("member_id"), **details)
    assert (reply.error, bool(reply.message)) == (code, True)
    assert company.log == {}


@pytest.mark.parametrize(
    ("member_id", "epoch", "said", "code"),
    [
        ("", 1, {}, ErrorCode.INVALID_REQUEST),
        ("a", -3, {}, ErrorCode.INVALID_REQUEST),
        ("a", -2, {}, ErrorCode.INVALID_REQUEST),
        ("a", -1, {"group": "other"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ("a", 1, {"group": "other"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ("nobody", 1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", -1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 1, {"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", -2, {"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 2, {"instance_id": "s"}, ErrorCode.FENCED_INSTANCE_ID),
        ("a", -1, {"instance_id": "s"}, ErrorCode.FENCED_INSTANCE_ID),
        ("a", 7, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("a", 1, {"owned": {id_of("t"): (9,)}}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("a", 1, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("a", 2, {"regex": "a**"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_each_wrong_heartbeat_has_its_code_and_stores_nothing(member_id: str, epoch: int, said: dict[str, Any], code: ErrorCode) -> None:
    company = Company({"t": 2})
    first, static = company.member("a"), company.member("b", instance="s")
    settle(first, static)
    assert first.epoch == 2
    before = dict(company.log)
    assert company.say(member_id, epoch, **said).error is code
    assert company.log == before


def test_a_member_whose_answer_got_lost_may_say_its_last_epoch_once_more() -> None:
    company = Company({"t": 2})
    first, second = company.member("a"), company.member("b")
    first.beat()
    assert (first.epoch, first.owned) == (1, company.view().members[0].assigned)
    assert company.say("a", 1, owned=first.owned).member_epoch == 2  # And this is lost.
    reply = company.say("a", 1, owned=first.owned)
    assert (reply.error, reply.member_epoch) == (NONE, 2)
    settle(second)


def test_a_member_that_missed_what_it_was_told_hears_it_again() -> None:
    """It says neither everything nor its epoch of today: what it says to have is enough to see that it doesn't know."""
    company = Company({"t": 2})
    first = company.member("a")
    company.member("b")
    told = company.say("a", 1, owned=first.owned)
    assert told.assignment is not None and len(told.assignment[id_of("t")]) == 1
    assert company.say("a", 1, owned=first.owned).assignment == told.assignment
    assert company.say("a", 1).assignment is None


def test_a_fenced_member_may_join_again_under_its_id() -> None:
    company = Company({"t": 2})
    first, second = company.member("a"), company.member("b")
    settle(first, second)
    assert company.say("a", 99).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert first.join() is NONE
    settle(first, second)
    assert sorted(first.has + second.has) == [("t", 0), ("t", 1)]


def test_one_that_joins_again_while_it_was_to_give_something_up_has_given_it_up() -> None:
    company = Company({"t": 2})
    first, second = company.member("a"), company.member("b")
    first.beat(obeys=False)
    assert first.join() is NONE
    settle(first, second)
    assert sorted(first.has + second.has) == [("t", 0), ("t", 1)]


def test_version_0_gets_a_member_id() -> None:
    company = Company({"t": 1})
    reply = company.say_join("", "t", brings_member_id=False)
    assert reply.member_id == "fresh1"
    assert company.say("fresh1", 1).error is NONE


def test_whoever_leaves_is_replaced_by_those_who_stay() -> None:
    company = Company({"t": 2})
    first, second = company.member("a"), company.member("b")
    settle(first, second)
    assert second.leave() is NONE
    settle(first)
    assert first.has == [("t", 0), ("t", 1)]
    assert company.say("b", 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_group_that_the_last_one_leaves_is_empty_and_goes_on_counting_epochs() -> None:
    company = Company({"t": 1})
    assert company.member("a").leave() is NONE
    assert company.view().state is GroupState.EMPTY
    assert company.member("b").epoch == 3


@pytest.mark.invariant("groups.silent-member-removed")
def test_a_session_that_lapses_frees_what_the_member_had() -> None:
    company = Company({"t": 2}, group_consumer_session_timeout_ms=10_000)
    first, second = company.member("a"), company.member("b")
    settle(first, second)
    for _ in range(3):
        company.wait(4)
        assert first.beat() is NONE
    settle(first)
    assert first.has == [("t", 0), ("t", 1)]
    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.invariant("groups.silent-member-removed")
def test_one_that_does_not_give_up_in_time_is_fenced_however_alive_it_is() -> None:
    company = Company({"t": 2})
    first, second = company.member("a", rebalance_timeout_ms=9_000), company.member("b")
    for _ in range(3):
        assert first.beat(obeys=False) is NONE
        company.wait(2.9)
    company.wait(0.4)
    assert first.beat(obeys=False) is ErrorCode.UNKNOWN_MEMBER_ID
    settle(second)
    assert second.has == [("t", 0), ("t", 1)]


def test_sessions_and_the_time_to_give_up_begin_anew_after_a_restart() -> None:
    company = Company({"t": 2})
    first, second = company.member("a", rebalance_timeout_ms=9_000), company.member("b")
    first.beat(obeys=False)
    company.wait(8)
    company.restart()
    company.wait(8)
    assert (first.beat(obeys=False), second.beat()) == (NONE, NONE)
    company.wait(1.1)
    assert first.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    settle(second)


def test_a_static_member_that_comes_back_has_its_old_place_and_nobody_notices() -> None:
    company = Company({"t": 2})
    first, static = company.member("a"), company.member("b", instance="s")
    settle(first, static)
    had, epoch = static.has, static.epoch
    assert static.leave(-2) is NONE
    assert first.beat() is NONE and first.has != [("t", 0), ("t", 1)]
    again = company.member("c", instance="s")
    assert (again.has, again.epoch, again.lost) == (had, epoch, [])
    assert company.view().epoch == epoch
    assert company.say("b", epoch, instance_id="s").error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_place_that_is_taken_is_not_given_away_but_its_holder_may_join_again() -> None:
    company = Company({"t": 1})
    static = company.member("b", instance="s")
    assert company.say_join("c", "t", instance_id="s").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert static.join() is NONE
    assert static.has == [("t", 0)]


def test_a_static_member_that_does_not_come_back_lapses() -> None:
    company = Company({"t": 2})
    first, static = company.member("a"), company.member("b", instance="s")
    settle(first, static)
    static.leave(-2)
    for _ in range(12):
        company.wait(4)
        first.beat()
    settle(first)
    assert first.has == [("t", 0), ("t", 1)]


def test_a_group_has_so_many_members_and_static_ones_may_come_back_to_a_full_one() -> None:
    company = Company({"t": 2}, group_consumer_max_size=2)
    company.member("a")
    static = company.member("b", instance="s")
    assert company.say_join("c").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    static.leave(-2)
    assert company.say_join("c", instance_id="s").error is NONE


def test_one_that_lapsed_hears_so_even_if_the_group_is_full_by_now() -> None:
    """At Kafka it would hear that the group is full, which ends a Java consumer, instead of coming again."""
    company = Company({"t": 2}, group_consumer_max_size=1)
    gone = company.member("a")
    gone.leave()
    company.member("b")
    assert gone.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_nothing_is_stored_that_the_memory_has_no_room_for() -> None:
    company = Company({"t": 2}, bytes_max=1_000)
    assert company.say_join("a").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert company.log == {}


def test_what_is_counted_is_given_back() -> None:
    company = Company({"t": 200})
    client = company.member("a")
    assert company.coordinator.held_bytes > 10_000
    client.leave()
    assert company.delete_group() is NONE
    assert company.coordinator.held_bytes == 0
    assert all(value is None for value in company.log.values())


@pytest.mark.invariant("groups.committed-offset-changes")
def test_members_commit_in_their_epoch() -> None:
    company = Company({"t": 2})
    first = company.member("a")
    offset = NewOffset("t", 0, 5)
    assert company.commit(offset, member_id="a", generation=1) == [NONE]
    assert company.commit(offset, member_id="a", generation=0) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert company.commit(offset, member_id="x", generation=1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert company.commit(offset) == [ErrorCode.UNKNOWN_MEMBER_ID], "only members commit while there are some"
    fault = company.coordinator.fault_of_reader
    assert (fault("g", "a", 1), fault("g", "a", 2), fault("g", "x", 1)) == (
        NONE, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID,
    )  # fmt: skip
    first.leave()
    assert company.commit(offset) == [NONE]


def test_offsets_of_what_a_group_reads_stay_and_others_may_be_deleted() -> None:
    company = Company({"t": 1, "u": 1, "logs-a": 1})
    company.member("a", "t", regex="logs-.*")
    company.commit(*(NewOffset(name, 0, 5) for name in ("t", "u", "logs-a")), member_id="a", generation=1)
    reply = company.delete_offsets(("t", 0), ("u", 0), ("logs-a", 0))
    assert [code for *_, code in reply.partitions] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert company.delete_group() is ErrorCode.NON_EMPTY_GROUP


def test_an_empty_group_goes_when_its_offsets_are_too_old() -> None:
    company = Company({"t": 1}, offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000)
    client = company.member("a")
    company.commit(NewOffset("t", 0, 5), member_id="a", generation=1)
    client.leave()
    company.wait(55)
    assert company.coordinator.holds("g")
    company.wait(10)
    assert not company.coordinator.holds("g")


def test_a_decision_that_cannot_be_stored_is_as_if_it_had_not_been() -> None:
    company = Company({"t": 2}, group_consumer_session_timeout_ms=10_000)
    first = company.member("a")
    company.is_disk_full = True
    token = next(company._tokens)
    company.wait(11)
    company.is_disk_full = False
    assert first.beat() is NONE, f"{token}: its going could not be recorded"
    company.make("t", 4)
    company.is_disk_full = True
    with pytest.raises(KeyError):
        first.beat()
    company.is_disk_full = False
    settle(first)
    assert len(first.has) == 4


def test_names_are_one_space_for_both_kinds() -> None:
    company = Company({"t": 1})
    company.commit(NewOffset("t", 0, 7))
    client = company.member("a")
    assert [(listed.group, listed.kind) for listed in company.coordinator.groups()] == [("g", "consumer")]
    assert company.joined(company.join(protocol_type="connect")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    client.leave()
    assert company.joined(company.join(session_ms=1)).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert company.coordinator.groups()[0].kind == "consumer", "whoever is refused changes nothing"
    member_id, token = company.come()
    assert company.joined(token).error is NONE, "an empty group is of the kind of whoever comes first"
    assert [(listed.group, listed.kind) for listed in company.coordinator.groups()] == [("g", "classic")]
    assert company.offset("t", 0).offset == 7
    assert company.say_join("a").error is ErrorCode.GROUP_ID_NOT_FOUND, f"{member_id} says nothing that can be read"
    assert company.say("a", 1).error is ErrorCode.GROUP_ID_NOT_FOUND


