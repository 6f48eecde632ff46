"""The topics of a pipeline: those that it writes are made where they are missing, those that it only reads must be there.

A name that is read and never written is more likely a slip of the pen than a topic that somebody meant to have.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import Refused
from penstock.peers.offsets import LATEST
from penstock.pipeline.brokers import brokers
from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.stage import FromTopic, ToTopic
from penstock.vocabulary import TopicPartition

STABLE_SECONDS_MAX = 30.0
STABLE_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Wanted:
    partitions: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


def make_topics(pipeline: Pipeline, bootstrap: str) -> list[str]:
    """Returns those that were made."""
    broker = brokers({"kafka.bootstrap.servers": bootstrap})
    return broker.run(_make(broker.client, pipeline))


async def _make(client: Client, pipeline: Pipeline) -> list[str]:
    writes = topics_written(pipeline)
    reads = {topic: stage.name for stage in pipeline.stages if isinstance(stage.source, FromTopic) for topic in stage.topics_read()}
    names = [*writes, *(topic for topic in reads if topic not in writes)]
    view = await client.metadata(names) if names else None
    there = {topic.name for topic in view.topics if topic.error_code == 0} if view is not None else set()
    for topic, stage in reads.items():
        if topic not in there and topic not in writes:
            raise PipelineComplaint(f"stage {stage!r} reads the topic {topic!r}, which is not there", f"penstock topics create {topic}")
    missing = [topic for topic in writes if topic not in there]
    for topic in missing:
        await _create(client, topic, writes[topic])
    return missing


def wait_until_stable(topics: Sequence[str], bootstrap: str, seconds: float = STABLE_SECONDS_MAX) -> bool:
    """Until all that was written is there for readers of what is committed: a commit is answered when it is decided, and its topics show
    it a moment later. False: somebody's transaction stayed open for so long."""
    broker = brokers({"kafka.bootstrap.servers": bootstrap})
    return broker.run(_until_stable(broker.client, topics, seconds), deadline_s=2 * seconds)


async def _until_stable(client: Client, topics: Sequence[str], seconds: float) -> bool:
    views = [await client.describe(topic) for topic in topics]
    ends = {TopicPartition(view.name, index): LATEST for view in views for index in range(len(view.partitions))}
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            written = await client.list_offsets(ends)
            while True:
                committed = await client.list_offsets(ends, is_committed_only=True)
                if all(committed[where].offset >= written[where].offset for where in ends):
                    return True
                await asyncio.sleep(STABLE_PAUSE_SECONDS)
    return False


def topics_written(pipeline: Pipeline) -> dict[str, Wanted]:
    wanted: dict[str, Wanted] = {}
    for stage in pipeline.stages:
        if isinstance(stage.sink, ToTopic):
            wanted[stage.sink.topic] = Wanted(stage.sink.partitions, stage.sink.config)
        if stage.dead_letters is not None:
            wanted.setdefault(stage.dead_letters, Wanted(partitions=1))
    return wanted


async def _create(client: Client, topic: str, wanted: Wanted) -> None:
    try:
        await client.create_topic(topic, partitions=wanted.partitions or -1, config=wanted.config)
    except Refused as failure:
        if failure.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # Somebody else was faster.
            raise
