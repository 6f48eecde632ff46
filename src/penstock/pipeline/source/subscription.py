"""Which partitions are read: those of named topics, of topics whose names match a pattern, or just these.

A named topic must be there. Internal topics match no pattern, as at Spark's Kafka source; who names one reads it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import UnknownTopic, check_code
from penstock.peers.topics import TopicView
from penstock.vocabulary import TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class Named:
    topics: Sequence[str]


@dataclass(frozen=True, slots=True)
class Pattern:
    regex: str


@dataclass(frozen=True, slots=True)
class Assigned:
    partitions: Sequence[TopicPartition]


Subscription = Named | Pattern | Assigned


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The partitions of today, in order, and who their topics are."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, TopicId]


async def resolve(client: Client, subscription: Subscription, *, leaves_out_missing: bool = False) -> Subscribed:
    """Raises `UnknownTopic` for a named topic that is not there, unless it may be left out."""
    match subscription:
        case Named(topics):
            return _all_of(await _describe(client, topics, leaves_out_missing))
        case Pattern(regex):
            cluster = await client.metadata(None)
            matching = [view for view in cluster.topics if not view.is_internal and re.search(regex, view.name)]
            return _all_of([view for view in matching if view.error_code == ErrorCode.NONE or view.partitions])
        case Assigned(partitions):
            topics = list(dict.fromkeys(where.topic for where in partitions))
            return _just(await _describe(client, topics, leaves_out_missing), partitions)


async def _describe(client: Client, topics: Sequence[str], leaves_out_missing: bool) -> list[TopicView]:
    """All in one question."""
    views = {view.name: view for view in (await client.metadata(topics)).topics}
    found = []
    for topic in topics:
        view = views.get(topic)
        if view is None or view.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if leaves_out_missing:
                continue
            raise UnknownTopic(topic)
        if view.error_code != ErrorCode.LEADER_NOT_AVAILABLE:  # Its partitions are known all the same.
            check_code(view.error_code, f"describe topic {topic!r}")
        found.append(view)
    return found


def _all_of(views: Sequence[TopicView]) -> Subscribed:
    partitions = (TopicPartition(view.name, each.partition) for view in views for each in view.partitions)
    return Subscribed(tuple(sorted(partitions)), {view.name: view.topic_id for view in views})


def _just(views: Sequence[TopicView], wanted: Sequence[TopicPartition]) -> Subscribed:
    """Partitions that are not there are left out: whoever asks finds them missing."""
    whole = _all_of(views)
    return Subscribed(tuple(where for where in whole.partitions if where in set(wanted)), whole.topic_ids)
