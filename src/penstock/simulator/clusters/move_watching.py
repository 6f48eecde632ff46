"""Judges every decision about a partition as the nodes replay it: what a look now and then would miss.

- A leader epoch begins when a replica leaves: if it comes back its copy is another one, for which no late report of the first may count.
- A move ends when all the replicas that it added are in sync.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from penstock.cluster import records
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.simulator.workloads.notebook import Notebook
from penstock.vocabulary import TopicPartition

EPOCH_RULE, END_RULE = "an epoch begins when a replica leaves", "a move ends when its replicas are in sync"


class MoveWatch:
    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook

    def patches(self) -> list[tuple[Any, str, Any]]:
        """What stands beside the image's replay while the run lasts."""
        return [(ClusterImage, "replay", self._beside(ClusterImage.replay))]

    def _beside(self, original: Callable[[ClusterImage, records.Record], None]) -> Callable[[ClusterImage, records.Record], None]:
        @wraps(original)
        def replay(image: ClusterImage, record: records.Record) -> None:
            if isinstance(record, records.PartitionsChanged):
                for change in record.changes:
                    topic = image.topics_by_id[change.topic_id]
                    where = TopicPartition(topic.name, change.partition)
                    self._judge(where, topic.partitions[change.partition], PartitionState(*change[2:]))
            original(image, record)

        return replay

    def _judge(self, where: TopicPartition, before: PartitionState, after: PartitionState) -> None:
        if not set(before.replicas) <= set(after.replicas) and after.leader_epoch <= before.leader_epoch:
            self._notebook.find(EPOCH_RULE, where, f"{before.replicas} became {after.replicas}, both in epoch {after.leader_epoch}")
        is_end = before.is_reassigning and not after.is_reassigning and set(after.replicas) == set(before.target)
        if is_end and not set(before.adding) <= set(after.in_sync):
            story = f"{before.adding} were being added, and only {after.in_sync} are in sync"
            self._notebook.find(END_RULE, where, story)
