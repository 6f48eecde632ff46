"""What groups have committed, looked at from time to time and kept as records of a topic.

Brokers tell where a group is now, never where it was. So whoever wants to see lag and latency over time must look while it happens; what
was seen is a log like everything else, and later reports read it again.
Rules: only Kafka's protocol is asked. A group that has committed nothing for the topics has no samples.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import Refused
from penstock.peers.offsets import LATEST
from penstock.peers.producer import Producer
from penstock.pipeline.brokers import brokers
from penstock.vocabulary import TopicPartition

SLACK_S = 60.0
KEPT = {"retention.ms": str(7 * 86_400_000)}


class Sample(NamedTuple):
    group: str
    topic: str
    partition: int
    committed: int
    end: int
    sampled_ms: int


def watch(
    bootstrap: str,
    topics: Sequence[str],
    *,
    groups: Sequence[str] = (),
    into: str,
    seconds: float,
    every_s: float = 1.0,
    is_stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Looks every so often for so long, writes what it sees into a topic, and says how many samples that made. No groups means all."""
    broker = brokers({"kafka.bootstrap.servers": bootstrap})
    watching = _watch(broker.client, topics, groups, into, seconds=seconds, every_s=every_s, is_stopping=is_stopping)
    return broker.run(watching, deadline_s=seconds + SLACK_S)


def make_samples_topic(bootstrap: str, topic: str) -> None:
    """Makes the topic where it is missing. One that is there stays as it is."""
    broker = brokers({"kafka.bootstrap.servers": bootstrap})
    broker.run(_make(broker.client, topic))


async def look(client: Client, topics: Sequence[str], groups: Sequence[str] = ()) -> list[Sample]:
    """One look at all of them."""
    partitions = [TopicPartition(topic, number) for topic in topics for number in range(len((await client.describe(topic)).partitions))]
    names = groups or [listed.group for listed in await client.list_groups()]
    committed = {group: await client.committed_offsets(group) for group in names}
    # Ends are asked after the commits, so that no group seems to be ahead of its topic.
    ends = await client.list_offsets(dict.fromkeys(partitions, LATEST))
    now_ms = time.time_ns() // 1_000_000
    return [
        Sample(group, where.topic, where.partition, offsets[where].offset, ends[where].offset, now_ms)
        for group, offsets in committed.items()
        for where in partitions
        if where in offsets and where in ends
    ]


async def _make(client: Client, topic: str) -> None:
    try:
        await client.create_topic(topic, partitions=1, config=KEPT)
    except Refused as refused:
        if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def _watch(
    client: Client,
    topics: Sequence[str],
    groups: Sequence[str],
    into: str,
    *,
    seconds: float,
    every_s: float,
    is_stopping: Callable[[], bool],
) -> int:
    deadline, count = time.monotonic() + seconds, 0
    async with Producer(client) as producer:
        while True:
            stored = []
            for sample in await look(client, topics, groups):
                key, value = f"{sample.group}/{sample.topic}/{sample.partition}", json.dumps(sample._asdict())
                stored.append(await producer.send(into, value.encode(), key=key.encode(), timestamp_ms=sample.sampled_ms))
            await asyncio.gather(*stored)
            count += len(stored)
            if is_stopping() or time.monotonic() + every_s > deadline:
                return count
            await asyncio.sleep(every_s)
