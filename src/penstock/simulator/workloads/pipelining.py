"""An idempotent producer by hand: up to five batches in flight, resent byte for byte, and now and then again after they were acknowledged.

What it holds the node to, beside the diary's rules:
- the next sequence is always taken, and none is refused that follows what was acknowledged, whatever happened to the node in between;
- a batch that was acknowledged, sent again within the window of five, is answered with its old offset;
- a batch that leaves a gap is refused.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import ErrorCode
from penstock.simulator.diary import Attempt
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.line import Line, LineLost
from penstock.simulator.workloads.stage import Stage
from penstock.simulator.workloads.values import draw_size, make_record
from penstock.vocabulary import ProducerId, TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import encode_batch

WINDOW = 5
GIANT_BYTES = 1_200_000  # Unpacks to more than a node looks at on its event loop; packed it is small.
_GIANT = 0.03
# The same batch may be taken later. Whether it was taken already is unknown.
_LATER = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
# The batch is bad for this topic, or for the node's clock.
_REFUSALS = (ErrorCode.INVALID_TIMESTAMP, ErrorCode.MESSAGE_TOO_LARGE)


@dataclass(slots=True, eq=False)
class Batch:
    sequence: int
    content: bytes
    attempts: list[Attempt]
    may_be_stored: bool = False  # An earlier try went unanswered.
    offset: int = -1


@dataclass(slots=True)
class Flow:
    """One partition as this producer knows it."""

    where: TopicPartition
    next_sequence: int = 0
    unanswered: deque[Batch] = field(default_factory=deque)
    answered: deque[Batch] = field(default_factory=lambda: deque(maxlen=WINDOW))
    is_lost: bool = False  # The node refuses it, and may do so for ever.


Group = list[tuple[Flow, Batch]]


class Pipelining:
    def __init__(self, plan: ClientPlan, stage: Stage, env: SimEnv) -> None:
        self._plan = plan
        self._topic: TopicPlan = stage.topics[plan.topic]
        self._stage = stage
        self._env = env
        self._options = plan.options
        self._line: Line | None = None
        self._producer_id: ProducerId | None = None
        self._lives = 0
        self._number = 0
        self._flows: list[Flow] = []

    async def run(self) -> None:
        while not self._stage.is_over or any(flow.unanswered for flow in self._flows):
            try:
                await self._round()
            except LineLost:
                self._line = None
                await asyncio.sleep(self._env.rng.uniform(0.02, 0.3))
            await self._stage.breathe(self._env, self._options["pause"])
        if self._line is not None:
            self._line.close()

    async def _round(self) -> None:
        line = await self._connected()
        if self._producer_id is None:
            await self._begin_life(line)
        for flow in self._flows:
            if not self._stage.is_over and not flow.is_lost:
                room = WINDOW - len(flow.unanswered)
                flow.unanswered.extend(self._new_batch(flow) for _ in range(self._env.rng.randint(0, room)))
        sent = [(group, self._send(line, group)) for group in self._groups()]
        is_held_up: set[TopicPartition] = set()
        try:
            for group, answer in sent:
                rows = {int(row.index): row for row in (await line.answered(answer)).responses[0].partition_responses}
                for flow, batch in group:
                    if self._producer_id is not None:
                        self._take(flow, batch, rows[flow.where.partition], is_held_up)
        except LineLost:
            for group, _ in sent:
                for _, batch in group:
                    batch.may_be_stored |= batch.offset < 0
            raise
        for flow in self._flows:
            if not (flow.unanswered or flow.is_lost or self._producer_id is None):
                await self._try_something(line, flow)

    def _groups(self) -> list[Group]:
        """What goes into one request: one batch, or one batch of each partition."""
        if not self._options["is_grouped"]:
            return [[(flow, batch)] for flow in self._flows for batch in flow.unanswered]
        return [
            [(flow, flow.unanswered[place]) for flow in self._flows if place < len(flow.unanswered)]
            for place in range(max((len(flow.unanswered) for flow in self._flows), default=0))
        ]

    async def _connected(self) -> Line:
        if self._line is None or not self._line.is_open:
            self._line = await Line.open(self._stage.notebook, self._plan.name)
        return self._line

    async def _begin_life(self, line: Line) -> None:
        """A new producer id; whatever the old one left unanswered stays unknown."""
        answer = await line.ask(ApiKey.INIT_PRODUCER_ID, 1, {"transactional_id": None, "transaction_timeout_ms": 1_000})
        if answer.error_code != ErrorCode.NONE:
            raise LineLost("no producer id")
        self._lives += 1
        self._producer_id = ProducerId(int(answer.producer_id))
        self._stage.notebook.got_producer_id(self._producer_id, self._name)
        self._stage.provoke()
        self._flows = [Flow(where) for where in self._stage.partitions(self._topic.name)]

    @property
    def _name(self) -> str:
        return f"{self._plan.name}.{self._lives}"

    def _new_batch(self, flow: Flow) -> Batch:
        batch = self._make(flow.where, flow.next_sequence, self._env.rng.randint(1, self._options["records"]))
        flow.next_sequence += len(batch.attempts)
        return batch

    def _make(self, where: TopicPartition, sequence: int, count: int) -> Batch:
        env, diary, records, attempts = self._env, self._stage.notebook.diary, [], []
        for _ in range(count):
            self._number += 1
            is_giant = self._options["has_giants"] and self._options["codec"] and env.rng.random() < _GIANT
            size = GIANT_BYTES if is_giant else draw_size(env.rng, self._options["size"])
            record = make_record(self._plan.name, self._number, env.wall_ms(), size=size, key=b"%d" % where.partition)
            records.append(record)
            attempts.append(diary.attempt(where, self._name, record.value or b"", env.now(), key=record.key))
        content = encode_batch(
            records, producer_id=self._producer_id or ProducerId(0), producer_epoch=0, base_sequence=sequence, codec=self._options["codec"]
        )
        return Batch(sequence, bytes(content), attempts)

    def _send(self, line: Line, group: Group) -> "asyncio.Future[Any]":
        topic = {
            "name": self._topic.name,
            "topic_id": self._stage.topic_ids[self._topic.name],
            "partition_data": [{"index": flow.where.partition, "records": batch.content} for flow, batch in group],
        }
        return line.send(ApiKey.PRODUCE, self._options["version"], {"acks": -1, "timeout_ms": 1_500, "topic_data": [topic]})

    def _take(self, flow: Flow, batch: Batch, row: Any, is_held_up: set[TopicPartition]) -> None:
        code, where = ErrorCode(int(row.error_code)), flow.where
        if code is ErrorCode.NONE:
            if batch in flow.unanswered:
                flow.unanswered.remove(batch)
            flow.answered.append(batch)
            self._acknowledged(batch, int(row.base_offset))
        elif code in _LATER:
            batch.may_be_stored = True
            is_held_up.add(where)
            if where in self._stage.notebook.diary.damaged:
                flow.unanswered.clear()  # It may stay offline for ever. What was sent stays unknown.
                flow.is_lost = True
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and where in is_held_up:
            pass  # As it should be: one before it waits to be sent again.
        elif code in _REFUSALS:
            if not batch.may_be_stored:
                for attempt in batch.attempts:
                    attempt.failed(self._env.now())
            self._producer_id = None
        else:
            self._producer_id = None
            story = f"sequence {batch.sequence} was refused with {code.name}: {getattr(row, 'error_message', '')}"
            if self._stage.notebook.keeps_everything(where, self._topic):
                self._find("the next sequence is taken", where, story)

    def _acknowledged(self, batch: Batch, offset: int) -> None:
        batch.offset = offset
        for place, attempt in enumerate(batch.attempts):
            attempt.acknowledged(offset + place, self._env.now())
        self._stage.provoke()

    async def _try_something(self, line: Line, flow: Flow) -> None:
        chance = self._env.rng.random()
        if chance < 0.3 and flow.answered:
            await self._repeat(line, flow)
        elif chance < 0.4 and flow.answered:  # A producer that is not known yet may begin anywhere but in an empty log.
            await self._leave_a_gap(line, flow)

    async def _repeat(self, line: Line, flow: Flow) -> None:
        batch = self._env.rng.choice(flow.answered)
        row = _row(await line.answered(self._send(line, [(flow, batch)])))
        if row.error_code == ErrorCode.NONE:
            if row.base_offset != batch.offset:
                story = f"sequence {batch.sequence} stands at {batch.offset}; sent again it was answered with {row.base_offset}"
                self._find("a duplicate is answered with its old offset", flow.where, story)
            return
        code = ErrorCode(int(row.error_code))
        if not self._is_later(code) and code not in _REFUSALS and self._stage.notebook.keeps_everything(flow.where, self._topic):
            story = f"sequence {batch.sequence} was answered with {code.name}"
            self._find("a duplicate is answered with its old offset", flow.where, story)

    async def _leave_a_gap(self, line: Line, flow: Flow) -> None:
        batch = self._make(flow.where, flow.next_sequence + 7, 1)
        row = _row(await line.answered(self._send(line, [(flow, batch)])))
        if row.error_code == ErrorCode.NONE:
            self._find("a gap is refused", flow.where, f"sequence {batch.sequence} was taken, where {flow.next_sequence} was due")
            self._acknowledged(batch, int(row.base_offset))
            self._producer_id = None
        elif not self._is_later(ErrorCode(int(row.error_code))):
            for attempt in batch.attempts:
                attempt.failed(self._env.now())

    def _is_later(self, code: ErrorCode) -> bool:
        return code in _LATER

    def _find(self, rule: str, where: TopicPartition, story: str) -> None:
        self._stage.notebook.find(rule, where, f"{self._name}: {story}")


def _row(answer: Any) -> Any:
    return answer.responses[0].partition_responses[0]
