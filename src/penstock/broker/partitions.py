"""The partitions this node holds, found by topic name or by topic id: opened when their topic is made, closed when it is deleted."""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from penstock.broker.together import together
from penstock.cluster.image import Topic
from penstock.cluster.topic_names import INTERNAL_TOPICS
from penstock.env import Env
from penstock.errors import BrokenPromise, Refusal
from penstock.log.compacted_log import CompactedLog
from penstock.log.config import LogConfig, LogIdentity
from penstock.log.open_files import OpenFiles
from penstock.partition.leader import Leader
from penstock.partition.partition import Partition, ProduceToken
from penstock.partition.producers import ProducersRoom, ProducerStates
from penstock.settings import KIB, NodeSettings, TopicConfig
from penstock.vocabulary import NodeId, TopicId
from penstock.wire.batches import BatchHeader

log = logging.getLogger("penstock")

TOPICS_DIRECTORY = "topics"
BYTES_PER_PRODUCER = 2 * KIB  # A sixth of it is what an idempotent producer takes; so they take a sixth of the memory at most.


class Partitions:
    def __init__(self, env: Env, settings: NodeSettings, files: OpenFiles) -> None:
        self._env = env
        self._settings = settings
        self._files = files
        self.defaults = settings.default_topic_config()  # What topics start from; may change while the node runs.
        self._producers_room = ProducersRoom(settings.memory_bytes_max // BYTES_PER_PRODUCER)
        self.by_name: dict[str, list[Partition]] = {}
        self.by_id: dict[TopicId, list[Partition]] = {}

    def __iter__(self) -> Iterator[Partition]:
        return (partition for partitions in self.by_name.values() for partition in partitions)

    def __len__(self) -> int:
        return sum(map(len, self.by_name.values()))

    def find(self, topic: str, index: int) -> Partition | None:
        partitions = self.by_name.get(topic)
        return partitions[index] if partitions is not None and 0 <= index < len(partitions) else None

    def find_by_id(self, topic_id: TopicId, index: int) -> Partition | None:
        partitions = self.by_id.get(topic_id)
        return partitions[index] if partitions is not None and 0 <= index < len(partitions) else None

    def config_of(self, topic: Topic) -> TopicConfig:
        """What holds for the topic. Of what it was told, a value that only another version of Penstock takes is passed over."""
        try:
            return self.defaults.with_overrides(topic.overrides)
        except Refusal:
            config = self.defaults
        for name, value in topic.overrides.items():
            try:
                config = config.with_overrides({name: value})
            except Refusal as refusal:
                log.warning("topic %s: %s = %s is not followed: %s", topic.name, name, value, refusal.reason)
        return config

    async def add_to_topic(self, topic: Topic) -> None:
        """Opens and serves those partitions of the topic that it has and we don't."""
        served = self.by_id[topic.topic_id]
        missing = range(len(served), len(topic.partitions))
        added = await together(partial(self._open, topic, index, served[0].config, is_clean=True) for index in missing)
        served += added  # By name and by id it is the same list.

    async def open_topics(self, topics: Sequence[Topic], *, is_clean: bool) -> list[tuple[Topic, list[Partition]]]:
        """Opens the topics' logs. Nothing can be read or written until `serve_topic`: a recovered tail must be flushed first."""
        configs = [self.config_of(topic) for topic in topics]
        opened = iter(
            await together(
                partial(self._open, topic, index, config, is_clean=is_clean)
                for topic, config in zip(topics, configs, strict=True)
                for index in range(len(topic.partitions))
            )
        )
        return [(topic, list(islice(opened, len(topic.partitions)))) for topic in topics]

    def serve_topic(self, topic: Topic, partitions: list[Partition]) -> None:
        self.by_name[topic.name] = partitions
        self.by_id[topic.topic_id] = partitions

    def remove_topic(self, topic_id: TopicId) -> list[Partition]:
        partitions = self.by_id.pop(topic_id, [])
        if partitions:
            del self.by_name[partitions[0].topic]
        for partition in partitions:
            partition.is_deleted = True
            partition.producers.forget_all()
        return partitions

    async def _open(self, topic: Topic, index: int, config: TopicConfig, *, is_clean: bool) -> Partition:
        state = topic.partitions[index]
        producers = ProducerStates(self._settings.producers_max, self._producers_room)
        wall_ms = self._env.wall_ms()

        def replay(header: BatchHeader) -> None:
            if header.producer_id >= 0:
                producers.replay(header, wall_ms)

        log = await CompactedLog.open(
            self._env,
            topic_directory(topic.topic_id, index),
            LogIdentity(topic.topic_id, index),
            log_config(config, self._settings.checkpoint_bytes),
            self._files,
            is_clean=is_clean,
            restore=producers.restore,
            replay=replay,
            epoch_max=state.leader_epoch,
        )
        if state.leader != self._settings.node_id:
            raise BrokenPromise(f"{topic.name}-{index} is led by node {state.leader}, and this is node {self._settings.node_id}")
        leader: Leader[ProduceToken] = Leader(NodeId(self._settings.node_id), state.leader_epoch, state.in_sync, log.end_offset)
        is_internal = topic.name in INTERNAL_TOPICS
        return Partition(
            topic.name, topic.topic_id, index, log=log, leader=leader, producers=producers, config=config, is_internal=is_internal
        )


def topic_directory(topic_id: TopicId, index: int | None = None) -> str:
    """Ids, not names: a name from a client never becomes a path, and a topic made again gets other files."""
    return f"{TOPICS_DIRECTORY}/{topic_id.hex()}" if index is None else f"{TOPICS_DIRECTORY}/{topic_id.hex()}/{index}"


def log_config(config: TopicConfig, checkpoint_bytes: int) -> LogConfig:
    return LogConfig(
        segment_bytes=config.segment_bytes,
        # The active segment is never compacted, so it must not be written to for longer than compaction may be late.
        segment_ms=min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms,
        retention_ms=config.retention_ms if config.deletes_old_segments else -1,
        retention_bytes=config.retention_bytes if config.deletes_old_segments else -1,
        index_interval_bytes=config.index_interval_bytes,
        is_compacted=config.is_compacted,
        dirty_ratio_min=config.min_cleanable_dirty_ratio,
        compaction_lag_min_ms=config.min_compaction_lag_ms,
        compaction_lag_max_ms=config.max_compaction_lag_ms,
        delete_retention_ms=config.delete_retention_ms,
        checkpoint_bytes=checkpoint_bytes,
    )
