"""Asks where each partition begins and ends, and for records by their time. Neither the beginning nor the end ever goes back."""

import asyncio
from typing import Any, Protocol

from penstock.errors import ErrorCode
from penstock.peers.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.line import Line, LineLost
from penstock.simulator.workloads.stage import Stage
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey

_VERSION = 7  # The first that knows MAX_TIMESTAMP.


class Asking:
    def __init__(self, plan: ClientPlan, stage: Stage, env: SimEnv) -> None:
        self._plan = plan
        self._topic: TopicPlan = stage.topics[plan.topic]
        self._stage = stage
        self._env = env
        self._highest_start: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        line: Line | None = None
        while not self._stage.is_over:
            try:
                if line is None or not line.is_open:
                    line = await Line.open(self._stage.notebook, self._plan.name)
                for where in self._stage.partitions(self._topic.name):
                    await self._ask(line, where)
            except LineLost:
                await asyncio.sleep(self._env.rng.uniform(0.02, 0.3))
            await self._stage.breathe(self._env, self._plan.options["pause"])
        if line is not None:
            line.close()

    async def _ask(self, line: Line, where: TopicPartition) -> None:
        begin = await list_offset(line, where, EARLIEST)
        self._take_start(where, begin)
        asked_at = self._env.now()
        end = await list_offset(line, where, LATEST)
        if end.error_code == ErrorCode.NONE:
            self._stage.notebook.diary.watermark(where, int(end.offset), began=asked_at, ended=self._env.now())
        else:
            self._refused(where, end.error_code)
        wish = self._env.rng.choice((MAX_TIMESTAMP, self._env.wall_ms() - self._env.rng.randrange(5_000)))
        timed = await list_offset(line, where, wish)
        if timed.error_code != ErrorCode.NONE:
            self._refused(where, timed.error_code)

    def _take_start(self, where: TopicPartition, row: Any) -> None:
        notebook = self._stage.notebook
        if row.error_code != ErrorCode.NONE:
            self._refused(where, row.error_code)
            return
        start, known = int(row.offset), self._highest_start.get(where, 0)
        if start < known and where not in notebook.diary.damaged and not notebook.caches_are_harmed:
            notebook.find("the start never goes back", where, f"the log began at {known}, and now at {start}")
        if start and not self._topic.forgets:
            notebook.find("nothing is forgotten unasked", where, f"the log begins at {start}, and nobody asked it to forget")
        self._highest_start[where] = max(known, start)

    def _refused(self, where: TopicPartition, code: int) -> None:
        if code != ErrorCode.KAFKA_STORAGE_ERROR and where not in self._stage.notebook.diary.damaged:
            name = ErrorCode(int(code)).name
            self._stage.notebook.find("what is whole is served", where, f"{self._plan.name} asked for an offset and got {name}")


class Asked(Protocol):
    async def ask(self, api: ApiKey, version: int, body: dict[str, Any]) -> Any: ...


async def list_offset(line: Asked, where: TopicPartition, timestamp: int) -> Any:
    """The row of one partition."""
    wish = {"partition_index": where.partition, "timestamp": timestamp}
    body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": where.topic, "partitions": [wish]}]}
    return (await line.ask(ApiKey.LIST_OFFSETS, _VERSION, body)).topics[0].partitions[0]
