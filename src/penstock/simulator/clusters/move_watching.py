"""Judges every decision about a partition as the first node replays it: what a look now and then would miss.

- A leader epoch begins when a replica leaves: if it comes back its copy is another one, for which no late report of the first may count.
- A move ends when all the replicas that it added are in sync.
- A replica that joins the in-sync set has everything below its leader's watermark, as durable as the topic promises. That is looked up on
  the nodes themselves, where both of them are up.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from penstock.cluster import records
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.cluster.records import PartitionChange
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.workloads.notebook import Notebook
from penstock.vocabulary import NodeId, TopicId, TopicPartition

EPOCH_RULE = "an epoch begins when a replica leaves"
END_RULE = "a move ends when its replicas are in sync"
JOIN_RULE = "who joins the in-sync set has what is committed"


class MoveWatch:
    def __init__(self, cluster: Cluster, notebook: Notebook) -> None:
        self._cluster = cluster
        self._notebook = notebook
        self._judged: dict[tuple[TopicId, int], int] = {}  # The last version of each partition that was looked at.

    def patches(self) -> list[tuple[Any, str, Any]]:
        """What stands beside the image's replay while the run lasts."""
        return [(ClusterImage, "replay", self._beside(ClusterImage.replay))]

    def _beside(self, original: Callable[[ClusterImage, records.Record], None]) -> Callable[[ClusterImage, records.Record], None]:
        @wraps(original)
        def replay(image: ClusterImage, record: records.Record) -> None:
            if isinstance(record, records.PartitionsChanged):
                for change in record.changes:
                    self._came(image, change)
            original(image, record)

        return replay

    def _came(self, image: ClusterImage, change: PartitionChange) -> None:
        after = PartitionState(*change[2:])
        key = (change.topic_id, change.partition)
        if after.partition_epoch <= self._judged.get(key, -1):
            return
        self._judged[key] = after.partition_epoch
        topic = image.topics_by_id[change.topic_id]
        before, where = topic.partitions[change.partition], TopicPartition(topic.name, change.partition)
        self._judge(where, before, after)
        for node in after.in_sync:
            if node not in before.in_sync and node != after.leader:
                self._judge_joining(where, after, node)

    def _judge(self, where: TopicPartition, before: PartitionState, after: PartitionState) -> None:
        if not set(before.replicas) <= set(after.replicas) and after.leader_epoch <= before.leader_epoch:
            self._notebook.find(EPOCH_RULE, where, f"{before.replicas} became {after.replicas}, both in epoch {after.leader_epoch}")
        for node in after.replicas:
            is_new = node in before.adding or node not in before.replicas
            if is_new and node not in (*after.adding, *after.removing, *after.in_sync):
                story = f"{node} came to {before.replicas}, is not being added any more, and in sync are {after.in_sync}"
                self._notebook.find(END_RULE, where, story)

    def _judge_joining(self, where: TopicPartition, after: PartitionState, node: NodeId) -> None:
        cluster = self._cluster
        if after.leader < 0:
            return
        leading, joining = cluster.host_of(after.leader), cluster.host_of(node)
        led = cluster.partition(leading, where.topic, where.partition)
        if led is None or led.leader is None or led.leader.epoch != after.leader_epoch or not cluster.serves(joining):
            return
        if not led.config.acknowledges_after_flush:
            return  # What it had may be gone with the power.
        copy, mark = cluster.partition(joining, where.topic, where.partition), led.leader.high_watermark
        end = 0 if copy is None else copy.log.flushed_end
        if end < mark and (copy is None or copy.log.failure is None):
            self._notebook.find(JOIN_RULE, where, f"{joining} has {end}, and {leading} leads in epoch {after.leader_epoch} with {mark}")
