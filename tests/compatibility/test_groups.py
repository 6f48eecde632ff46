"""Consumer groups of three client libraries: who owns what as members come, leave, die, come back, or are too many."""

from contextlib import ExitStack

import pytest
from compatibility.group_log import read_history
from compatibility.workers import LIBRARIES, MORTAL_SESSION_MS, Worker, share
from system.conftest import Broker
from system.librdkafka import make_topic, produce_all, unique
from waiting import until

# A group of several settles in one rebalance or two, and a member that is killed is missed soon.
NODE_SETTINGS = {"group.initial.rebalance.delay.ms": 200, "group.min.session.timeout.ms": MORTAL_SESSION_MS}
PARTITIONS = 6
COOPERATIVE = ("confluent", "kafka-python")  # aiokafka has no cooperative assignor,
TELLS_ITS_INSTANCE = ("confluent", "kafka-python")  # and its heartbeats and commits are too old to carry an instance id.

each_library = pytest.mark.parametrize("library", LIBRARIES)


@each_library
def test_partitions_are_shared_and_taken_over_when_a_member_leaves_or_dies(broker: Broker, library: str) -> None:
    topic, group = make_topic(broker.bootstrap, unique("shared"), PARTITIONS), unique("group")
    with Worker(library, broker.bootstrap, group, topic) as one:
        until(lambda: share([one], PARTITIONS), "a lone member owns everything")
        with Worker(library, broker.bootstrap, group, topic) as two:
            until(lambda: share([one, two], PARTITIONS) and len(one.owned()) == 3, "two members own three partitions each")
            two.stop()
        until(lambda: share([one], PARTITIONS), "what a member leaves is taken over")
        with Worker(library, broker.bootstrap, group, topic, session_ms=MORTAL_SESSION_MS) as three:
            until(lambda: share([one, three], PARTITIONS) and len(three.owned()) == 3, "a newcomer gets its share")
            three.kill()
            until(lambda: share([one], PARTITIONS), "what a dead member had is taken over")
        one.stop()
    if broker.node is not None:
        read_history(broker.bootstrap, group).check()


@each_library
def test_twelve_members_on_six_partitions_leave_six_idle(broker: Broker, library: str) -> None:
    topic, group = make_topic(broker.bootstrap, unique("crowd"), PARTITIONS), unique("group")
    with Worker(library, broker.bootstrap, group, topic, members=12) as crowd:
        until(
            lambda: sorted(map(len, crowd.owned_by_each())) == [0] * 6 + [1] * 6 and share([crowd], PARTITIONS),
            "six members own one partition each, and six own none",
        )
        crowd.stop()


def test_members_of_three_libraries_share_one_group(broker: Broker) -> None:
    topic, group = make_topic(broker.bootstrap, unique("mixed"), PARTITIONS), unique("group")
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(library, broker.bootstrap, group, topic)) for library in LIBRARIES]
        until(lambda: share(workers, PARTITIONS) and all(len(one.owned()) == 2 for one in workers), "each owns two partitions")
        produce_all(broker.bootstrap, topic, [{"value": b"%d" % number, "partition": number % PARTITIONS} for number in range(60)])
        until(lambda: sum(len(one.values()) for one in workers) == 60, "every record is read once")
        assert sorted(int(value) for one in workers for value in one.values()) == list(range(60))
        for one in workers:
            one.stop()


@pytest.mark.parametrize("library", COOPERATIVE)
def test_a_cooperative_rebalance_moves_only_what_must_move(broker: Broker, library: str) -> None:
    topic, group = make_topic(broker.bootstrap, unique("cooperative"), PARTITIONS), unique("group")
    with ExitStack() as stack:

        def enter() -> Worker:
            return stack.enter_context(Worker(library, broker.bootstrap, group, topic, strategy="cooperative-sticky"))

        one, two = enter(), enter()
        until(lambda: share([one, two], PARTITIONS) and len(one.owned()) == len(two.owned()) == 3, "two members own three each")
        before = [one.owned(), two.owned()]
        seen = [len(one.events), len(two.events)]
        three = enter()
        until(
            lambda: share([one, two, three], PARTITIONS) and [len(each.owned()) for each in (one, two, three)] == [2, 2, 2],
            "three members own two partitions each",
        )
        for worker, had, since in zip((one, two), before, seen, strict=True):
            given_up = [
                partition for event in worker.events[since:] if event["what"] in ("revoked", "lost") for partition in event["partitions"]
            ]
            assert len(given_up) == 1, "one partition moves, the others stay where they are"
            assert worker.owned() == had - set(given_up)
        for worker in (one, two, three):
            worker.stop()


@each_library
def test_a_static_member_that_restarts_causes_no_rebalance(broker: Broker, library: str) -> None:
    topic, group = make_topic(broker.bootstrap, unique("static"), PARTITIONS), unique("group")

    def enter(instance_id: str) -> Worker:
        return stack.enter_context(Worker(library, broker.bootstrap, group, topic, instance_ids=[instance_id]))

    with ExitStack() as stack:
        one, two = enter("one"), enter("two")
        until(lambda: share([one, two], PARTITIONS) and len(two.owned()) == 3, "two members own three each")
        had, seen = two.owned(), len(one.told("assigned", "revoked", "lost"))
        two.stop()
        again = enter("two")
        until(lambda: again.owned() == had, "it owns again what it had")
        assert one.told("assigned", "revoked", "lost")[seen:] == [], "nobody else noticed"
        again.kill()
        once_more = enter("two")
        until(lambda: once_more.owned() == had, "it owns again what it had, also after it was killed")
        assert one.told("assigned", "revoked", "lost")[seen:] == [], "nobody else noticed"
        if broker.node is not None:
            generations = [saved.generation for saved in read_history(broker.bootstrap, group).generations]
            assert generations[-1] == generations[-2] == generations[-3]


@pytest.mark.parametrize("library", TELLS_ITS_INSTANCE)
def test_a_second_holder_of_an_instance_id_fences_the_first(broker: Broker, library: str) -> None:
    """librdkafka gives up at its next heartbeat, kafka-python stops its heartbeats and is refused its next commit."""
    topic, group = make_topic(broker.bootstrap, unique("fenced"), PARTITIONS), unique("group")
    with ExitStack() as stack:
        holders = []
        for _ in range(2):
            holders.append(stack.enter_context(Worker(library, broker.bootstrap, group, topic, instance_ids=["the one"])))
            until(lambda: share([holders[-1]], PARTITIONS), "the last to come owns everything")
        first, second = holders
        produce_all(broker.bootstrap, topic, [{"value": b"x", "partition": partition} for partition in range(PARTITIONS)])
        until(lambda: bool(first.told("failed", "uncommitted")), "the first holder is told")
        assert "fenced" in first.told("failed", "uncommitted")[0]["error"].lower()
        until(lambda: len(second.told("committed")) > 0, "the second reads and commits")
        assert not second.told("failed", "uncommitted")
