"""Reads by hand: whole batches with right checksums, offset after offset, every byte compared with what was seen of it before."""

import asyncio
from typing import Any

from penstock.errors import ErrorCode, MalformedInput
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.line import Line, LineLost, whole_batches
from penstock.simulator.workloads.notebook import Notebook
from penstock.simulator.workloads.stage import Stage
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import decode_records

UNPACKED_BYTES_MAX = 1 << 24
_WAIT = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Fetching:
    """Follows every partition of a topic, and now and then begins again at its start."""

    def __init__(self, plan: ClientPlan, stage: Stage, env: SimEnv) -> None:
        self._plan = plan
        self._topic: TopicPlan = stage.topics[plan.topic]
        self._stage = stage
        self._env = env
        self._version: int = plan.options["version"]
        self._next: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        line: Line | None = None
        self._restart()
        while not self._stage.is_over:
            try:
                if line is None or not line.is_open:
                    line = await Line.open(self._stage.notebook, self._plan.name)
                await self._round(line)
            except LineLost:
                await asyncio.sleep(self._env.rng.uniform(0.02, 0.3))
            if self._env.rng.random() < 0.05:
                self._restart()
            await self._stage.breathe(self._env, self._plan.options["pause"])
        if line is not None:
            line.close()

    def _restart(self) -> None:
        for where in self._stage.partitions(self._topic.name):
            self._seek(where, 0)

    def _seek(self, where: TopicPartition, offset: int) -> None:
        self._next[where] = offset
        self._stage.notebook.diary.seek(where, self._plan.name, offset)

    async def _round(self, line: Line) -> None:
        began = self._env.now()
        rng = self._env.rng
        answer = await line.ask(
            ApiKey.FETCH,
            self._version,
            fetch_body(
                self._topic.name,
                self._stage.topic_ids[self._topic.name],
                {where.partition: offset for where, offset in self._next.items()},
                wait_ms=rng.choice((0, 100, 500)),
                bytes_min=rng.choice((1, 1, 3_000)),
                bytes_max=rng.choice((1, 2_000, 1 << 20)),
            ),
        )
        for row in rows_of(answer):
            self._take(TopicPartition(self._topic.name, int(row.partition_index)), row, began)

    def _take(self, where: TopicPartition, row: Any, began: float) -> None:
        notebook, code = self._stage.notebook, ErrorCode(int(row.error_code))
        if code is ErrorCode.NONE:
            if row.high_watermark >= 0:  # -1: the node does not know where a log ends that it could not read to its end.
                notebook.diary.watermark(where, int(row.high_watermark), began=began, ended=self._env.now())
            self._next[where] = take_records(
                notebook, where, self._topic, self._plan.name, row.records or b"", offset=self._next[where], now=self._env.now()
            )
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if notebook.keeps_everything(where, self._topic):
                notebook.find("what was there stays there", where, f"{self._plan.name}: offset {self._next[where]} is out of range")
            self._seek(where, max(0, int(getattr(row, "log_start_offset", 0))))
        elif code not in _WAIT:
            if where not in notebook.diary.damaged:
                notebook.find("what is whole is served", where, f"{self._plan.name}: a fetch at {self._next[where]} got {code.name}")
            self._seek(where, self._next[where] + 1)


def fetch_body(
    topic: str, topic_id: bytes, offsets: dict[int, int], *, wait_ms: int = 0, bytes_min: int = 1, bytes_max: int = 1 << 20
) -> dict[str, Any]:
    """Of any version, without a session."""
    wishes = [{"partition": index, "fetch_offset": offset, "partition_max_bytes": bytes_max} for index, offset in offsets.items()]
    return {
        "max_wait_ms": wait_ms,
        "min_bytes": bytes_min,
        "max_bytes": bytes_max,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "topic_id": topic_id, "partitions": wishes}],
    }


def rows_of(answer: Any) -> list[Any]:
    return [row for topic in answer.responses for row in topic.partitions]


def take_records(
    notebook: Notebook, where: TopicPartition, topic: TopicPlan, reader: str, records: bytes, *, offset: int, now: float
) -> int:
    """Notes what was read from `offset` on; returns the offset that is due next."""
    try:
        for header, batch in whole_batches(records):
            notebook.saw_batch(where, topic, header.base_offset, batch)
            for record in decode_records(batch, bytes_max=UNPACKED_BYTES_MAX):
                if record.offset >= offset and not header.is_control:
                    notebook.saw(where, topic, reader, record, now)
            offset = max(offset, header.end_offset)  # Compaction may have left no record, or not the last.
    except MalformedInput as malformed:
        notebook.find("only whole and right batches are served", where, f"{reader}: at offset {offset}: {malformed}")
    return offset
