"""Members of a share group, as plain as the protocol has them: one joins and leaves, so that there is a group; then ShareFetch and nothing
else.

What a fetch brought is accepted by the next one. Records are not taken apart: which offsets were acquired stands beside them.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from benchmarks.load import frames
from benchmarks.load.frames import UnexpectedReply
from benchmarks.load.pipeline import Timing
from benchmarks.load.stopwatch import Stopwatch
from benchmarks.load.topics import Admin
from benchmarks.queue_load.share_frames import Ranges, ShareFetchFrames
from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import read_response, write_request

GROUP_RESOURCE = 32
RECORDS_IN_A_BATCH = 10
FIRST_WAIT_MS = 60_000  # Until a member has its first records: a group that has just begun must look at the log first.


class Line:
    """One connection: requests, and answers in their order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, host: str, port: int) -> "Line":
        return cls(*await asyncio.open_connection(host, port, limit=4 << 20))

    def write(self, frame: bytes) -> None:
        self._writer.write(frame)

    async def read(self) -> bytes:
        return await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4), "big"))

    async def ask(self, api: ApiKey, version: int, **body: Any) -> Any:
        self.write(write_request(api, version, 1, "bench", body))
        return read_response(api, version, await self.read())[1]

    def close(self) -> None:
        self._writer.close()


class ShareMember:
    """Of one partition."""

    def __init__(self, line: Line, topic_id: bytes, group: str, member_id: str = "member-0") -> None:
        self.line = line
        self._frames = ShareFetchFrames(topic_id, group, member_id)
        self._epoch = 0
        self._held: Ranges = []

    async def fetch(self, *, records_max: int, wait_ms: int) -> Ranges:
        """Accepts what the last fetch brought, and takes more."""
        self.line.write(self._frames.request(self._epoch, self._held, records_max=records_max, wait_ms=wait_ms))
        self._held = self._frames.acquired(await self.line.read())
        self._epoch += 1
        return self._held


async def topic_id_of(line: Line, topic: str) -> bytes:
    answer = await line.ask(ApiKey.METADATA, 12, topics=[{"topic_id": None, "name": topic}], allow_auto_topic_creation=False)
    found: UUID = answer.topics[0].topic_id
    return found.bytes


async def begin_at_the_start(line: Line, group: str) -> None:
    configs = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
    wish = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": configs}
    answer = await line.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[wish], validate_only=False)
    if answer.responses[0].error_code:
        raise UnexpectedReply(f"group {group}: error {answer.responses[0].error_code} {answer.responses[0].error_message}")


async def make_group(line: Line, group: str, topic: str) -> None:
    """One that reads the topic."""
    await line.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group])
    wish = {"group_id": group, "member_id": "the-first", "subscribed_topic_names": [topic]}
    for epoch in (0, -1):
        answer = await line.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **wish, member_epoch=epoch)
        if answer.error_code:
            raise UnexpectedReply(f"group {group}: error {answer.error_code} {answer.error_message}")


@dataclass(frozen=True, slots=True)
class ShareLoad:
    """Records that lie ready, taken and accepted by so many members; `batch` of them with each fetch."""

    batch: int
    connections: int

    async def run(self, host: str, port: int, timing: Timing) -> dict[str, float]:
        topic = f"share-{time.monotonic_ns()}"
        admin = Admin(host, port)
        admin.create(topic, 1, {})
        lines = [await Line.open(host, port) for _ in range(self.connections)]
        await begin_at_the_start(lines[0], topic)
        await make_group(lines[0], topic, topic)
        topic_id = await topic_id_of(lines[0], topic)
        members = [ShareMember(line, topic_id, topic, f"member-{number}") for number, line in enumerate(lines)]
        await self._fill(lines[0], topic, timing)
        for member in members:  # Else one that comes too early finds nothing, and is measured as one that does nothing.
            await member.fetch(records_max=self.batch, wait_ms=FIRST_WAIT_MS)
        watch = Stopwatch(timing.broker_pids)
        until = watch.began_s + timing.seconds

        async def work(member: ShareMember) -> int:
            count = 0
            while taken := await member.fetch(records_max=self.batch, wait_ms=0):
                count += sum(last + 1 - first for first, last in taken)
                if time.perf_counter() >= until:
                    break
            return count

        count, lap = sum(await asyncio.gather(*map(work, members))), watch.lap()
        if not count:
            raise UnexpectedReply("nothing was acquired")
        admin.delete(topic)
        admin.close()
        for line in lines:
            line.close()
        seconds = lap.seconds
        return {"life_per_s": count / seconds, "life_generator_cpu": lap.own_cpu_s / seconds, "life_broker_cpu": lap.broker_cpu_s / seconds}

    async def _fill(self, line: Line, topic: str, timing: Timing) -> None:
        """More than can be taken in the time."""
        batch = frames.one_batch(RECORDS_IN_A_BATCH, time.time_ns() // 1_000_000)
        parts = round(500 * timing.seconds) * (20 if self.batch > RECORDS_IN_A_BATCH else 10)
        frame = frames.produce(topic, [0], batch, correlation_id=0)
        in_flight = 0
        for _ in range(parts):
            line.write(frame)
            in_flight += 1
            if in_flight == 50:
                frames.check_produced(memoryview(await line.read()), topic, 1, 0)
                in_flight -= 1
        for _ in range(in_flight):
            frames.check_produced(memoryview(await line.read()), topic, 1, 0)
