"""Committed offsets: kept, fetched, deleted, and never changed by anything else."""

import pytest
from groups.scene import Scene, settled

from penstock.errors import ErrorCode
from penstock.groups.bounds import DELETED_AT_ONCE, GOING_MS
from penstock.groups.commands import DeleteGroup, ForgetTopic, Leaving, NewOffset
from penstock.groups.replies import DeleteGroupReply, TopicForgotten
from penstock.groups.states import GroupState
from penstock.groups.views import OffsetView
from penstock.vocabulary import TopicId

pytestmark = pytest.mark.invariant("groups.committed-offset-changes")


def subscription(*topics: str) -> tuple[tuple[str, bytes], ...]:
    """What a consumer of these topics sends: version, topics, no user data."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return (("range", b"\x00\x01" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"),)


def test_everything_about_a_commit_comes_back() -> None:
    scene = Scene()
    assert scene.commit(NewOffset("t", 3, 42, leader_epoch=5, metadata="ünïcode ✓")) == [ErrorCode.NONE]
    assert scene.offset("t", 3) == OffsetView("t", 3, 42, 5, "ünïcode ✓", scene.wall_ms)
    scene.restart()
    assert scene.offset("t", 3) == OffsetView("t", 3, 42, 5, "ünïcode ✓", scene.wall_ms)


def test_no_metadata_is_an_empty_text() -> None:
    scene = Scene()
    scene.commit(NewOffset("t", 0, 1, metadata=None))
    assert scene.offset("t", 0).metadata == ""


def test_offsets_come_in_the_order_asked_with_minus_one_for_those_never_committed() -> None:
    scene = Scene()
    scene.commit(NewOffset("b", 1, 10), NewOffset("a", 0, 20))
    asked = [("a", 1), ("a", 0), ("c", 0), ("b", 1)]
    assert [(view.topic, view.partition) for view in scene.coordinator.offsets("g", asked)] == asked
    assert [view.offset for view in scene.coordinator.offsets("g", asked)] == [-1, 20, -1, 10]
    assert scene.coordinator.offsets("unknown", [("a", 0)])[0].offset == -1
    assert scene.coordinator.offsets("unknown", None) == []


def test_the_last_commit_holds_even_when_it_goes_back() -> None:
    scene = Scene()
    for offset in (5, 9, 2):
        scene.commit(NewOffset("t", 0, offset))
    assert scene.offset("t", 0).offset == 2


def test_a_first_commit_makes_a_group_that_is_nothing_but_its_offsets() -> None:
    scene = Scene()
    scene.commit(NewOffset("t", 0, 1))
    listed = scene.coordinator.groups()[0]
    assert (listed.group, listed.state, listed.protocol_type) == ("g", GroupState.EMPTY, "")
    assert scene.coordinator.describe("g").members == ()


def test_a_generation_of_a_group_that_is_not_there_is_refused() -> None:
    scene = Scene()
    assert scene.commit(NewOffset("t", 0, 1), member_id="m", generation=3) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert scene.coordinator.groups() == []


def test_metadata_that_is_too_long_is_refused_for_its_partition_alone() -> None:
    scene = Scene()
    errors = scene.commit(NewOffset("t", 0, 1, metadata="x" * 4097), NewOffset("t", 1, 2, metadata="x" * 4096), NewOffset("t", 2, 3))
    assert errors == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE, ErrorCode.NONE]
    assert scene.offsets() == {("t", 1): 2, ("t", 2): 3}


def test_a_member_without_a_generation_may_not_commit() -> None:
    scene = Scene()
    leader, _ = settled(scene)
    assert scene.commit(NewOffset("t", 0, 1), member_id=leader) == [ErrorCode.ILLEGAL_GENERATION]


def test_offsets_outlive_the_members() -> None:
    scene = Scene()
    names = settled(scene)
    scene.commit(NewOffset("t", 0, 7), member_id=names[0], generation=scene.generation)
    scene.leave(*(Leaving(name) for name in names))
    assert scene.offsets() == {("t", 0): 7}


def test_deleted_offsets_are_gone_and_every_partition_asked_for_is_answered() -> None:
    scene = Scene()
    scene.commit(NewOffset("t", 0, 1), NewOffset("t", 1, 2))
    reply = scene.delete_offsets(("t", 0), ("t", 9), ("u", 0), ("t", 0))
    assert reply.error is ErrorCode.NONE
    assert reply.partitions == (("t", 0, 0), ("t", 9, 0), ("u", 0, 0), ("t", 0, 0))
    assert scene.offsets() == {("t", 1): 2}
    scene.restart()
    assert scene.offsets() == {("t", 1): 2}


def test_a_consumer_group_keeps_the_offsets_of_topics_that_it_reads() -> None:
    scene = Scene()
    member, _ = scene.come(protocols=subscription("read", "too"))
    scene.sync(member, 1)
    scene.commit(NewOffset("read", 0, 1), NewOffset("old", 0, 2), member_id=member, generation=1)
    reply = scene.delete_offsets(("read", 0), ("old", 0))
    assert reply.partitions == (("read", 0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC), ("old", 0, ErrorCode.NONE))
    assert scene.offsets() == {("read", 0): 1}


def test_a_subscription_that_cannot_be_read_might_name_any_topic() -> None:
    scene = Scene()
    member, _ = scene.come(protocols=(("range", b"?"),))
    scene.sync(member, 1)
    scene.commit(NewOffset("t", 0, 1), member_id=member, generation=1)
    assert scene.delete_offsets(("t", 0)).partitions == (("t", 0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),)


def test_a_group_of_another_kind_keeps_its_offsets_while_it_has_members() -> None:
    scene = Scene()
    scene.come(protocol_type="connect")
    reply = scene.delete_offsets(("t", 0))
    assert (reply.error, reply.partitions) == (ErrorCode.NON_EMPTY_GROUP, (("t", 0, ErrorCode.NON_EMPTY_GROUP),))


def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted() -> None:
    reply = Scene().delete_offsets(("t", 0))
    assert (reply.error, reply.partitions) == (ErrorCode.GROUP_ID_NOT_FOUND, (("t", 0, ErrorCode.GROUP_ID_NOT_FOUND),))


def test_a_deleted_group_is_gone_with_its_offsets() -> None:
    scene = Scene()
    names = settled(scene)
    scene.commit(NewOffset("t", 0, 1), NewOffset("u", 1, 2), member_id=names[0], generation=scene.generation)
    assert scene.delete_group() == ErrorCode.NON_EMPTY_GROUP
    scene.leave(*(Leaving(name) for name in names))
    assert scene.delete_group() == ErrorCode.NONE
    for _ in range(2):
        assert (scene.state, scene.offsets(), scene.coordinator.groups()) == (GroupState.DEAD, {}, [])
        scene.restart()
    assert all(value is None for value in scene.log.values()), "nothing but tombstones is left of it"
    assert scene.delete_group() == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_only_commits_can_be_deleted() -> None:
    scene = Scene()
    scene.commit(NewOffset("t", 0, 1))
    assert scene.delete_group() == ErrorCode.NONE
    assert scene.coordinator.groups() == []


def test_deleting_a_group_takes_back_the_ids_given_to_members_to_be() -> None:
    scene = Scene()
    pending = scene.joined(scene.join()).member_id
    assert scene.delete_group() == ErrorCode.NONE
    assert scene.joined(scene.join(pending)).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_deleted_topic_is_forgotten_by_every_group(is_restarted: bool) -> None:
    scene = Scene()
    for group in ("g", "h"):
        scene.commit(NewOffset("gone", 0, 1), NewOffset("gone", 1, 1), NewOffset("kept", 0, 2), group=group)
    scene.commit(NewOffset("gone", 0, 1), group="i")
    assert scene.ask(ForgetTopic(token="t", topic="gone")) == TopicForgotten(5)
    if is_restarted:
        scene.restart()
    assert scene.offsets("g") == scene.offsets("h") == {("kept", 0): 2}
    assert [listed.group for listed in scene.coordinator.groups()] == ["g", "h"]


def test_forgetting_a_topic_spares_what_was_committed_for_the_next_one_of_its_name() -> None:
    scene = Scene()
    old, new = TopicId(b"the one that was"), TopicId(b"the one after it")
    scene.commit(NewOffset("t", 0, 1, topic_id=old), NewOffset("t", 1, 2, topic_id=new), NewOffset("t", 2, 3))
    assert scene.coordinator.has_offsets_of("t", old)
    assert scene.ask(ForgetTopic(token="t", topic="t", topic_id=old)) == TopicForgotten(2)
    assert not scene.coordinator.has_offsets_of("t", old)
    assert [(view.partition, view.offset) for view in scene.coordinator.offsets("g", None)] == [(1, 2)]


def test_a_large_group_goes_in_pieces_and_nobody_joins_it_meanwhile() -> None:
    scene = Scene()
    leader = settled(scene, 1)[0]
    offsets = [NewOffset("t", number, 1) for number in range(2 * DELETED_AT_ONCE + 1)]
    scene.commit(*offsets, member_id=leader, generation=scene.generation)
    scene.leave(Leaving(leader))
    scene.sizes.clear()
    assert scene.ask(DeleteGroup(token="first", group="g")) == DeleteGroupReply(ErrorCode.NONE, is_over=False)
    assert scene.joined(scene.join()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.commit(NewOffset("t", 0, 2)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert scene.ask(DeleteGroup(token="second", group="g")) == DeleteGroupReply(ErrorCode.NONE, is_over=False)
    assert scene.state is GroupState.EMPTY, "it is there until all of it is gone"
    assert scene.ask(DeleteGroup(token="third", group="g")) == DeleteGroupReply(ErrorCode.NONE, is_over=True)
    assert [size for size in scene.sizes if size] == [DELETED_AT_ONCE, DELETED_AT_ONCE, 2]
    assert scene.state is GroupState.DEAD
    assert scene.joined(scene.join()).error is ErrorCode.MEMBER_ID_REQUIRED, "it can be made anew at once"


def test_a_deletion_that_was_cut_off_keeps_nobody_out_for_long() -> None:
    scene = Scene()
    scene.commit(*(NewOffset("t", number, 1) for number in range(DELETED_AT_ONCE + 1)))
    scene.ask(DeleteGroup(token="first", group="g"))
    scene.wait(GOING_MS / 1000)
    assert scene.commit(NewOffset("t", 0, 2)) == [ErrorCode.NONE]
    assert scene.joined(scene.join()).error is ErrorCode.MEMBER_ID_REQUIRED


def test_a_deleted_topic_may_be_forgotten_in_pieces() -> None:
    scene = Scene()
    for group in ("g", "h"):
        scene.commit(*(NewOffset("gone", number, 1) for number in range(5)), group=group)
    forgotten = [scene.ask(ForgetTopic(token=token, topic="gone", offsets_max=4)) for token in "abcd"]
    assert forgotten == [TopicForgotten(4), TopicForgotten(4), TopicForgotten(2), TopicForgotten(0)]
    assert not scene.coordinator.has_offsets_of("gone")
