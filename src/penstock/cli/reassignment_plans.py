"""Where partitions shall lie: plans read from a file in Kafka's form, or made to spread a topic or to empty a node.

A plan that is made moves as little as it can: a replica stays where it is unless its node has more than its share. Among nodes that would
do, those in racks that the partition has no replica in yet come first, then those that hold least.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import click

from penstock.cli.faults import Fault
from penstock.cluster.topic_names import is_companion
from penstock.peers.cluster import PartitionDescription, TopicDescription
from penstock.vocabulary import TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]
Racks = Mapping[int, str | None]

EXAMPLE = '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}'


def read_plan(text: str, name: str) -> Plan:
    """As kafka-reassign-partitions takes it."""
    try:
        told: Any = json.loads(text)
        rows = [(TopicPartition(str(row["topic"]), int(row["partition"])), tuple(map(int, row["replicas"]))) for row in told["partitions"]]
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise Fault(f"{name} is no plan: {wrong!r}", f"it looks like {EXAMPLE}") from None
    plan = dict(rows)
    if len(plan) != len(rows):
        raise Fault(f"{name} names a partition twice", "name each once")
    for where, replicas in plan.items():
        if not replicas or len(set(replicas)) != len(replicas):
            raise Fault(f"{name}: {where} needs replicas, each node once")
    if not plan:
        raise Fault(f"{name} names no partition")
    return plan


def node_numbers(text: str, option: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words) or len(set(words)) != len(words):
        raise click.UsageError(f"{option} {text!r} must be node numbers with commas between them, each once")
    return [int(word) for word in words]


def spell_plan(plan: Mapping[TopicPartition, Sequence[int]]) -> str:
    rows = [{"topic": where.topic, "partition": where.partition, "replicas": list(replicas)} for where, replicas in plan.items()]
    return json.dumps({"version": 1, "partitions": rows})


def spread(topic: TopicDescription, nodes: Sequence[int], racks: Racks, factor: int | None = None) -> Plan:
    """Over these nodes, evenly, each partition with as many replicas as it has or as `factor` says."""
    wanted = {state.partition: factor or len(state.replicas) for state in topic.partitions}
    most = max(wanted.values(), default=1)
    if most > len(nodes):
        what = f"{most} replicas of {topic.name!r} need as many nodes, and {len(nodes)} are named"
        raise Fault(what, "name more with --to, or lower --replication-factor")
    chosen = {state.partition: [node for node in state.replicas if node in nodes][: wanted[state.partition]] for state in topic.partitions}
    loads = dict.fromkeys(nodes, 0)
    for node in (node for replicas in chosen.values() for node in replicas):
        loads[node] += 1
    for partition, replicas in chosen.items():
        while len(replicas) < wanted[partition]:
            replicas.append(_best(nodes, replicas, racks, loads))
            loads[replicas[-1]] += 1
    while any([_even_out(replicas, nodes, racks, loads) for replicas in chosen.values()]):
        pass  # Each move makes a large load smaller and a small one larger, so this ends.
    firsts = dict.fromkeys(nodes, 0)
    plan: Plan = {}
    for partition, replicas in chosen.items():
        replicas.sort(key=lambda node: firsts[node])  # Stable: the order that there was is kept where it does not matter.
        firsts[replicas[0]] += 1
        plan[TopicPartition(topic.name, partition)] = tuple(replicas)
    return plan


def without(node: int, topics: Iterable[TopicDescription], live: Sequence[int], racks: Racks, full: Collection[int] = ()) -> Plan:
    """Every replica of the node on another node, in its place. Ledgers of queues go with their queues, and are in no plan.

    Nodes whose disks are `full` get something only where no other can.
    """
    others = [each for each in live if each != node]
    states = [(TopicPartition(topic.name, state.partition), state) for topic in topics for state in topic.partitions]
    loads = dict.fromkeys(others, 0)
    for _, state in states:
        for replica in state.replicas:
            if replica in loads:
                loads[replica] += 1
    plan: Plan = {}
    for where, state in states:
        if node in state.replicas and not is_companion(where.topic):
            kept = [replica for replica in state.replicas if replica != node]
            if not set(others) - set(kept):
                raise _too_few(where, state, node, len(others))
            roomy = [each for each in others if each not in full]
            heir = _best(roomy if set(roomy) - set(kept) else others, kept, racks, loads)
            loads[heir] += 1
            plan[where] = tuple(heir if replica == node else replica for replica in state.replicas)
    return plan


def changed(plan: Plan, topics: Iterable[TopicDescription]) -> Plan:
    """What of the plan is not so already. A partition that is not there stays in: the controller will say so."""
    held = {TopicPartition(topic.name, state.partition): state.replicas for topic in topics for state in topic.partitions}
    return {where: replicas for where, replicas in plan.items() if held.get(where) != replicas}


def _too_few(where: TopicPartition, state: PartitionDescription, node: int, others: int) -> Fault:
    return Fault(
        f"{where} has {len(state.replicas)} replicas, and without node {node} there would be {others} node{'s' if others != 1 else ''}",
        "add a node first, or give the topic fewer replicas: penstock cluster reassign --topic NAME --to ... --replication-factor ...",
    )


def _even_out(replicas: list[int], nodes: Sequence[int], racks: Racks, loads: dict[int, int]) -> bool:
    """Moves one replica to a node that holds two fewer at least, if there is one in a rack that is not worse. Whether it did."""
    for place, node in enumerate(replicas):
        used = {racks.get(other) for other in replicas if other != node} - {None}
        able = [other for other in nodes if other not in replicas and (racks.get(other) not in used or racks.get(node) in used)]
        least = min(able, key=lambda other: (loads[other], other), default=node)
        if loads[node] - loads[least] > 1:
            replicas[place] = least
            loads[node] -= 1
            loads[least] += 1
            return True
    return False


def _best(nodes: Sequence[int], taken: Sequence[int], racks: Racks, loads: Mapping[int, int]) -> int:
    used = {racks.get(node) for node in taken} - {None}
    return min((node for node in nodes if node not in taken), key=lambda node: (racks.get(node) in used, loads[node], node))
