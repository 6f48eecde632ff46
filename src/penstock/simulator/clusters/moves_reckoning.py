"""The reckoning of what operators asked for: where partitions are, how many there are, which nodes there are, who votes, what is throttled.

It is judged by what is decided, when everything is available again: every replica is in sync by then (recovering.py).
"""

from collections.abc import Iterator

from penstock.cluster.image import ClusterImage
from penstock.cluster.records import EVERY_NODE
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.clusters.moving import THROTTLE
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.workloads.notebook import NOWHERE
from penstock.vocabulary import TopicPartition

PLACE_RULE = "a partition is where it was asked to be"
GROWTH_RULE = "partitions that were added are there"
NODES_RULE = "a node that was forgotten is gone"
VOTERS_RULE = "those vote who are asked to"
THROTTLE_RULE = "a throttle is what it was set to"
Finding = tuple[str, TopicPartition, str]


def reckon_moves(cluster: Cluster, stage: ClusterStage) -> None:
    image = cluster.image()
    if image is not None:
        for rule, where, story in findings(cluster, stage, image):
            stage.notebook.find(rule, where, f"at the end {story}")


def findings(cluster: Cluster, stage: ClusterStage, image: ClusterImage) -> Iterator[Finding]:
    yield from _misplaced(stage, image)
    yield from _too_few_or_many(stage, image)
    yield from _strange_nodes(cluster, image)
    yield from _strange_voters(cluster)
    rate = image.node_overrides.get(EVERY_NODE, {}).get(THROTTLE)
    if rate not in stage.wishes.throttles:
        yield THROTTLE_RULE, NOWHERE, f"{THROTTLE} is {rate}, and was set to {', '.join(map(str, stage.wishes.throttles))}"


def _misplaced(stage: ClusterStage, image: ClusterImage) -> Iterator[Finding]:
    for where, wish in stage.wishes.by_partition.items():
        topic = image.topics.get(where.topic)
        if topic is None or where.partition >= len(topic.partitions):
            yield PLACE_RULE, where, "it is not there"
            continue
        state, possible = topic.partitions[where.partition], wish.possible()
        if frozenset(state.replicas) not in possible or state.is_reassigning:
            asked = " or ".join(str(sorted(replicas)) for replicas in possible)
            yield PLACE_RULE, where, f"it has {state.replicas}, adding {state.adding}, removing {state.removing}; asked for was {asked}"
        elif wish.order is not None and not wish.unknown and state.replicas != wish.order:
            yield PLACE_RULE, where, f"its replicas are {state.replicas}, and were ordered as {wish.order}"


def _too_few_or_many(stage: ClusterStage, image: ClusterImage) -> Iterator[Finding]:
    for name, asked in stage.asked_partitions.items():
        known, topic = stage.topics[name], image.topics.get(name)
        count = 0 if topic is None else len(topic.partitions)
        if not known.partitions <= count <= asked:
            yield GROWTH_RULE, TopicPartition(name, count), f"there are {count}; {known.partitions} were promised, {asked} asked for"
        if topic is None or stage.wishes.by_partition:
            continue  # Where operators move partitions they may choose other numbers of replicas.
        for index, state in enumerate(topic.partitions):
            if len(state.replicas) != known.replication_factor:
                yield GROWTH_RULE, TopicPartition(name, index), f"its replicas are {state.replicas}, not {known.replication_factor}"


def _strange_nodes(cluster: Cluster, image: ClusterImage) -> Iterator[Finding]:
    there = [cluster.processes[host].plan.node_id for host in cluster.hosts]
    for node_id in image.nodes:
        if node_id not in there:
            yield NODES_RULE, NOWHERE, f"node {node_id} is known, and was forgotten"
    for topic, index, state in image.each_partition():
        strange = [node for node in state.replicas if node not in there]
        if strange:
            yield NODES_RULE, TopicPartition(topic.name, index), f"its replicas are {state.replicas}, of which {strange} are gone"


def _strange_voters(cluster: Cluster) -> Iterator[Finding]:
    controller = cluster.deciding()
    if controller is None:
        return
    voters = sorted(replica.node for replica in controller.quorum.voters.replicas)
    meant = sorted(cluster.processes[host].plan.node_id for host in cluster.voters)
    if voters != meant:
        yield VOTERS_RULE, NOWHERE, f"nodes {voters} vote, and {meant} should"
