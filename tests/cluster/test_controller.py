"""The controller decides, the image replays; deciding changes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster import records
from penstock.cluster.commands import (
    AddPartitions,
    BuryTopic,
    Command,
    CreateTopics,
    DeleteTopic,
    MorePartitions,
    NewTopic,
    RegisterNode,
    TakeProducerBlock,
    UnfenceNode,
)
from penstock.cluster.configuring import Change, ConfigureNode, ConfigureTopic
from penstock.cluster.controller import PRODUCER_BLOCK_SIZE, Controller
from penstock.cluster.image import ClusterImage
from penstock.cluster.replies import Reply
from penstock.errors import ErrorCode, Refusal
from penstock.settings import TopicConfig
from penstock.wire.configs import Operation

pytestmark = pytest.mark.invariant("node.clean-shutdown-marker")


def topic_id(n: int) -> bytes:
    return n.to_bytes(16, "big")


def controller(partitions_max: int = 100) -> Controller:
    made = Controller(ClusterImage(), TopicConfig(), 3, partitions_max)
    come_up(made)
    return made


def come_up(made: Controller, *, was_stopped_cleanly: bool = True) -> None:
    carry_out(made, RegisterNode(1, "cluster", "directory", "localhost", 9092, was_stopped_cleanly=was_stopped_cleanly))
    carry_out(made, UnfenceNode(1, made.image.nodes[1].node_epoch))


def carry_out(made: Controller, command: Command) -> tuple[Reply, ...]:
    decision = made.decide(command)
    for record in decision.records:
        made.image.replay(records.decode(records.encode(record)))
    return decision.replies


def create(made: Controller, *topics: NewTopic) -> list[ErrorCode]:
    return [reply.code if isinstance(reply, Refusal) else ErrorCode.NONE for reply in carry_out(made, CreateTopics(topics))]


def test_a_topic_is_made_with_the_defaults_where_nothing_is_said() -> None:
    made = controller()
    assert create(made, NewTopic("orders", topic_id(5), -1)) == [ErrorCode.NONE]
    topic = made.image.topics["orders"]
    assert len(topic.partitions) == 3
    assert topic.partitions[0].leader == 1
    assert made.image.topics_by_id[topic_id(5)] is topic


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (NewTopic("", topic_id(1), 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("..", topic_id(1), 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a/b", topic_id(1), 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a\0", topic_id(1), 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("ä", topic_id(1), 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 250, topic_id(1), 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a", topic_id(1), 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("a", topic_id(1), -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("a", topic_id(1), 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("a", topic_id(1), 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("a", topic_id(1), 1, overrides={"retention.mss": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("a", topic_id(1), 1, overrides={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("a", topic_id(1), 1, overrides={"flush": "never"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("a", topic_id(1), 1, assignments=((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("a", topic_id(1), -1, assignments=((0, (2,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", topic_id(1), -1, assignments=((1, (1,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", topic_id(1), -1, assignments=((0, (1, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", topic_id(1), 98), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_each_impossible_topic_is_refused_with_its_code_and_nothing_is_made(wish: NewTopic, code: ErrorCode) -> None:
    made = controller()
    create(made, NewTopic("there", topic_id(9), 3))
    assert create(made, wish) == [code]
    assert list(made.image.topics) == ["there"]


def test_topics_of_one_request_stand_or_fall_each_by_itself() -> None:
    made = controller(partitions_max=5)
    wishes = [NewTopic("a", topic_id(1), 3), NewTopic("b", topic_id(2), 3), NewTopic("c", topic_id(3), 2), NewTopic("a", topic_id(4), 1)]
    assert create(made, *wishes) == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert made.image.partition_count == 5


def test_a_deleted_topic_is_owed_a_burial_and_its_name_is_free() -> None:
    made = controller()
    create(made, NewTopic("a", topic_id(1), 2))
    carry_out(made, DeleteTopic(topic_id(1)))
    assert made.image.topics == {}
    assert list(made.image.graveyard) == [topic_id(1)]
    assert create(made, NewTopic("a", topic_id(2), 2)) == [ErrorCode.NONE]
    carry_out(made, BuryTopic(topic_id(1), 1))
    assert not made.image.graveyard
    (refusal,) = carry_out(made, DeleteTopic(topic_id(1)))
    assert isinstance(refusal, Refusal)
    assert refusal.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_producer_blocks_never_overlap() -> None:
    made = controller()
    blocks = [carry_out(made, TakeProducerBlock(1))[0] for _ in range(3)]
    assert [block.first for block in blocks] == [0, PRODUCER_BLOCK_SIZE, 2 * PRODUCER_BLOCK_SIZE]  # type: ignore[union-attr]


def test_an_unclean_return_begins_a_new_leader_epoch_and_a_clean_one_does_not() -> None:
    made = controller()
    create(made, NewTopic("a", topic_id(1), 1))
    come_up(made)
    assert made.image.topics["a"].partitions[0].leader_epoch == 0
    come_up(made, was_stopped_cleanly=False)
    assert made.image.topics["a"].partitions[0].leader_epoch == 1
    assert made.image.nodes[1].node_epoch == 3


def test_a_record_of_a_newer_penstock_is_not_guessed_at() -> None:
    payload = bytearray(records.encode(records.ClusterFormed("c")))
    payload[3] = 9
    with pytest.raises(records.UnknownRecord):
        records.decode(bytes(payload))
    payload[1] = 99
    with pytest.raises(records.UnknownRecord):
        records.decode(bytes(payload))


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (MorePartitions("none", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MorePartitions("there", 3), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("there", 2), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("there", -1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("there", 101), ErrorCode.POLICY_VIOLATION),
        (MorePartitions("there", 5, ((1,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("there", 4, ((1, 1),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("there", 4, ((2,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("there", 4, ((),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_that_cannot_grow_is_refused_with_its_code_and_stays(wish: MorePartitions, code: ErrorCode) -> None:
    made = controller()
    create(made, NewTopic("there", topic_id(9), 3))
    (refusal,) = carry_out(made, AddPartitions((wish,)))
    assert isinstance(refusal, Refusal) and refusal.code is code
    assert made.image.partition_count == len(made.image.topics["there"].partitions) == 3


def test_a_topic_grows_within_the_bound_and_new_partitions_begin_their_own_epochs() -> None:
    made = controller(partitions_max=6)
    create(made, NewTopic("a", topic_id(1), 2), NewTopic("b", topic_id(2), 1))
    come_up(made, was_stopped_cleanly=False)
    replies = carry_out(made, AddPartitions((MorePartitions("a", 4, ((1,), (1,))), MorePartitions("b", 3), MorePartitions("b", 2))))
    assert [isinstance(reply, Refusal) for reply in replies] == [False, True, False], "what one takes is not there for the next"
    assert [partition.leader_epoch for partition in made.image.topics["a"].partitions] == [1, 1, 0, 0]
    assert made.image.partition_count == 6


STEPS = ["create", "grow", "tell", "tell node", "delete", "bury", "block", "unclean"]


@pytest.mark.invariant("controller.snapshot-replays")
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), max_size=40))
def test_a_snapshot_replays_into_the_same_image(steps: list[tuple[str, int]]) -> None:
    made = controller()
    for n, (what, which) in enumerate(steps):
        match what:
            case "create":
                create(made, NewTopic(f"t{which}", topic_id(n + 1), which + 1, overrides={"retention.ms": str(which)}))
            case "grow":
                carry_out(made, AddPartitions((MorePartitions(f"t{which}", which + 3),)))
            case "tell":
                changes = (Change("retention.ms", Operation.SET, str(n)), Change("flush", Operation(n % 2), "os"))
                carry_out(made, ConfigureTopic(f"t{which}", changes, replaces_all=n % 3 == 0))
            case "tell node":
                changes = (Change("num.partitions", Operation(n % 2), str(n + 1)),)
                carry_out(made, ConfigureNode(records.EVERY_NODE if which % 2 else 1, changes))
            case "delete" if f"t{which}" in made.image.topics:
                carry_out(made, DeleteTopic(made.image.topics[f"t{which}"].topic_id))
            case "bury" if made.image.graveyard:
                carry_out(made, BuryTopic(next(iter(made.image.graveyard)), 1))
            case "block":
                carry_out(made, TakeProducerBlock(1))
            case "unclean":
                come_up(made, was_stopped_cleanly=False)
    again = ClusterImage()
    for record in made.image.snapshot():
        again.replay(records.decode(records.encode(record)))
    assert again == made.image
