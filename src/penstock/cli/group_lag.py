"""How far a group is behind, asked over Kafka's protocol, so of any broker that speaks it.

The time lag of a partition costs one small fetch of the next unread record. How long until retention takes it is reckoned from that
record's own age: the segment around it may hold newer records and so live longer, which only the node itself knows (its REST API tells).
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.broker.lag import Lag, Span, lag_of, next_unread
from penstock.errors import ErrorCode, MalformedInput
from penstock.peers.client import Client
from penstock.peers.configs import Configured
from penstock.peers.described_groups import DescribedGroup
from penstock.peers.failures import PeerFailure
from penstock.peers.fetching import FetchLimits, whole_batches
from penstock.peers.offsets import EARLIEST, LATEST
from penstock.peers.topics import NO_LEADER
from penstock.vocabulary import TopicPartition
from penstock.wire.batches import decode_records

FETCHES_AT_A_TIME = 8
FETCH_SECONDS = 30.0
UNPACKED_BYTES_MAX = 64 << 20
ONE_BATCH = FetchLimits(wait_ms=0, bytes_max=1)


@dataclass(frozen=True, slots=True)
class LagRow:
    where: TopicPartition
    committed: int | None  # None: a member has the partition and has committed nothing yet.
    span: Span | None  # None: the topic is gone, or has no leader.
    lag: Lag | None
    member: str | None


async def lag_rows(client: Client, group: DescribedGroup) -> list[LagRow]:
    committed: dict[TopicPartition, int | None] = {
        TopicPartition(topic, partition): None
        for member in group.members
        for topic, partitions in (member.assignment or {}).items()
        for partition in partitions
    }
    committed |= {where: each.offset for where, each in (await client.committed_offsets(group.group)).items()}
    spans = await spans_of(client, committed)
    unread = {
        where: offset
        for where, span in spans.items()
        if (place := committed[where]) is not None and (offset := next_unread(place, span)) is not None
    }
    times = await _times_of(client, unread)
    retentions = await _retentions_of(client, unread)
    now_ms = client.env.wall_ms()
    rows = []
    for where, place in sorted(committed.items()):
        lag, span, time_ms = None, spans.get(where), times.get(where)
        if place is not None and span is not None:
            keeps_ms = retentions.get(where.topic)
            ages_out_ms = None if time_ms is None or keeps_ms is None else time_ms + keeps_ms - now_ms
            lag = lag_of(place, span, next_timestamp_ms=time_ms, ages_out_ms=ages_out_ms, wall_ms=now_ms)
        owner = group.owner_of(where)
        rows.append(LagRow(where, place, span, lag, owner.member_id if owner else None))
    return rows


async def spans_of(client: Client, wanted: Mapping[TopicPartition, object]) -> dict[TopicPartition, Span]:
    """Start and end of those of the partitions that are there and have a leader."""
    names = list(dict.fromkeys(where.topic for where in wanted))
    if not names:
        return {}
    cluster = await client.metadata(names)
    led = {
        TopicPartition(topic.name, each.partition)
        for topic in cluster.topics
        if topic.error_code == ErrorCode.NONE
        for each in topic.partitions
        if each.leader != NO_LEADER
    }
    there = [where for where in wanted if where in led]
    starts = await client.list_offsets(dict.fromkeys(there, EARLIEST))
    ends = await client.list_offsets(dict.fromkeys(there, LATEST))
    return {where: Span(starts[where].offset, ends[where].offset) for where in there}


async def _times_of(client: Client, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    turns = asyncio.Semaphore(FETCHES_AT_A_TIME)

    async def find(where: TopicPartition, offset: int) -> int | None:
        async with turns:
            try:
                fetched = await client.fetch(*where, offset, limits=ONE_BATCH, deadline_s=FETCH_SECONDS)
                return _time_at(fetched.records, offset)
            except (PeerFailure, MalformedInput):
                return None  # Lag in records is worth showing without it.

    found = await asyncio.gather(*(find(where, offset) for where, offset in offsets.items()))
    return {where: time_ms for where, time_ms in zip(offsets, found, strict=True) if time_ms is not None}


def _time_at(records: bytes, offset: int) -> int | None:
    for _, batch in whole_batches(records):
        for record in decode_records(batch, bytes_max=UNPACKED_BYTES_MAX):
            if record.offset >= offset:
                return record.timestamp_ms if record.timestamp_ms >= 0 else None
    return None


async def _retentions_of(client: Client, wanted: Mapping[TopicPartition, object]) -> dict[str, int]:
    """By topic, how long records are kept; nothing for topics that drop none by age, or where nobody tells."""
    found = {}
    for topic in dict.fromkeys(where.topic for where in wanted):
        try:
            views = await client.settings_of(Configured.topic(topic), deadline_s=FETCH_SECONDS)
        except PeerFailure:
            continue
        values = {view.name: view.value or "" for view in views}
        if "delete" in values.get("cleanup.policy", "") and values.get("retention.ms", "").isdecimal():
            found[topic] = int(values["retention.ms"])
    return found
