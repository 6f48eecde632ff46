"""A member of a consumer group, by hand: it joins, assigns if it leads, reads what it owns, commits, and comes and goes as it likes.

Some leave, some hang up without a word, some doze past their session and then try to commit what they had read: a group must never believe
those. What a member is told (its assignment, committed offsets, acknowledged commits) goes into the diary, and is judged at the end.
"""

import asyncio
import json
from typing import Any

from penstock.errors import ErrorCode
from penstock.simulator.diary import Outcome
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.fetching import fetch_body, rows_of, take_records
from penstock.simulator.workloads.line import Line, LineLost
from penstock.simulator.workloads.stage import Stage
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey

_FIND, _JOIN, _SYNC, _HEARTBEAT, _LEAVE, _COMMIT, _FETCH_OFFSETS, _FETCH = 4, 6, 4, 4, 3, 8, 7, 12
PATIENCE_SECONDS = 8.0  # A join may be parked for as long as the others take.
_LEAVES, _HANGS_UP, _DOZES = 0.02, 0.02, 0.02
_ROUNDS_PER_LINE_MAX = 60


class Joining:
    def __init__(self, plan: ClientPlan, stage: Stage, env: SimEnv) -> None:
        self._plan = plan
        self._topic: TopicPlan = stage.topics[plan.topic]
        self._group: str = plan.options["group"]
        self._stage = stage
        self._diary = stage.notebook.diary
        self._env = env
        self._member_id = ""
        self._generation = -1
        self._next: dict[TopicPartition, int] = {}  # What it owns, and where it reads on.

    async def run(self) -> None:
        self._diary.group_readers.setdefault(self._group, []).append(self._plan.name)
        while not self._stage.is_over:
            line: Line | None = None
            try:
                line = await self._connect()
                await self._belong(line)
            except LineLost:
                await asyncio.sleep(self._env.rng.uniform(0.02, 0.3))
            if line is not None:
                line.close()

    async def _connect(self) -> Line:
        """To the group's coordinator."""
        line = await Line.open(self._stage.notebook, self._plan.name, timeout_seconds=PATIENCE_SECONDS)
        await self._find_coordinator(line)
        return line

    async def _find_coordinator(self, line: Line) -> Any:
        return await line.ask(ApiKey.FIND_COORDINATOR, _FIND, {"key_type": 0, "coordinator_keys": [self._group]})

    async def _belong(self, line: Line) -> None:
        for _ in range(_ROUNDS_PER_LINE_MAX):
            if self._stage.is_over:
                return
            if await self._join(line):
                await self._work(line)
            await self._stage.breathe(self._env, self._plan.options["pause"])

    # Joining

    async def _join(self, line: Line) -> bool:
        answer = await line.ask(ApiKey.JOIN_GROUP, _JOIN, self._identified() | {
            "session_timeout_ms": self._plan.options["session_ms"], "rebalance_timeout_ms": self._plan.options["rebalance_ms"],
            "protocol_type": "consumer", "protocols": [{"name": "by turns", "metadata": self._plan.name.encode()}],
        })  # fmt: skip
        code = ErrorCode(int(answer.error_code))
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code is not ErrorCode.NONE:
            return False
        self._member_id, self._generation = answer.member_id, int(answer.generation_id)
        members = [member.member_id for member in answer.members]
        return await self._sync(line, self._assign(members) if answer.leader == self._member_id else {})

    def _assign(self, members: list[str]) -> dict[str, bytes]:
        """By turns, beginning with anybody: who gets what is different each time."""
        first = self._env.rng.randrange(len(members))
        given: dict[str, list[int]] = {member: [] for member in members}
        for index in range(self._topic.partitions):
            given[members[(first + index) % len(members)]].append(index)
        return {member: json.dumps(indexes).encode() for member, indexes in given.items()}

    async def _sync(self, line: Line, assignments: dict[str, bytes]) -> bool:
        rows = [{"member_id": member, "assignment": content} for member, content in assignments.items()]
        answer = await line.ask(ApiKey.SYNC_GROUP, _SYNC, self._identified() | {"assignments": rows})
        if answer.error_code != ErrorCode.NONE:
            self._believe(answer.error_code)
            return False
        owned = [TopicPartition(self._topic.name, index) for index in json.loads(answer.assignment or b"[]")]
        self._diary.assigned(self._group, self._generation, self._member_id, tuple(owned))
        self._next = dict.fromkeys(owned, 0)
        self._stage.provoke()
        return True

    # Working

    async def _work(self, line: Line) -> None:
        if not await self._find_places(line):
            return
        while not self._stage.is_over:
            await self._read(line)
            if self._env.rng.random() < 0.5:
                await self._commit(line)
            if self._env.rng.random() < _DOZES:
                await asyncio.sleep(self._plan.options["session_ms"] / 1_000 * self._env.rng.uniform(0.8, 2.5))
                await self._commit(line)
            if self._env.rng.random() < _HANGS_UP:
                line.close()
            if self._env.rng.random() < _LEAVES:
                await self._leave(line)
                return
            code = (await line.ask(ApiKey.HEARTBEAT, _HEARTBEAT, self._identified())).error_code
            if code != ErrorCode.NONE:
                self._believe(code)
                return
            await self._stage.breathe(self._env, self._plan.options["pause"])

    async def _find_places(self, line: Line) -> bool:
        """Where the group has come to in the partitions that it owns now."""
        began, wish = self._env.now(), {"name": self._topic.name, "partition_indexes": [where.partition for where in self._next]}
        answer = await line.ask(ApiKey.OFFSET_FETCH, _FETCH_OFFSETS, {"group_id": self._group, "topics": [wish], "require_stable": True})
        if answer.error_code != ErrorCode.NONE:
            return False
        for row in answer.topics[0].partitions if self._next else ():
            where, offset = TopicPartition(self._topic.name, int(row.partition_index)), int(row.committed_offset)
            self._diary.found_committed(self._group, where, offset, began=began, ended=self._env.now())
            self._next[where] = max(0, offset)
            self._diary.seek(where, self._plan.name, self._next[where])
        return True

    async def _read(self, line: Line) -> None:
        if not self._next:
            return
        offsets = {where.partition: offset for where, offset in self._next.items()}
        body = fetch_body(self._topic.name, self._stage.topic_ids[self._topic.name], offsets, bytes_max=self._env.rng.choice((1, 2_000)))
        for row in rows_of(await line.ask(ApiKey.FETCH, _FETCH, body)):
            where = TopicPartition(self._topic.name, int(row.partition_index))
            if row.error_code == ErrorCode.NONE:
                self._next[where] = take_records(
                    self._stage.notebook, where, self._topic, self._plan.name, row.records or b"",
                    offset=self._next[where], now=self._env.now(),
                )  # fmt: skip

    async def _commit(self, line: Line) -> None:
        attempts = {where: self._diary.committing(self._group, where, offset, self._env.now()) for where, offset in self._next.items()}
        partitions = [
            {"partition_index": where.partition, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
            for where, offset in self._next.items()
        ]
        body = self._identified() | {"generation_id_or_member_epoch": self._generation}
        answer = await line.ask(ApiKey.OFFSET_COMMIT, _COMMIT, body | {"topics": [{"name": self._topic.name, "partitions": partitions}]})
        for row in answer.topics[0].partitions if answer.topics else ():
            attempt = attempts[TopicPartition(self._topic.name, int(row.partition_index))]
            attempt.ended = self._env.now()
            attempt.outcome = Outcome.ACKNOWLEDGED if row.error_code == ErrorCode.NONE else attempt.outcome

    async def _leave(self, line: Line) -> None:
        await line.ask(ApiKey.LEAVE_GROUP, _LEAVE, {"group_id": self._group, "members": [{"member_id": self._member_id}]})
        self._member_id = ""

    def _identified(self) -> dict[str, Any]:
        return {"group_id": self._group, "generation_id": self._generation, "member_id": self._member_id, "group_instance_id": None}

    def _believe(self, code: int) -> None:
        """Whoever is not known any more begins anew."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
