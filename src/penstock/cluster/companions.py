"""Companions: beside a topic that is used as a queue stands another, which has its ledger, partition by partition.

A companion is made with its topic (queue.enabled), or when somebody first needs it (MakeCompanion), from what holds for the data then. From
then on the two are one thing: they grow, move, change leaders and end in the same decisions, and what of the topic's settings tells how
safe its records are holds for the ledger too. Nobody changes a companion by itself, and it stays as long as its topic, used or not.
Its id is reckoned from its topic's, since a decision has no dice. How the pair moves: moving.py.
Not here: what stands in a ledger (queues/). Its start is moved up by its leader, so neither age nor size nor compaction may take anything.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from penstock.cluster import records
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.topic_names import is_internal
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import LeaderEpoch, TopicId

QUEUE_ENABLED = "queue.enabled"

# What is told to a topic and holds for its ledger as well: how many must have a record, when it is on their disks, who may lead.
SHARED_SETTINGS = ("min.insync.replicas", "unclean.leader.election.enable", "flush", "flush.messages", "flush.ms")
OWN_OVERRIDES = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": str(64 << 20)}


def companion_id(topic_id: TopicId) -> TopicId:
    return TopicId(blake2b(topic_id, digest_size=16, person=b"queue ledger").digest())


def wants_companion(overrides: Mapping[str, str]) -> bool:
    return overrides.get(QUEUE_ENABLED, "").strip().lower() == "true"


def companion_for(topic_id: TopicId, placements: Sequence[records.Placement], overrides: Mapping[str, str]) -> records.CompanionMade:
    """`placements`: of the data. The ledger is empty, so whoever has all of the data has all of the ledger."""
    first = tuple(replace(placement, leader_epoch=LeaderEpoch(0), partition_epoch=0) for placement in placements)
    return records.CompanionMade(topic_id, companion_id(topic_id), first, companion_overrides(overrides))


def companion_overrides(overrides: Mapping[str, str]) -> dict[str, str]:
    return OWN_OVERRIDES | {name: overrides[name] for name in SHARED_SETTINGS if name in overrides}


def made_for(image: ClusterImage, topic: Topic, overrides: Mapping[str, str], *, partitions_max: int) -> records.CompanionMade:
    """For a topic that has none yet, and will have these overrides. Raises Refusal."""
    if is_internal(topic.name):
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic.name!r} is the cluster's own: it cannot be used as a queue")
    if len(topic.partitions) > partitions_max - image.partition_count:
        reason = (
            f"the ledger of topic {topic.name!r} needs {len(topic.partitions)} more partitions, and that would pass the bound of "
            f"{partitions_max} (setting partitions.max)"
        )
        raise Refusal(ErrorCode.POLICY_VIOLATION, reason)
    return companion_for(topic.topic_id, [records.Placement(*state) for state in topic.partitions], overrides)


def reconfigured(image: ClusterImage, topic: Topic, overrides: Mapping[str, str]) -> Iterator[records.TopicConfigured]:
    """What the companion is told when its topic has these overrides from now on."""
    companion = image.companion_of(topic.topic_id)
    if companion is not None and (told := companion_overrides(overrides)) != companion.overrides:
        yield records.TopicConfigured(companion.topic_id, told)


def not_directly(name: str) -> Refusal:
    """A companion was named where its topic should have been."""
    reason = f"topic {name!r} has the ledger of a queue and changes only with that: name the queue's topic"
    return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
