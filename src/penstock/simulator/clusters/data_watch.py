"""What clients were told about data is held against all nodes at once, as no client could: at the moment of the answer, and from then on.

- A record that any replica has shown to a reader is on every in-sync replica, as durable as its topic promises, and so is everything below
  the watermark of any copy.
- Where records were deleted, and a client was told so, whoever leads by decision begins after them.

What a world may lose by its own setting (weak topics) is not watched here: the topics of data_menu.py are strong.
"""

from collections.abc import Iterator

from penstock.cluster.image import PartitionState
from penstock.partition.partition import Partition
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.workloads.notebook import Notebook
from penstock.vocabulary import TopicPartition

SEEN_IS_COMMITTED = "what a reader sees is on every in-sync replica"
MARK_IS_COMMITTED = "what is below a watermark is on every in-sync replica"
DELETED_STAYS = "what was deleted stays deleted"
FOLLOWED = "what was told is what nodes go by"

_LOOKS = 5  # A node may take so many looks to go by what it has applied.


class DataWatch:
    def __init__(self, cluster: Cluster, notebook: Notebook) -> None:
        self.cluster = cluster
        self._notebook = notebook
        self._marked: dict[str, None] = {}  # Topics whose watermarks are watched.
        self._told: dict[str, None] = {}  # Topics whose settings are changed.
        self._strays: dict[Partition, int] = {}  # At how many looks in a row a copy did not go by what its node has applied.
        self._deleted: dict[TopicPartition, int] = {}  # Where each partition begins at least, as a client was told.

    # What workloads tell.

    def watch_marks(self, topic: str) -> None:
        self._marked[topic] = None

    def watch_settings(self, topic: str) -> None:
        self._told[topic] = None

    def saw(self, where: TopicPartition, end_offset: int, reader: str) -> None:
        """A reader was shown everything below the offset."""
        state = self.cluster.state(where.topic, where.partition)
        for host in self._lacking(where, state, end_offset) if state is not None else ():
            self._find(SEEN_IS_COMMITTED, where, f"{reader} was shown what is below {end_offset}, which {host} lacks")

    def deleted(self, where: TopicPartition, offset: int) -> None:
        """A client was told that everything below the offset is deleted."""
        self._deleted[where] = max(offset, self._deleted.get(where, 0))
        self._look_at_starts({where: self.cluster.state(where.topic, where.partition)})

    def told_start(self, where: TopicPartition) -> int:
        return self._deleted.get(where, 0)

    # What is seen from outside.

    def copies_in_sync(self, where: TopicPartition) -> Iterator[tuple[str, Partition]]:
        state = self.cluster.state(where.topic, where.partition)
        return iter(()) if state is None else self._in_sync(where, state)

    def look(self) -> None:
        self._look_at_settings()
        if not (self._marked or self._deleted):
            return
        states = {TopicPartition(topic, index): state for topic, index, state in self.cluster.states()}
        self._look_at_starts(states)
        for where, state in states.items():
            if where.topic in self._marked:
                self._look_at_marks(where, state)

    def _in_sync(self, where: TopicPartition, state: PartitionState) -> Iterator[tuple[str, Partition]]:
        """Those that are in sync by what is decided, live, and know of it."""
        for node_id in state.in_sync:
            host = self.cluster.host_of(node_id)
            partition = self.cluster.partition(host, where.topic, where.partition)
            if partition is not None and partition.epoch == state.leader_epoch and not partition.is_damaged:
                yield host, partition

    def _lacking(self, where: TopicPartition, state: PartitionState, end_offset: int) -> Iterator[str]:
        for host, partition in self._in_sync(where, state):
            if partition.log.failure is None and partition.durable_end < end_offset:
                yield f"{host}, in sync and with {partition.durable_end},"

    def _look_at_marks(self, where: TopicPartition, state: PartitionState) -> None:
        for host in self.cluster.brokers:
            partition = self.cluster.partition(host, where.topic, where.partition)
            if partition is None or partition.is_damaged:
                continue
            for other in self._lacking(where, state, partition.high_watermark):
                self._find(
                    MARK_IS_COMMITTED, where, f"{host} has the watermark {partition.high_watermark}, and {other} lacks records below it"
                )

    def _look_at_settings(self) -> None:
        for host, node in self.cluster.living() if self._told else ():
            process = self.cluster.world.hosts[host].process
            for name in self._told if process is not None and not process.is_paused else ():
                topic = node.image.topics.get(name)
                copies = {} if topic is None else node.partitions.by_id.get(topic.topic_id, {})
                for partition in copies.values():
                    assert topic is not None
                    is_astray = partition.config != node.partitions.config_of(topic)
                    self._strays[partition] = self._strays.get(partition, 0) + 1 if is_astray else 0
                    if self._strays[partition] == _LOOKS:
                        where = TopicPartition(name, partition.index)
                        self._find(FOLLOWED, where, f"{host} was told {dict(topic.overrides)}, and goes by something else")

    def _look_at_starts(self, states: dict[TopicPartition, PartitionState | None] | dict[TopicPartition, PartitionState]) -> None:
        for where, start in self._deleted.items():
            state = states.get(where)
            if state is None or state.leader < 0:
                continue
            host = self.cluster.host_of(state.leader)
            partition = self.cluster.partition(host, where.topic, where.partition)
            if partition is None or partition.leader is None or partition.leader.epoch != state.leader_epoch:
                continue
            if partition.log.start_offset < start:
                self._find(DELETED_STAYS, where, f"{host} leads from {partition.log.start_offset} on, and {start} was acknowledged")

    def _find(self, rule: str, where: TopicPartition, story: str) -> None:
        self._notebook.find(rule, where, f"{self.cluster.world.now():.3f}: {story}")
