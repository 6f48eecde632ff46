"""A scripted peer that keeps one topic in memory, stores what is produced and answers what is fetched, and errs when the test says so.

It judges nothing: batches are stored in the order of their arrival, with or without sense. `produce_script`, `fetch_script` and
`metadata_script` hold what to do with the next requests: an error code, `HANG_UP` or `NO_ANSWER` instead of doing it, or `THEN_HANG_UP`:
do it, and hang up instead of answering. An empty script means: do it and say so.
"""

import asyncio
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import Any

from peers.scripted import HANG_UP, NO_ANSWER, Question, ScriptedPeer, scripted_peer

from penstock.errors import ErrorCode
from penstock.peers.connection import Address
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import BatchHeader, Record, decode_records, encode_batch, read_header, stamp

TOPIC = "orders"
THEN_HANG_UP = object()


class PretendNode:
    def __init__(self, peer: ScriptedPeer, *, node_id: int = 1, partitions: int = 1) -> None:
        self.peer = peer
        self.node_id = node_id
        self.partition_count = partitions
        self.topic_id = b"\x07" * 16
        self.leaders: dict[int, int] = {}  # Partition to node id; this node where nothing is said.
        self.leader_epoch = 0
        self.nodes: dict[int, Address] = {node_id: peer.address}
        self.batches: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        self.start_offset = 0
        self.received: list[tuple[int, bytes]] = []  # Every produced batch as it came, also those that were refused.
        self.produce_script: deque[Any] = deque()
        self.fetch_script: deque[Any] = deque()
        self.metadata_script: deque[Any] = deque()
        self.batch_bytes_max = 1 << 20
        self.keeps_sessions = False
        self.session_epochs: list[tuple[int, int]] = []
        self._cursors: dict[tuple[int, int], int] = {}
        self._stored = asyncio.Event()  # Set, and made anew, with each batch.
        peer.handlers |= {
            ApiKey.METADATA: self.metadata,
            ApiKey.INIT_PRODUCER_ID: lambda _: {"producer_id": 7, "producer_epoch": 0},
            ApiKey.PRODUCE: self.produce,
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: self.list_offsets,
        }

    def end_offset(self, partition: int = 0) -> int:
        batches = self.batches[partition]
        return read_header(batches[-1]).end_offset if batches else self.start_offset

    def store(self, *values: bytes, partition: int = 0, gap: int = 0, **how: Any) -> None:
        batch = encode_batch([Record(None, value, (), 1_000) for value in values], **how)
        stamp(batch, self.end_offset(partition) + gap, self.leader_epoch)
        self._append(partition, bytes(batch))

    def _append(self, partition: int, batch: bytes) -> None:
        self.batches[partition].append(batch)
        self._stored.set()
        self._stored = asyncio.Event()

    def stored_values(self, partition: int = 0) -> list[bytes | None]:
        return [record.value for batch in self.batches[partition] for record in decode_records(batch, bytes_max=1 << 24)]

    @property
    def received_headers(self) -> list[BatchHeader]:
        return [read_header(batch) for _, batch in self.received]

    def metadata(self, question: Question) -> Any:
        match self.metadata_script.popleft() if self.metadata_script else ErrorCode.NONE:
            case ErrorCode() as code:
                pass
            case other:
                return other
        names = [TOPIC] if question.body.topics is None else [topic.name for topic in question.body.topics]
        return {
            "brokers": [{"node_id": node_id, "host": address.host, "port": address.port} for node_id, address in self.nodes.items()],
            "controller_id": self.node_id,
            "topics": [self._topic(name, code) for name in names],
        }

    def _topic(self, name: str, code: ErrorCode) -> dict[str, Any]:
        if name != TOPIC or code:
            return {"name": name, "error_code": code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        rows = [
            {"partition_index": number, "leader_id": self.leaders.get(number, self.node_id), "leader_epoch": self.leader_epoch}
            for number in range(self.partition_count)
        ]
        return {"name": name, "topic_id": self.topic_id, "partitions": rows}

    def produce(self, question: Question) -> Any:
        row = question.body.topic_data[0].partition_data[0]
        self.received.append((row.index, bytes(row.records)))
        code: Any = self.produce_script.popleft() if self.produce_script else ErrorCode.NONE
        if len(row.records) > self.batch_bytes_max:
            code = ErrorCode.MESSAGE_TOO_LARGE
        base_offset = -1
        if code in (ErrorCode.NONE, THEN_HANG_UP):
            base_offset = self.end_offset(row.index)
            batch = bytearray(row.records)
            stamp(batch, base_offset, self.leader_epoch)
            self._append(row.index, bytes(batch))
        if not isinstance(code, ErrorCode):
            return HANG_UP if code is THEN_HANG_UP else code
        if question.body.acks == 0:
            return NO_ANSWER
        answer = {"index": row.index, "error_code": code, "base_offset": base_offset, "log_append_time_ms": -1}
        return {"responses": [{"topic_id": self.topic_id, "name": TOPIC, "partition_responses": [answer]}]}

    def list_offsets(self, question: Question) -> Any:
        rows = []
        for asked in question.body.topics[0].partitions:
            offset = self.start_offset if asked.timestamp == -2 else self.end_offset(asked.partition_index)
            rows.append({"partition_index": asked.partition_index, "offset": offset, "timestamp": -1})
        return {"topics": [{"name": TOPIC, "partitions": rows}]}

    async def fetch(self, question: Question) -> Any:
        body = question.body
        session_id, session_epoch = getattr(body, "session_id", 0), getattr(body, "session_epoch", -1)
        self.session_epochs.append((session_id, session_epoch))
        code: Any = self.fetch_script.popleft() if self.fetch_script else ErrorCode.NONE
        if not isinstance(code, ErrorCode):
            return code
        if code in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
            return {"error_code": code}
        asked = {partition.partition: partition.fetch_offset for topic in body.topics for partition in topic.partitions}
        if self.keeps_sessions and session_epoch > 0:
            self._cursors |= {(0, partition): offset for partition, offset in asked.items()}
        elif self.keeps_sessions and session_epoch == 0:
            self._cursors = {(0, partition): offset for partition, offset in asked.items()}
        wanted = {partition: offset for (_, partition), offset in self._cursors.items()} if session_epoch > 0 else asked
        rows = await self._fetch_rows(wanted, code, body.max_wait.total_seconds())
        if session_epoch > 0:
            rows = [row for row in rows if row["records"] or row["error_code"]]
        return {
            "session_id": 5 if self.keeps_sessions and session_epoch >= 0 else 0,
            "responses": [{"topic": TOPIC, "topic_id": self.topic_id, "partitions": rows}] if rows else [],
        }

    async def _fetch_rows(self, wanted: dict[int, int], code: ErrorCode, wait_s: float) -> list[dict[str, Any]]:
        """Waits for records as long as it is asked to, as a node does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while True:
                    rows = [self._fetch_row(partition, offset, code) for partition, offset in wanted.items()]
                    if not wait_s or any(row["records"] or row["error_code"] for row in rows):
                        break
                    await self._stored.wait()
        return rows

    def _fetch_row(self, partition: int, offset: int, code: ErrorCode) -> dict[str, Any]:
        if code is ErrorCode.NONE and not self.start_offset <= offset <= self.end_offset(partition):
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        wanted = [] if code else [batch for batch in self.batches[partition] if read_header(batch).end_offset > offset]
        return {
            "partition_index": partition,
            "error_code": code,
            "high_watermark": self.end_offset(partition),
            "log_start_offset": self.start_offset,
            "records": b"".join(wanted),
        }


@asynccontextmanager
async def pretend_node(**how: Any):
    async with scripted_peer() as peer:
        yield PretendNode(peer, **how)
