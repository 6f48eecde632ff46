"""Topics as Kafka's kafka-topics prints them, to the letter: scripts and people who know that tool read on.

A line for the topic, then one for each partition. Fields are separated by tabs and keep Kafka's names. Replicas that are being added and
removed stand there only while a partition is on its way; Elr are the eligible leader replicas (KIP-966).
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.peers.cluster import Moving, PartitionDescription, TopicDescription
from penstock.peers.topics import NO_LEADER
from penstock.wire.configs import Source


def topic_line(topic: TopicDescription, moving: Mapping[int, Moving], configs: Mapping[str, Any]) -> str:
    first = topic.partitions[0] if topic.partitions else None
    factor = 0 if first is None else len(first.replicas) - (len(moving[first.partition].adding) if first.partition in moving else 0)
    fields = [
        f"Topic: {topic.name}",
        f"TopicId: {base64.urlsafe_b64encode(topic.topic_id).decode().rstrip('=')}",
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {factor}",
        "Configs: " + ",".join(f"{name}={row.value}" for name, row in configs.items() if row.config_source != Source.DEFAULT),
    ]
    return "\t".join(fields)


def partition_line(topic: str, state: PartitionDescription, moving: Moving | None) -> str:
    fields = [
        f"\tTopic: {topic}",
        f"Partition: {state.partition}",
        f"Leader: {'none' if state.leader == NO_LEADER else state.leader}",
        f"Replicas: {_nodes(state.replicas)}",
        f"Isr: {_nodes(state.in_sync)}",
    ]
    if moving is not None:
        fields += [f"Adding Replicas: {_nodes(moving.adding)}", f"Removing Replicas: {_nodes(moving.removing)}"]
    return "\t".join([*fields, f"Elr: {_nodes(state.eligible)}", f"LastKnownElr: {_nodes(state.last_known_eligible)}"])


def _nodes(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))
