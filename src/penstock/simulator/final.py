"""The reckoning: when all trouble is over, everything is read back, and the node's answers are held against what is there.

Reads are made by hand, whole and checked. Of a damaged partition whatever can be had is read, offset by offset. Beside the diary's finals:
topics are those that were promised, nothing was forgotten unasked, times find the records that a plain search finds, a reader of `peers/`
sees the same, and no files are left of topics that are gone.
"""


from typing import Any

from penstock.errors import ErrorCode
from penstock.peers.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from penstock.peers.positions import FROM_EARLIEST
from penstock.peers.reader import Reader
from penstock.simulator.diary import Outcome, Read
from penstock.simulator.env import SimEnv
from penstock.simulator.workloads.asking import list_offset
from penstock.simulator.workloads.fetching import fetch_body, rows_of, take_records
from penstock.simulator.workloads.line import Line, LineLost, whole_batches
from penstock.simulator.workloads.notebook import Notebook, TopicLife
from penstock.simulator.workloads.stage import Stage
from penstock.vocabulary import TopicId, TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import decode_records

READER = "reckoning"
_FETCH_VERSION = 12
_STEPS_MAX = 5_000
_TRIES = 5
_UNKNOWN_END = 1 << 30  # Of a damaged log.
_UNPACKED_BYTES_MAX = 1 << 24


class Redial:
    """A line that is opened again: of a reply that turns out damaged while it is sent, a node can only break off the connection."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self._line: Line | None = None

    async def ask(self, api: ApiKey, version: int, body: dict[str, Any]) -> Any:
        for tries_left in reversed(range(_TRIES)):
            try:
                if self._line is None or not self._line.is_open:
                    self._line = await Line.open(self._notebook, READER)
                return await self._line.ask(api, version, body)
            except LineLost:
                if not tries_left:
                    raise
        raise AssertionError

    def close(self) -> None:
        if self._line is not None:
            self._line.close()


class Reckoning:
    def __init__(self, stage: Stage, env: SimEnv) -> None:
        self._stage = stage
        self._notebook = stage.notebook
        self._diary = stage.notebook.diary
        self._env = env

    async def run(self) -> None:
        line = Redial(self._notebook)
        answer = await line.ask(ApiKey.METADATA, 10, {"topics": None})
        there = {TopicId(topic.topic_id.bytes): topic.name for topic in answer.topics}
        self._check_topics(there)
        for topic_id, name in there.items():
            life = self._notebook.lives.get(topic_id)
            if life is not None:
                for index in range(life.plan.partitions):
                    await self._read(line, life, TopicPartition(name, index))
        line.close()
        async with self._stage.client(self._env, READER) as client:
            topic = self._env.rng.choice(list(self._stage.topics.values()))
            partitions = self._stage.partitions(topic.name) if not topic.forgets else []
            starts = dict.fromkeys(where for where in partitions if where not in self._diary.damaged)
            if starts:
                async with Reader(client, dict.fromkeys(starts, FROM_EARLIEST)) as reader:
                    await self._compare(reader, list(starts))

    def _check_topics(self, there: dict[TopicId, str]) -> None:
        for topic_id, life in self._notebook.lives.items():
            where = TopicPartition(life.label, 0)
            if topic_id not in there and life.deletion is None:
                self._notebook.find("a topic that was made is there", where, "at the end it is not, and nobody deleted it")
            if topic_id in there and life.deletion is Outcome.ACKNOWLEDGED:
                self._notebook.find("a deleted topic is gone", where, "at the end it is back")
        for topic_id, name in there.items():
            if topic_id not in self._notebook.lives and name in self._stage.topics:
                self._notebook.find("a topic keeps its id", TopicPartition(name, 0), f"at the end it has the id {topic_id.hex()}")

    async def _read(self, line: Redial, life: TopicLife, asked: TopicPartition) -> None:
        """Reads the partition to its end; again from its new start, if retention has moved that meanwhile."""
        where = TopicPartition(life.label, asked.partition)
        start = await _start(line, asked)
        for _ in range(_TRIES):
            await self._read_from(line, life, asked, where, start)
            before, start = start, await _start(line, asked)
            if start == before or where in self._diary.damaged:
                break
        if start and not life.plan.forgets and where not in self._diary.damaged:
            self._notebook.find("nothing is forgotten unasked", where, f"at the end the log begins at {start}")

    async def _read_from(self, line: Redial, life: TopicLife, asked: TopicPartition, where: TopicPartition, start: int) -> None:
        began = self._env.now()
        end = int((await list_offset(line, asked, LATEST)).offset)
        if end >= 0:
            self._diary.watermark(where, end, began=began, ended=self._env.now())
        first_move = len(self._diary.moves)
        self._diary.seek(where, READER, start)
        timestamps = await self._read_records(line, life, asked, where, start, end if end >= 0 else _UNKNOWN_END)
        seen = [move for move in self._diary.moves[first_move:] if isinstance(move, Read)]
        self._diary.final(where, start_offset=start, end_offset=end, records=[(move.offset, move.value) for move in seen])
        if where not in self._diary.damaged and not life.plan.forgets:
            await self._check_times(line, asked, where, timestamps)

    async def _read_records(
        self, line: Redial, life: TopicLife, asked: TopicPartition, where: TopicPartition, offset: int, end: int
    ) -> list[tuple[int, int]]:
        """Reads to the end; returns the timestamp of each offset."""
        timestamps: list[tuple[int, int]] = []
        for _ in range(_STEPS_MAX):
            if offset >= end:
                break
            body = fetch_body(asked.topic, life.topic_id, {asked.partition: offset})
            (row,) = rows_of(await line.ask(ApiKey.FETCH, _FETCH_VERSION, body))
            if row.error_code == ErrorCode.NONE and row.records:
                following = take_records(self._notebook, where, life.plan, READER, row.records, offset=offset, now=self._env.now())
                timestamps += _timestamps(row.records, offset)
            else:
                following = offset + 1
                has_moved = row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and life.plan.forgets
                if has_moved or (row.error_code == ErrorCode.KAFKA_STORAGE_ERROR and where in self._diary.damaged):
                    break
                if where not in self._diary.damaged:
                    code = ErrorCode(int(row.error_code)).name
                    self._notebook.find("what is whole is served", where, f"at the end a fetch at {offset} of {end} got {code} and no record")
                    break
            if following <= offset:
                break
            offset = following
        return timestamps

    async def _check_times(self, line: Redial, asked: TopicPartition, where: TopicPartition, timestamps: list[tuple[int, int]]) -> None:
        """A time finds the first record that is not older; the highest is the first that is as new as any."""
        if not timestamps:
            return
        highest = max(stamp for _, stamp in timestamps)
        await self._check_time(line, asked, where, MAX_TIMESTAMP, _first_from(timestamps, highest))
        for _ in range(2):
            wish = self._env.rng.choice(timestamps)[1] + self._env.rng.choice((-1, 0, 1))
            await self._check_time(line, asked, where, wish, _first_from(timestamps, wish))

    async def _check_time(self, line: Redial, asked: TopicPartition, where: TopicPartition, wish: int, due: tuple[int, int]) -> None:
        row = await list_offset(line, asked, wish)
        found = (int(row.offset), int(row.timestamp))
        if row.error_code != ErrorCode.NONE or found != due:
            story = f"time {wish} should find (offset, time) {due}, but finds {found} with {ErrorCode(int(row.error_code)).name}"
            self._notebook.find("times find their records", where, story)

    async def _compare(self, reader: Reader, partitions: list[TopicPartition]) -> None:
        found: dict[TopicPartition, list[tuple[int, bytes]]] = {where: [] for where in partitions}
        async for record in reader:
            found[TopicPartition(record.topic, record.partition)].append((record.offset, record.value or b""))
        for where, records in found.items():
            if where in self._diary.finals and records != self._diary.finals[where].records:
                self._notebook.find("all readers see the same", where, f"one read {len(self._diary.finals[where].records)}, another {len(records)}")


async def _start(line: Redial, asked: TopicPartition) -> int:
    return max(0, int((await list_offset(line, asked, EARLIEST)).offset))


def _timestamps(records: bytes, offset: int) -> list[tuple[int, int]]:
    return [
        (record.offset, record.timestamp_ms)
        for _, batch in whole_batches(records)
        for record in decode_records(batch, bytes_max=_UNPACKED_BYTES_MAX)
        if record.offset >= offset
    ]


def _first_from(timestamps: list[tuple[int, int]], wish: int) -> tuple[int, int]:
    return next(((offset, stamp) for offset, stamp in timestamps if stamp >= wish), (-1, -1))
