"""The partitions this node holds, found by topic name or by topic id. A topic's others are on other nodes, and are not here."""

import logging
from collections.abc import Callable, Iterator
from functools import partial

from penstock.broker.known_ends import KnownEnds
from penstock.cluster.image import Topic
from penstock.cluster.topic_names import is_internal
from penstock.env import Env
from penstock.errors import Refusal
from penstock.log.compacted_log import CompactedLog
from penstock.log.config import LogConfig, LogIdentity
from penstock.log.open_files import OpenFiles
from penstock.partition.partition import Partition
from penstock.partition.producers import ProducersRoom, ProducerStates
from penstock.settings import KIB, NodeSettings, TopicConfig
from penstock.vocabulary import TopicId

log = logging.getLogger("penstock")

TOPICS_DIRECTORY = "topics"
BYTES_PER_PRODUCER = 2 * KIB  # A sixth of it is what an idempotent producer takes; so they take a sixth of the memory at most.


class Partitions:
    def __init__(self, env: Env, settings: NodeSettings, files: OpenFiles, on_damage: Callable[[TopicId, int, int], None]) -> None:
        """`on_damage` hears of a topic, a partition and an offset at which a read has found damage."""
        self._env = env
        self._settings = settings
        self._files = files
        self._on_damage = on_damage
        self.known_ends = KnownEnds(env)
        self.defaults = settings.default_topic_config()  # What topics start from; may change while the node runs.
        self._producers_room = ProducersRoom(settings.memory_bytes_max // BYTES_PER_PRODUCER)
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[TopicId, dict[int, Partition]] = {}  # Of one topic it is the same dictionary by both.

    def __iter__(self) -> Iterator[Partition]:
        return (partition for partitions in self.by_name.values() for partition in partitions.values())

    def __len__(self) -> int:
        return sum(map(len, self.by_name.values()))

    def find(self, topic: str, index: int) -> Partition | None:
        partitions = self.by_name.get(topic)
        return partitions.get(index) if partitions is not None else None

    def find_by_id(self, topic_id: TopicId, index: int) -> Partition | None:
        partitions = self.by_id.get(topic_id)
        return partitions.get(index) if partitions is not None else None

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

    async def open(self, topic: Topic, index: int, *, is_clean: bool, accepts_loss: bool = False) -> Partition:
        """Opens the log. Nothing of it can be found until `serve`, and it has no role until its owner gives it one."""
        config = self.config_of(topic)
        producers = ProducerStates(self._settings.producers_max, self._producers_room)
        log = await CompactedLog.open(
            self._env,
            topic_directory(topic.topic_id, index),
            LogIdentity(topic.topic_id, index),
            log_config(config, self._settings.checkpoint_bytes),
            self._files,
            is_clean=is_clean,
            restore=producers.restore,
            replay=partial(producers.replay_stored, wall_ms=self._env.wall_ms()),
            replay_control=partial(producers.replay_stored, wall_ms=self._env.wall_ms()),
            epoch_max=topic.partitions[index].leader_epoch,
            known_end=self.known_ends.of(topic.topic_id, index),
            accepts_loss=accepts_loss,
            on_damage=partial(self._on_damage, topic.topic_id, index),
        )
        is_own = is_internal(topic.name)
        return Partition(topic.name, topic.topic_id, index, log=log, producers=producers, config=config, is_internal=is_own)

    def serve(self, partition: Partition) -> None:
        held = self.by_name.setdefault(partition.topic, {})
        held[partition.index] = partition
        self.by_id[partition.topic_id] = held

    def remove(self, partition: Partition) -> None:
        """The partition is no longer this node's: whoever still has it in hand sees that it is gone."""
        held = self.by_id[partition.topic_id]
        del held[partition.index]
        if not held:
            del self.by_id[partition.topic_id], self.by_name[partition.topic]
        self.discard(partition)

    def discard(self, partition: Partition) -> None:
        """The partition is not this node's, and nobody can find it."""
        partition.is_deleted = True
        partition.producers.forget_all()


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
