"""Plans that even out a cluster: what they promise for any cluster, and what they choose."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.reassignment_plans import Plan
from penstock.cli.rebalance_plans import rebalanced
from penstock.cluster.topic_names import companion_name, is_companion
from penstock.peers.cluster import PartitionDescription, TopicDescription
from penstock.vocabulary import TopicId, TopicPartition

NO_RACKS: dict[int, str | None] = {}
NODES_MAX = 7


@dataclass(frozen=True)
class Case:
    """A cluster: node n has a rack or none, and some nodes may neither give nor take."""

    topics: list[TopicDescription]
    nodes: list[int]
    racks: dict[int, str | None]
    fixed: frozenset[TopicPartition] = frozenset()

    def plan(self) -> Plan:
        return rebalanced(self.topics, self.nodes, self.racks, sizes={}, fixed=self.fixed)

    def after(self) -> "Case":
        plan = self.plan()
        assert not any(is_companion(where.topic) for where in plan)
        return replace(self, topics=[moved(topic, self.topics, plan) for topic in self.topics])


def topic(name: str, *replicas: Sequence[int], leaderless: Collection[int] = ()) -> TopicDescription:
    rows = [
        PartitionDescription(index, -1 if index in leaderless else each[0], 0, tuple(each), tuple(each), (), (), ())
        for index, each in enumerate(replicas)
    ]
    return TopicDescription(name, TopicId(name.encode().ljust(16, b"\0")), name.startswith("__"), tuple(rows))


def ledger_of(data: TopicDescription) -> TopicDescription:
    """A queue's companion: the same replicas."""
    own_id = TopicId(b"ledger".ljust(16, data.name[-1].encode()))
    return replace(data, name=companion_name(data.topic_id), topic_id=own_id, is_internal=True)


def moved(each: TopicDescription, topics: Sequence[TopicDescription], plan: Plan) -> TopicDescription:
    name = next((data.name for data in topics if companion_name(data.topic_id) == each.name), each.name)
    rows = [replace(row, replicas=plan.get(TopicPartition(name, row.partition), row.replicas)) for row in each.partitions]
    return replace(each, partitions=tuple(rows))


def replica_lists(topics: Sequence[TopicDescription]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(each.name, row.partition): row.replicas for each in topics for row in each.partitions}


def held(case: Case) -> dict[int, int]:
    counts = Counter(node for replicas in replica_lists(case.topics).values() for node in replicas)
    return {node: counts[node] for node in case.nodes}


def preferred(case: Case) -> dict[int, int]:
    counts = Counter(replicas[0] for replicas in replica_lists(case.topics).values())
    return {node: counts[node] for node in case.nodes}


def spread_of(loads: Mapping[int, int]) -> int:
    return max(loads.values()) - min(loads.values())


def rack_count(replicas: Sequence[int], racks: Mapping[int, str | None]) -> int:
    return len({racks.get(node) for node in replicas} - {None})


def moved_replicas(case: Case) -> int:
    before = replica_lists(case.topics)
    return sum(len(set(replicas) - set(before[where])) for where, replicas in case.plan().items())


@st.composite
def clusters(draw: st.DrawFn, *, is_plain: bool = False, is_uniform: bool = False) -> Case:
    """Plain: no racks, no queues, and every node gives and takes. Uniform: as many replicas everywhere."""
    count = draw(st.integers(1, NODES_MAX))
    everybody = list(range(1, count + 1))
    everywhere = draw(st.integers(1, count))
    topics: list[TopicDescription] = []
    for number in range(draw(st.integers(1, 4))):
        rows = []
        for _ in range(draw(st.integers(1, 12))):
            factor = everywhere if is_uniform else draw(st.integers(1, count))
            rows.append(draw(st.permutations(everybody))[:factor])
        leaderless = () if is_plain else draw(st.sets(st.integers(0, 11), max_size=2))
        topics.append(topic(f"t{number}", *rows, leaderless=leaderless))
        if not is_plain and draw(st.booleans()):
            topics.append(ledger_of(topics[-1]))
    if is_plain:
        return Case(topics, everybody, NO_RACKS)
    racks = {node: draw(st.sampled_from([None, "east", "west", "north"])) for node in everybody}
    nodes = draw(st.lists(st.sampled_from(everybody), unique=True, min_size=1))
    fixed = draw(st.sets(st.sampled_from([where for where in replica_lists(topics) if not is_companion(where.topic)]), max_size=3))
    return Case(topics, nodes, racks, frozenset(fixed))


@given(clusters())
def test_a_plan_keeps_what_must_be_kept(case: Case) -> None:
    before, after = replica_lists(case.topics), replica_lists(case.after().topics)
    leaderless = {TopicPartition(each.name, row.partition) for each in case.topics for row in each.partitions if row.leader < 0}
    for where, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == len(before[where])
        assert rack_count(replicas, case.racks) >= rack_count(before[where], case.racks)
        assert set(replicas) - set(before[where]) <= set(case.nodes), "who is left out gets nothing"
        assert set(before[where]) - set(replicas) <= set(case.nodes), "and gives nothing"
        if replicas[0] != before[where][0]:
            assert {replicas[0], before[where][0]} <= set(case.nodes)
    for where in case.fixed | leaderless:
        assert after[where] == before[where]


@given(clusters())
def test_a_second_plan_after_the_first_is_empty(case: Case) -> None:
    assert case.after().plan() == {}


@given(clusters())
def test_no_move_is_left_that_would_make_the_loads_more_even(case: Case) -> None:
    """Unless a rack forbids it, or the partition is fixed."""
    done = case.after()
    loads = held(done)
    queues = {each.name for each in done.topics if companion_name(each.topic_id) in {other.name for other in done.topics}}
    for each in done.topics:
        for row in each.partitions:
            if is_companion(each.name) or row.leader < 0 or TopicPartition(each.name, row.partition) in case.fixed:
                continue
            for source in set(row.replicas) & set(case.nodes):
                for target in set(case.nodes) - set(row.replicas):
                    swapped = [target if node == source else node for node in row.replicas]
                    is_allowed = rack_count(swapped, case.racks) >= rack_count(row.replicas, case.racks)
                    weight = 2 if each.name in queues else 1
                    assert not is_allowed or loads[source] - loads[target] <= weight


@given(clusters(is_plain=True))
def test_replicas_and_preferred_leaders_differ_by_one_at_most_where_nothing_forbids_it(case: Case) -> None:
    done = case.after()
    assert spread_of(held(done)) <= 1
    assert spread_of(preferred(done)) <= 1


@given(clusters(is_plain=True, is_uniform=True))
def test_no_more_replicas_move_than_must(case: Case) -> None:
    loads = held(case)
    least, rest = divmod(sum(loads.values()), len(loads))
    surplus = sum(max(0, load - least - bool(rest)) for load in loads.values())
    deficit = sum(max(0, least - load) for load in loads.values())
    assert moved_replicas(case) == max(surplus, deficit)


# What is chosen


def test_a_new_node_takes_its_share_of_every_topic() -> None:
    topics = [topic("large", *[(1, 2), (2, 3), (3, 1)] * 20), topic("small", *[(1, 2), (2, 3), (3, 1)] * 4)]
    done = Case(topics, [1, 2, 3, 4], NO_RACKS).after()
    for each, share in zip(done.topics, (30, 6), strict=True):
        taken = sum(4 in row.replicas for row in each.partitions)
        assert abs(taken - share) <= 2, f"{each.name}: {taken} of a share of {share}"


def test_the_smallest_partitions_move() -> None:
    where = [TopicPartition("t", index) for index in range(6)]
    sizes = dict(zip(where, (5, 60, 1, 50, 3, 40), strict=True))
    plan = rebalanced([topic("t", *[(1,)] * 6)], [1, 2], NO_RACKS, sizes=sizes)
    assert plan == {where[0]: (2,), where[2]: (2,), where[4]: (2,)}


def test_preferred_leaders_are_evened_out_without_moving_anything() -> None:
    """Node 1 can hand over to node 2 alone, which leads one fewer; only when that hands one over to node 3 is anything more even."""
    case = Case([topic("t", (1, 2), (1, 2), (2, 3), (2, 3)), topic("u", (1,), (3,))], [1, 2, 3], NO_RACKS)
    assert preferred(case) == {1: 3, 2: 2, 3: 1}
    assert moved_replicas(case) == 0
    assert preferred(case.after()) == {1: 2, 2: 2, 3: 2}


def test_replicas_are_swapped_where_only_that_evens_out_preferred_leaders() -> None:
    case = Case([topic("single", *[(1,)] * 4), topic("double", *[(2, 3)] * 4)], [1, 2, 3], NO_RACKS)
    assert spread_of(held(case)) == 0
    assert spread_of(preferred(case.after())) <= 1 and spread_of(held(case.after())) == 0


def test_a_queue_moves_with_its_ledger_and_counts_as_two() -> None:
    queue = topic("queue", *[(1,)] * 4)
    case = Case([queue, ledger_of(queue)], [1, 2], NO_RACKS)
    plan = case.plan()
    assert {where.topic for where in plan} == {"queue"} and len(plan) == 2
    assert held(case.after()) == {1: 4, 2: 4}


def test_internal_topics_move_unless_they_are_left_out() -> None:
    topics = [topic("__consumer_offsets", *[(1,)] * 4), topic("t", *[(1,)] * 4)]
    everything = rebalanced(topics, [1, 2], NO_RACKS, sizes={})
    assert Counter(where.topic for where in everything) == {"__consumer_offsets": 2, "t": 2}
    own = rebalanced(topics, [1, 2], NO_RACKS, sizes={}, is_internal_fixed=True)
    assert {where.topic for where in own} == {"t"} and len(own) == 4, "what is left out still counts"


def test_a_replica_does_not_join_another_in_its_rack() -> None:
    racks: dict[int, str | None] = {1: "east", 2: "east", 3: "west"}
    plan = rebalanced([topic("t", *[(1, 3)] * 4)], [1, 2, 3], racks, sizes={})
    assert [sorted(replicas) for replicas in plan.values() if 2 in replicas] == [[2, 3], [2, 3]]


def test_a_large_cluster_is_planned_in_time_that_grows_with_it() -> None:
    """Steps, and what each looks at, are counted in partitions: three times as many take about three times as long."""
    looks = []
    for partitions in (300, 900):
        rows = [(index % 3 + 1, (index + 1) % 3 + 1) for index in range(partitions)]
        counting = CountingRacks()
        assert rebalanced([topic("t", *rows)], range(1, 7), counting, sizes={})
        looks.append(counting.looks)
    assert all(later < 6 * earlier for earlier, later in pairwise(looks))


class CountingRacks(dict[int, str | None]):
    looks = 0

    def get(self, node: int, default: str | None = None) -> str | None:  # type: ignore[override]
        self.looks += 1
        return None
