"""Consumers that name their rack and read from any replica, also from one that lags behind (KIP-392).

The leader may name a replica in the reader's rack, and the reader goes there; now and then it goes straight to any replica. Whoever
answers, offset follows offset, and no answer holds anything at or past the watermark that stands in it, or past the last stable offset for
readers of committed records. What was shown must be on every in-sync replica already (data_watch.py).
"""

import asyncio
from typing import Any

from penstock.errors import ErrorCode, MalformedInput
from penstock.peers.aborted import AbortedRecords, AbortedTransaction
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.peers.topics import ClusterView, PartitionView
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.fetching import UNPACKED_BYTES_MAX, fetch_body, rows_of
from penstock.simulator.workloads.line import Line, LineLost, whole_batches
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import decode_records

PAST_THE_END = "no replica shows what is past its watermark"
ELSEWHERE = "readers are sent to their own rack"

_VERSION = 12
_NOBODY = -1
_ASKED_SECONDS = 3.0
_STRAIGHT, _BEGINS_AGAIN = 0.6, 0.04
_WAIT = (
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE,
)  # fmt: skip


class NearReading:
    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        self._plan = plan
        self._topic: TopicPlan = stage.topics[plan.topic]
        self._stage = stage
        self._env = env
        self._is_committed_only: bool = plan.options["is_committed_only"]
        self._next: dict[TopicPartition, int] = {}
        self._sent_to: dict[TopicPartition, int] = {}  # Where the leader said that the reader had better read.
        self._lives = 0
        self._names: dict[TopicPartition, str] = {}  # Each time it begins again it counts as another reader.

    async def run(self) -> None:
        self._stage.data.watch_marks(self._topic.name)
        for where in self._stage.partitions(self._topic.name):
            self._seek(where, 0)
        async with self._stage.client(self._env, self._plan.name) as client:
            while not self._stage.is_over:
                try:
                    await self._round(client)
                except (PeerFailure, LineLost):
                    self._sent_to.clear()
                    await self._stage.breathe(self._env, 0.1)
                if self._env.rng.random() < _BEGINS_AGAIN:
                    self._seek(self._env.rng.choice(list(self._next)), 0)
                await self._stage.breathe(self._env, self._plan.options["pause"])

    def _seek(self, where: TopicPartition, offset: int) -> None:
        self._lives += 1
        self._names[where] = f"{self._plan.name}.{self._lives}"
        self._next[where] = offset
        self._stage.notebook.diary.seek(where, self._names[where], offset)

    async def _round(self, client: Client) -> None:
        view = await client.metadata([self._topic.name], deadline_s=_ASKED_SECONDS)
        partitions = [partition for topic in view.topics for partition in topic.partitions]
        for partition in partitions:
            where = TopicPartition(self._topic.name, partition.partition)
            node = self._choose(where, partition)
            address = next((known.address for known in view.nodes if known.node_id == node), None)
            if address is None:
                self._sent_to.pop(where, None)
                continue
            line = await Line.open(self._stage.notebook, self._plan.name, address=address)
            try:
                await self._read(line, where, node, partition, view)
            finally:
                line.close()

    def _choose(self, where: TopicPartition, partition: PartitionView) -> int:
        if self._env.rng.random() < _STRAIGHT:
            return self._env.rng.choice(partition.replicas)
        return self._sent_to.get(where, partition.leader)

    async def _read(self, line: Line, where: TopicPartition, node: int, partition: PartitionView, view: ClusterView) -> None:
        rng, operations = self._env.rng, self._stage.operations
        body = fetch_body(
            where.topic, self._stage.topic_ids[where.topic], {where.partition: self._next[where]},
            wait_ms=rng.choice((0, 50)), bytes_max=rng.choice((1, 2_000, 1 << 20)),
        )  # fmt: skip
        body |= {"rack_id": self._plan.options["rack"], "isolation_level": int(self._is_committed_only)}
        is_follower = node != partition.leader
        operation = operations.begin("follower read", self._env.now()) if is_follower else None
        (row,) = rows_of(await line.ask(ApiKey.FETCH, _VERSION, body))
        code = ErrorCode(int(row.error_code))
        if code is ErrorCode.NONE:
            self._go_where_told(where, row, view)
            self._take(where, row, f"node {node}")
            if operation is not None and row.records:
                operations.complete(operation, self._env.now())
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE and self._topic.forgets:
            self._seek(where, max(0, int(row.log_start_offset)))
        else:
            self._sent_to.pop(where, None)
            # A follower, or who led until now, may not have the offset: Kafka's client asks the leader then, and only its answer counts
            # (KIP-392). What leaders answer is judged where no rack is named.
            if code not in (*_WAIT, ErrorCode.OFFSET_OUT_OF_RANGE):
                story = f"{self._names[where]}: node {node} answers a fetch at {self._next[where]} with {code.name}"
                self._stage.notebook.find("what is whole is served", where, story)
            await asyncio.sleep(0.02)

    def _go_where_told(self, where: TopicPartition, row: Any, view: ClusterView) -> None:
        preferred = int(row.preferred_read_replica)
        if preferred == _NOBODY:
            return
        self._sent_to[where] = preferred
        racks = {known.node_id: known.rack for known in view.nodes}
        if racks.get(preferred, self._plan.options["rack"]) != self._plan.options["rack"]:
            story = f"{self._names[where]}, in {self._plan.options['rack']}, is sent to node {preferred} in {racks[preferred]}"
            self._stage.notebook.find(ELSEWHERE, where, story)

    def _take(self, where: TopicPartition, row: Any, who: str) -> None:
        notebook, offset, name = self._stage.notebook, self._next[where], self._names[where]
        end = int(row.last_stable_offset if self._is_committed_only else row.high_watermark)
        aborted = AbortedRecords(
            [AbortedTransaction(int(one.producer_id), int(one.first_offset)) for one in row.aborted_transactions or ()]
        )
        try:
            for header, batch in whole_batches(row.records or b""):
                if header.end_offset > end:
                    notebook.find(PAST_THE_END, where, f"{who} shows {name} records up to {header.end_offset}, and says {end}")
                notebook.saw_batch(where, self._topic, header.base_offset, batch)
                is_aborted = self._is_committed_only and aborted.has(header, batch)
                for record in decode_records(batch, bytes_max=UNPACKED_BYTES_MAX) if not (header.is_control or is_aborted) else ():
                    if record.offset >= offset:
                        notebook.saw(where, self._topic, name, record, self._env.now())
                        if self._is_committed_only:
                            notebook.diary.transactions.read(where, name, record.offset, record.value or b"", self._env.now())
                offset = max(offset, header.end_offset)
        except MalformedInput as malformed:
            notebook.find("only whole and right batches are served", where, f"{name}: {who} at {offset}: {malformed}")
        if offset > self._next[where]:
            self._stage.data.saw(where, offset, f"{name} at {who}")
        self._next[where] = offset
