"""What must hold at every moment, looked at from outside where all nodes can be seen at once.

- a term of the quorum has one leader, an epoch of a partition has one leader;
- what two nodes have applied up to one offset is the same image, also if they do so at different times;
- the committed end, each node's applied end within one life, and the watermark of each copy while it is open, never go back;
- an in-sync replica that lives has everything below its leader's watermark, as durable as the topic promises;
- logs agree (replicas.py).

A look costs time, so it is taken now and then; what is remembered of earlier looks makes up for the moments in between.
"""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import chain

from penstock.broker.node import Node
from penstock.cluster import records
from penstock.partition.partition import Partition
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.clusters.replicas import StoredLog, compare_all, read_log
from penstock.simulator.workloads.notebook import NOWHERE, Notebook
from penstock.vocabulary import TopicId, TopicPartition

LOOK_SECONDS = 0.1
LOGS_EVERY_LOOKS = 10


class Watcher:
    def __init__(
        self, cluster: Cluster, notebook: Notebook, *, is_rotten: Callable[[str, TopicId, int], bool] = lambda host, topic_id, index: False
    ) -> None:
        """`is_rotten`: whether bytes of a host's copy are changed just now, so that it cannot agree with others."""
        self._is_rotten = is_rotten
        self.looks = 0
        self.terms: dict[int, str] = {}  # Who led the quorum.
        self.epochs: dict[tuple[TopicId, int, int], str] = {}  # Who led the partition.
        self._cluster = cluster
        self._notebook = notebook
        self._images: dict[int, tuple[bytes, str]] = {}  # What the image was, and whose, by the offset that was applied.
        self._seen: dict[str, tuple[Node, int]] = {}  # Each node's life, and how far it had applied.
        self._marks: dict[Partition, int] = {}  # Not by name: a replica that leaves and comes back begins a new copy.
        self._is_over = False
        self._also: list[Callable[[], None]] = []

    def also(self, look: Callable[[], None]) -> None:
        """Lets somebody else look whenever this watcher does."""
        self._also.append(look)

    def begin(self) -> None:
        self._look_again()

    def end(self) -> None:
        self._is_over = True

    def _look_again(self) -> None:
        if not self._is_over:
            self.look()
            self._cluster.world.at(LOOK_SECONDS, self._look_again)

    def look(self) -> None:
        self.looks += 1
        for host, node in self._cluster.living():
            self._look_at_quorum(host, node)
            self._look_at_partitions(host, node)
        for look in self._also:
            look()
        if self.looks % LOGS_EVERY_LOOKS == 0:
            self.compare_logs()

    def find(self, rule: str, story: str, where: TopicPartition = NOWHERE) -> None:
        self._notebook.find(rule, where, f"{self._cluster.world.now():.3f}: {story}")

    # The quorum.

    def _look_at_quorum(self, host: str, node: Node) -> None:
        quorum = node.quorum
        if quorum.is_leading:
            other = self.terms.setdefault(quorum.term, host)
            if other != host:
                self.find("a term has one leader", f"{other} and {host} lead in term {quorum.term}")
        before, applied_end = self._seen.get(host), quorum.applied_end
        if not quorum._replayer.backlog.is_idle or (before is not None and before[0] is node and applied_end == before[1]):
            return  # Nothing new, or a decision of which it has replayed only a part.
        if before is not None and before[0] is node and applied_end < before[1]:
            self.find("what is applied stays applied", f"{host} had applied {before[1]} and now {applied_end}")
        self._seen[host] = (node, applied_end)
        told = digest(node)
        known, who = self._images.setdefault(applied_end, (told, host))
        if known != told:
            self.find("images agree", f"{who} and {host} have applied {applied_end}, and know different things")

    # Partitions.

    def _look_at_partitions(self, host: str, node: Node) -> None:
        for partition in node.partitions:
            where = TopicPartition(partition.topic, partition.index)
            mark = int(partition.high_watermark)
            if not partition.config.acknowledges_after_flush and self._cluster.world.power_cuts:
                continue  # What such a topic has acknowledged may be gone, and with it the watermark.
            before = self._marks.get(partition, 0)
            if mark < before:
                self.find("a watermark never goes back", f"{host} had {before} and now {mark}", where)
            self._marks[partition] = mark
            if mark > partition.log.end_offset:
                self.find("a watermark is not past the end", f"{host}: {mark} of {partition.log.end_offset}", where)
            if partition.leader is not None:
                self._look_at_leader(host, partition, where)

    def _look_at_leader(self, host: str, partition: Partition, where: TopicPartition) -> None:
        leader = partition.leader
        assert leader is not None
        other = self.epochs.setdefault((partition.topic_id, partition.index, leader.epoch), host)
        if other != host:
            self.find("an epoch has one leader", f"{other} and {host} lead in epoch {leader.epoch}", where)
        for follower, replica in self._in_sync_followers(partition):
            end = replica.log.flushed_end if replica.config.acknowledges_after_flush else replica.log.end_offset
            if end < leader.high_watermark and replica.log.failure is None and replica.epoch == leader.epoch:
                story = f"{host} leads in epoch {leader.epoch} with {leader.high_watermark}, and {follower} has {end}"
                self.find("an in-sync replica has what is committed", story, where)

    def _in_sync_followers(self, partition: Partition) -> Iterator[tuple[str, Partition]]:
        """Those that are in sync by what is decided, and alive."""
        state = self._cluster.state(partition.topic, partition.index)
        if state is None or partition.leader is None or state.leader_epoch != partition.leader.epoch:
            return
        for node_id in state.in_sync:
            follower = self._cluster.host_of(node_id)
            replica = self._cluster.partition(follower, partition.topic, partition.index)
            if replica is not None and replica.leader is None and replica.topic_id == partition.topic_id:
                yield follower, replica

    # Logs.

    def compare_logs(self) -> None:
        for where, logs in self.logs().items():
            for story in compare_all(logs):
                self.find("logs agree", story, where)

    def logs(self) -> dict[TopicPartition, list[StoredLog]]:
        """What the replicas of each partition have, of those nodes that have opened it and trust it."""
        found: dict[tuple[TopicId, int], list[StoredLog]] = {}
        names: dict[tuple[TopicId, int], TopicPartition] = {}
        for host, node in self._cluster.living():
            for partition in node.partitions:
                if partition.log.failure is not None or self._is_rotten(host, partition.topic_id, partition.index):
                    continue
                key = (partition.topic_id, partition.index)
                names[key] = TopicPartition(partition.topic, partition.index)
                found.setdefault(key, []).append(self._read(host, partition))
        return {names[key]: logs for key, logs in found.items()}

    def _read(self, host: str, partition: Partition) -> StoredLog:
        batches = read_log(self._cluster.world.hosts[host].disk, partition.topic_id, partition.index)
        start, end = partition.log.start_offset, partition.log.end_offset
        kept = [batch for batch in batches if batch.end_offset > start and batch.base_offset < end]
        is_weak = not partition.config.acknowledges_after_flush and self._cluster.world.power_cuts
        return StoredLog(host, int(start), kept, 0 if is_weak else int(partition.high_watermark), partition.config.is_compacted)


def digest(node: Node) -> bytes:
    """Of everything that the node has applied."""
    lines = sorted(records.encode(record) for record in node.image.snapshot())
    return blake2b(b"\n".join(chain(lines)), digest_size=16).digest()
