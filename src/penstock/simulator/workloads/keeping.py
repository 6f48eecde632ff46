"""A compacted topic: few keys that are written over and over, and deleted now and then. The last word on each key must stay.

One batch at a time and by hand, so that the order in which a key was written is known: only what an unanswered batch has become is not.
"""

import asyncio

from penstock.errors import ErrorCode
from penstock.simulator.diary import Attempt
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.line import Line, LineLost
from penstock.simulator.workloads.stage import Stage
from penstock.simulator.workloads.values import draw_size, identity_of, make_record, make_tombstone
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, encode_batch

_VERSION = 9
_TOMBSTONE = 0.2
RECORDS_MAX = 1_500  # Then it goes slowly: a story needs no more.


class Keeping:
    def __init__(self, plan: ClientPlan, stage: Stage, env: SimEnv) -> None:
        self._plan = plan
        self._options = plan.options
        self._topic: TopicPlan = stage.topics[plan.topic]
        self._stage = stage
        self._env = env
        self._number = 0

    async def run(self) -> None:
        line: Line | None = None
        while not self._stage.is_over:
            try:
                if line is None or not line.is_open:
                    line = await Line.open(self._stage.notebook, self._plan.name)
                await self._write(line, self._env.rng.choice(self._stage.partitions(self._topic.name)))
            except LineLost:
                await asyncio.sleep(self._env.rng.uniform(0.02, 0.3))
            await self._stage.breathe(self._env, self._options["pause"] if self._number < RECORDS_MAX else 0.5)
        if line is not None:
            line.close()

    async def _write(self, line: Line, where: TopicPartition) -> None:
        records = [self._record() for _ in range(self._env.rng.randint(1, self._options["records"]))]
        attempts = [self._attempt(where, record) for record in records]
        content = bytes(encode_batch(records, codec=self._options["codec"]))
        topic = {"name": where.topic, "partition_data": [{"index": where.partition, "records": content}]}
        answer = await line.ask(ApiKey.PRODUCE, _VERSION, {"acks": -1, "timeout_ms": 1_500, "topic_data": [topic]})
        row = answer.responses[0].partition_responses[0]
        now = self._env.now()
        if row.error_code == ErrorCode.NONE:
            for place, attempt in enumerate(attempts):
                attempt.acknowledged(int(row.base_offset) + place, now)
            self._stage.provoke()
        elif row.error_code in (ErrorCode.INVALID_TIMESTAMP, ErrorCode.MESSAGE_TOO_LARGE):
            for attempt in attempts:
                attempt.failed(now)

    def _record(self) -> Record:
        env = self._env
        self._number += 1
        key = b"k%d" % env.rng.randrange(self._options["keys"])
        if env.rng.random() < _TOMBSTONE:
            return make_tombstone(self._plan.name, self._number, env.wall_ms(), key)
        return make_record(self._plan.name, self._number, env.wall_ms(), size=draw_size(env.rng, self._options["size"]), key=key)

    def _attempt(self, where: TopicPartition, record: Record) -> Attempt:
        return self._stage.notebook.diary.attempt(
            where, self._plan.name, identity_of(record), self._env.now(),
            is_idempotent=False, key=record.key, is_tombstone=record.value is None,
        )  # fmt: skip
