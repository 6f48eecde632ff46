"""Which partitions are read: those of named topics, of topics whose names match a pattern, or just these.

A named topic must be there. Some match no pattern, and who names one of them reads it: internal topics, as at Spark's Kafka source; those
whose names begin with `__`, as the sink's ledger, and those to which the query itself sets rows aside. A query that reads what it writes
never comes to an end.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import UnknownTopic, check_code
from penstock.peers.topics import TopicView
from penstock.vocabulary import TopicId, TopicPartition

HIDDEN = "__"  # How names of topics begin that are kept for somebody's books.


@dataclass(frozen=True, slots=True)
class Named:
    topics: Sequence[str]


@dataclass(frozen=True, slots=True)
class Pattern:
    regex: str
    but: frozenset[str] = frozenset()  # Topics that do not match, whatever they are called.

    def matches(self, view: TopicView) -> bool:
        is_set_aside = view.is_internal or view.name.startswith(HIDDEN) or view.name in self.but
        return not is_set_aside and re.search(self.regex, view.name) is not None


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
        case Pattern():
            cluster = await client.metadata(None)
            matching = [view for view in cluster.topics if subscription.matches(view)]
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
