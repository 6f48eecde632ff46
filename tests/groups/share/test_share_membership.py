"""Members of share groups join, share partitions, stay, and go."""

from groups.consumer.company import id_of
from groups.share.crew import NONE, Crew

from penstock.errors import ErrorCode
from penstock.groups.share.records import LedgersOf
from penstock.groups.states import GroupState
from penstock.settings import GroupConfig


def test_one_partition_is_shared_by_all_members() -> None:
    crew = Crew({"t": 1})
    ann, bob = crew.worker("ann"), crew.worker("bob")
    assert ann.beat() is NONE
    assert ann.has == bob.has == [("t", 0)]
    assert ann.epoch == bob.epoch == 2


def test_members_hear_of_a_change_by_their_next_heartbeat_and_of_nothing_else() -> None:
    crew = Crew({"t": 2})
    ann = crew.worker("ann")
    assert ann.has == [("t", 0), ("t", 1)]
    bob = crew.worker("bob")
    assert len(bob.has) == 1
    assert ann.beat() is NONE
    assert sorted(ann.has + bob.has) == [("t", 0), ("t", 1)]
    records_before = len(crew.log)
    reply = crew.share("ann", ann.epoch)
    assert (reply.error, reply.assignment, reply.member_epoch, reply.heartbeat_interval_ms) == (NONE, None, ann.epoch, 5_000)
    assert len(crew.log) == records_before


def test_a_topic_that_comes_later_or_grows_is_shared_out() -> None:
    crew = Crew()
    ann = crew.worker("ann", "late")
    assert ann.has == []
    crew.make("late", 1)
    ann.beat()
    assert ann.has == [("late", 0)]
    crew.make("late", 3)
    ann.beat()
    assert ann.has == [("late", 0), ("late", 1), ("late", 2)]
    assert crew.shared().ledgers == {id_of("late"): LedgersOf("late", (0, 1, 2))}


def test_an_epoch_that_is_not_the_members_is_fenced_but_the_one_before() -> None:
    crew = Crew({"t": 1})
    ann = crew.worker("ann")
    before = ann.epoch
    crew.worker("bob")
    ann.beat()
    assert ann.epoch > before
    lost = crew.share("ann", before)
    assert (lost.error, lost.member_epoch) == (NONE, ann.epoch)
    assert lost.assignment is not None, "the answer that told of it got lost"
    assert crew.share("ann", ann.epoch + 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert crew.share("nobody", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert crew.share("ann", 1, group="none").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_who_joins_again_under_its_id_begins_anew() -> None:
    crew = Crew({"t": 1})
    ann = crew.worker("ann")
    assert ann.join() is NONE
    assert ann.has == [("t", 0)]
    assert len(crew.shared().members) == 1


def test_a_request_that_makes_no_sense_is_refused() -> None:
    crew = Crew({"t": 1})
    wrong = [
        ("", 0, {"topics": ("t",)}),
        ("m", 0, {}),
        ("m", 0, {"topics": ()}),
        ("m", -2, {}),
        ("m", 0, {"topics": ("t",), "rack_id": " "}),
    ]
    for member_id, epoch, said in wrong:
        assert crew.share(member_id, epoch, **said).error is ErrorCode.INVALID_REQUEST, (member_id, epoch, said)
    assert crew.share("m" * 40_000, 0, topics=("t",)).error is ErrorCode.INVALID_REQUEST
    assert crew.share("m", 0, group="", topics=("t",)).error is ErrorCode.INVALID_REQUEST
    assert not crew.log


def test_a_member_that_is_not_heard_of_goes_and_the_others_have_its_share() -> None:
    crew = Crew({"t": 2})
    ann = crew.worker("ann")
    crew.worker("bob")
    ann.beat()
    for _ in range(10):
        crew.wait(5)
        assert ann.beat() is NONE
    assert [each.member.member_id for each in crew.shared().members] == ["ann"]
    assert ann.has == [("t", 0), ("t", 1)]


def test_a_groups_own_config_holds_against_the_nodes() -> None:
    crew = Crew({"t": 1}, GroupConfig(share_session_timeout_ms=60_000, share_heartbeat_interval_ms=15_000))
    assert crew.share("ann", 0, topics=("t",)).heartbeat_interval_ms == 15_000
    crew.wait(59)
    assert len(crew.shared().members) == 1
    crew.wait(2)
    assert crew.shared().state is GroupState.EMPTY


def test_after_a_restart_members_have_a_full_session_and_their_places() -> None:
    crew = Crew({"t": 2})
    ann, bob = crew.worker("ann"), crew.worker("bob")
    ann.beat()
    crew.wait(40)
    crew.restart()
    crew.wait(40)
    assert (ann.beat(), bob.beat()) == (NONE, NONE)
    assert sorted(ann.has + bob.has) == [("t", 0), ("t", 1)]


def test_a_group_is_full_at_its_bound() -> None:
    crew = Crew({"t": 1}, group_share_max_size=2)
    ann = crew.worker("ann")
    crew.worker("bob")
    assert crew.share("eve", 0, topics=("t",)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert ann.join() is NONE
    ann.leave()
    assert crew.share("eve", 0, topics=("t",)).error is NONE


def test_names_are_one_namespace_with_groups_of_other_kinds() -> None:
    crew = Crew({"t": 1})
    crew.worker("ann")
    assert crew.say_join("bob").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert crew.joined(crew.join()).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert crew.beat("ann", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert crew.coordinator.fault_of_reader("g", "", -1) is ErrorCode.GROUP_ID_NOT_FOUND
    crew.member("cas", group="of consumers")
    assert crew.share("ann", 0, group="of consumers", topics=("t",)).error is ErrorCode.GROUP_ID_NOT_FOUND
    crew.come(group="classic")
    assert crew.share("ann", 0, group="classic", topics=("t",)).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert {(each.group, each.kind) for each in crew.coordinator.groups()} == {
        ("g", "share"), ("of consumers", "consumer"), ("classic", "classic")
    }  # fmt: skip


def test_a_group_is_deleted_when_it_is_empty_and_its_ledgers_are_forgotten() -> None:
    crew = Crew({"t": 2})
    ann = crew.worker("ann")
    assert crew.try_delete().error is ErrorCode.NON_EMPTY_GROUP
    ann.leave()
    first = crew.try_delete()
    assert (first.error, first.is_over, first.ledgers) == (NONE, False, {id_of("t"): LedgersOf("t", (0, 1))})
    assert crew.share("ann", 0, topics=("t",)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is being deleted"
    assert crew.try_delete(hold=first.hold).is_over
    assert crew.coordinator.describe_share("g") is None
    assert all(value is None for value in crew.log.values())
    assert crew.coordinator.held_bytes == 0
    assert crew.try_delete().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_share_group_does_not_age() -> None:
    crew = Crew({"t": 1})
    crew.worker("ann").leave()
    crew.wait(30 * 86_400)
    assert crew.shared().state is GroupState.EMPTY
