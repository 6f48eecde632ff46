"""The reckoning: when all trouble is over, everything is read back, and the node's answers are held against what is there.

Reads are made by hand, whole and checked. Of a damaged partition whatever can be had is read, offset by offset. Beside the diary's finals:
topics are those that were promised, nothing was forgotten unasked or too early, times find the records that a plain search finds, and a
reader of `peers/` sees the same.
"""

from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import ErrorCode, MalformedInput
from penstock.peers.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from penstock.peers.positions import FROM_EARLIEST
from penstock.peers.reader import Reader
from penstock.simulator.diary import Outcome, Read
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import TopicPlan
from penstock.simulator.workloads.asking import list_offset
from penstock.simulator.workloads.fetching import fetch_body, rows_of, take_records
from penstock.simulator.workloads.line import Redial, whole_batches
from penstock.simulator.workloads.notebook import TopicLife
from penstock.simulator.workloads.stage import Stage
from penstock.vocabulary import TopicId, TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, decode_records

READER = "reckoning"
_FETCH_VERSION = 12
_STEPS_MAX = 5_000
_READ_AGAIN = 5
_SINGLE_READS = 8
_PATIENCE_SECONDS = 60.0  # A node that reads in tiny pieces takes its time.
_UNKNOWN_END = 1 << 30  # Of a damaged log.
_UNPACKED_BYTES_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class Target:
    """One partition: as the node knows it, and as the diary does."""

    life: TopicLife
    asked: TopicPartition
    where: TopicPartition
    is_damaged: bool

    @property
    def plan(self) -> TopicPlan:
        return self.life.plan


class Reckoning:
    def __init__(self, stage: Stage, env: SimEnv) -> None:
        self._stage = stage
        self._notebook = stage.notebook
        self._diary = stage.notebook.diary
        self._env = env
        self._line = Redial(stage.notebook, READER, timeout_seconds=_PATIENCE_SECONDS)

    async def run(self) -> None:
        answer = await self._line.ask(ApiKey.METADATA, 10, {"topics": None})
        there = {TopicId(topic.topic_id.bytes): topic.name for topic in answer.topics}
        self._check_topics(there)
        for topic_id, name in there.items():
            life = self._notebook.lives.get(topic_id)
            if life is not None:
                for index in range(life.plan.partitions):
                    where = TopicPartition(life.label, index)
                    await self._read(Target(life, TopicPartition(name, index), where, where in self._diary.damaged))
        self._line.close()
        if self._stage.topics:
            await self._compare_with_a_reader()

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

    # Reading.

    async def _read(self, target: Target) -> None:
        """Reads the partition to its end; again from its new start, if retention has moved that meanwhile."""
        start = await self._start(target)
        for _ in range(_READ_AGAIN):
            await self._read_from(target, start)
            before, start = start, await self._start(target)
            if start == before or target.is_damaged:
                break
        if start and not target.plan.forgets and not target.is_damaged:
            self._notebook.find("nothing is forgotten unasked", target.where, f"at the end the log begins at {start}")

    async def _start(self, target: Target) -> int:
        return max(0, int((await list_offset(self._line, target.asked, EARLIEST)).offset))

    async def _read_from(self, target: Target, start: int) -> None:
        began = self._env.now()
        end = int((await list_offset(self._line, target.asked, LATEST)).offset)
        if end >= 0:
            self._diary.watermark(target.where, end, began=began, ended=self._env.now())
        first_move = len(self._diary.moves)
        self._diary.seek(target.where, READER, start)
        timestamps = await self._read_records(target, start, end if end >= 0 else _UNKNOWN_END)
        seen = [move for move in self._diary.moves[first_move:] if isinstance(move, Read)]
        records = [(move.offset, move.value) for move in seen]
        self._diary.final(target.where, start_offset=start, end_offset=end, records=records, now=self._env.now())
        if not (target.is_damaged or target.plan.forgets or target.plan.is_compacted):  # What goes on changing is not read twice alike.
            await self._read_here_and_there(target, records)
            if not target.plan.is_transactional:  # Markers have times too.
                await self._check_times(target, timestamps)

    async def _read_here_and_there(self, target: Target, records: list[tuple[int, bytes]]) -> None:
        """Single records, last ones first: a reader that goes on where it stopped needs no index, and these do."""
        for offset, value in sorted(self._env.rng.sample(records, min(len(records), _SINGLE_READS)), reverse=True):
            body = fetch_body(target.asked.topic, target.life.topic_id, {target.asked.partition: offset}, bytes_max=1)
            (row,) = rows_of(await self._line.ask(ApiKey.FETCH, _FETCH_VERSION, body))
            found = [record for record in _whole_records(row.records or b"") if record.offset == offset]
            if not found or found[0].value != value:
                story = f"at the end offset {offset} alone cannot be read as it was: {ErrorCode(int(row.error_code)).name}"
                self._notebook.find("what is whole is served", target.where, story)

    async def _read_records(self, target: Target, offset: int, end: int) -> list[tuple[int, int]]:
        """Reads to the end; returns the timestamp of each offset."""
        timestamps: list[tuple[int, int]] = []
        for _ in range(_STEPS_MAX):
            if offset >= end:
                break
            body = fetch_body(target.asked.topic, target.life.topic_id, {target.asked.partition: offset})
            (row,) = rows_of(await self._line.ask(ApiKey.FETCH, _FETCH_VERSION, body))
            if row.error_code == ErrorCode.NONE and row.records:
                following = take_records(
                    self._notebook, target.where, target.plan, READER, row.records, offset=offset, now=self._env.now()
                )
                if following == offset:
                    break
                timestamps += [(record.offset, record.timestamp_ms) for record in _whole_records(row.records) if record.offset >= offset]
                offset = following
            elif self._ends_at(target, offset, ErrorCode(int(row.error_code))):
                break
            else:
                offset += 1
        return timestamps

    def _ends_at(self, target: Target, offset: int, code: ErrorCode) -> bool:
        """No record came. Whether reading ends there: it goes on behind what is damaged."""
        if target.is_damaged:
            return code is ErrorCode.KAFKA_STORAGE_ERROR  # The node does not know how the log goes on.
        if not (code is ErrorCode.OFFSET_OUT_OF_RANGE and target.plan.forgets):
            self._notebook.find("what is whole is served", target.where, f"at the end a fetch at {offset} got {code.name} and no record")
        return True

    # Times.

    async def _check_times(self, target: Target, timestamps: list[tuple[int, int]]) -> None:
        """A time finds the first record that is not older; the highest is the first that is as new as any."""
        if not timestamps:
            return
        highest = max(stamp for _, stamp in timestamps)
        await self._check_time(target, MAX_TIMESTAMP, _first_from(timestamps, highest))
        for _ in range(2):
            wish = self._env.rng.choice(timestamps)[1] + self._env.rng.choice((-1, 0, 1))
            await self._check_time(target, wish, _first_from(timestamps, wish))

    async def _check_time(self, target: Target, wish: int, due: tuple[int, int]) -> None:
        row = await list_offset(self._line, target.asked, wish)
        found = (int(row.offset), int(row.timestamp))
        if row.error_code != ErrorCode.NONE or found != due:
            story = f"time {wish} should find (offset, time) {due}, but finds {found} with {ErrorCode(int(row.error_code)).name}"
            self._notebook.find("times find their records", target.where, story)

    # Another pair of eyes.

    async def _compare_with_a_reader(self) -> None:
        topic = self._env.rng.choice(list(self._stage.topics.values()))
        partitions = [where for where in self._stage.partitions(topic.name) if where not in self._diary.damaged]
        if topic.forgets or topic.is_compacted or not partitions:
            return
        found: dict[TopicPartition, list[tuple[int, bytes]]] = {where: [] for where in partitions}
        async with self._stage.client(self._env, READER) as client, Reader(client, dict.fromkeys(partitions, FROM_EARLIEST)) as reader:
            async for record in reader:
                found[TopicPartition(record.topic, record.partition)].append((record.offset, record.value or b""))
        for where, records in found.items():
            final = self._diary.finals.get(where)
            if final is not None and records != final.records:
                self._notebook.find("all readers see the same", where, f"one read {len(final.records)} records, another {len(records)}")


def _whole_records(batches: bytes) -> list[Record]:
    with suppress(MalformedInput):  # That is found already, by whoever read it first.
        return [record for _, batch in whole_batches(batches) for record in decode_records(batch, bytes_max=_UNPACKED_BYTES_MAX)]
    return []


def _first_from(timestamps: list[tuple[int, int]], wish: int) -> tuple[int, int]:
    return next(((offset, stamp) for offset, stamp in timestamps if stamp >= wish), (-1, -1))
