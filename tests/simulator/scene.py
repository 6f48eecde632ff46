"""A node in a virtual world that a test drives step by step: start it, speak to it, take its power, look at its disk.

Everything happens in the test's own order; only time is simulated. A request that the node does not live to answer raises `LineLost`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from penstock.broker.node import Node
from penstock.errors import ErrorCode
from penstock.peers.offsets import EARLIEST, LATEST
from penstock.settings import NodeSettings
from penstock.simulator.disk import PowerCut, SimDisk
from penstock.simulator.env import SimEnv
from penstock.simulator.loop import Stuck
from penstock.simulator.node_process import NodeProcess, Reports
from penstock.simulator.platter import Loss
from penstock.simulator.workloads.asking import list_offset
from penstock.simulator.workloads.fetching import fetch_body, rows_of
from penstock.simulator.workloads.line import Line, LineLost, whole_batches
from penstock.simulator.workloads.notebook import Notebook
from penstock.simulator.workloads.stage import NODE
from penstock.simulator.world import World
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, decode_records, encode_batch

T = TypeVar("T")
CLIENT = "client"
SECONDS_MAX = 60.0
NO_ID = bytes(16)


class Refused(Exception):
    """The node's answer was an error code."""

    def __init__(self, code: int) -> None:
        self.code = ErrorCode(int(code))
        super().__init__(self.code.name)


class Scene:
    def __init__(self, seed: int = 1, **settings: Any) -> None:
        self.world = World(seed)
        self.notebook = Notebook()
        self.process = NodeProcess(NodeSettings(**settings), Random(seed))
        self.reports = Reports()
        self._client_line: Line | None = None
        self.reports.__enter__()
        self.world.start(CLIENT, _wait_for_ever)

    def __enter__(self) -> "Scene":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.world.close()
        self.reports.__exit__(None, None, None)
        if exc[0] is None:
            assert self.world.complaints() == []
            assert self.process.broken_promises == []
            assert self.notebook.findings == []

    # The node's life.

    @property
    def disk(self) -> SimDisk:
        return self.world.host(NODE).disk

    @property
    def node(self) -> Node:
        assert self.process.node is not None
        return self.process.node

    def start(self) -> None:
        """Starts the node and waits until it serves; again, if its operator is not content with how it came up."""
        while True:
            self.begin_to_start()
            self.world.run_until(lambda: self.is_dead() or self.process.serves, within=SECONDS_MAX)
            if not self.is_dead():
                return
            if self.world.hosts[NODE].endings[-1] == "power cut":
                raise PowerCut("while it started")
            assert self.process.endings[-1].startswith("restarted"), self.process.endings[-1]

    def begin_to_start(self) -> None:
        self._client_line = None
        self.process.node = None
        self.world.start(NODE, self.process.run)

    def stop(self) -> None:
        self.world.terminate(NODE)
        self.world.run_until(lambda: self.world.has_ended(NODE), within=SECONDS_MAX)

    def kill(self) -> None:
        self.world.kill(NODE)

    def power_cut(self, loss: Loss = Loss.ALL) -> None:
        self.world.power_cut(NODE, loss)

    def is_dead(self) -> bool:
        return self.world.has_ended(NODE)

    def run_for(self, seconds: float) -> None:
        self.world.run_for(seconds)

    # Speaking to it.

    def ask(self, api: ApiKey, version: int, body: dict[str, Any]) -> Any:
        return self._do(lambda line: line.ask(api, version, body))

    def create(self, topic: str = "orders", partitions: int = 1, **config: object) -> bytes:
        """Makes the topic; its id."""
        settings = [{"name": name.replace("_", "."), "value": str(value)} for name, value in config.items()]
        wish = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        row = self.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [wish], "timeout_ms": 5_000}).topics[0]
        _check(row.error_code)
        return row.topic_id.bytes  # type: ignore[no-any-return]

    def delete(self, topic_id: bytes) -> None:
        row = self.ask(ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": None, "topic_id": topic_id}], "timeout_ms": 5_000}).responses[0]
        _check(row.error_code)

    def topics(self) -> list[str]:
        return [topic.name for topic in self.ask(ApiKey.METADATA, 10, {"topics": None}).topics]

    def producer_id(self) -> int:
        answer = self.ask(ApiKey.INIT_PRODUCER_ID, 1, {"transactional_id": None, "transaction_timeout_ms": 1_000})
        return int(answer.producer_id)

    def produce(self, *values: bytes, topic: str | bytes = "orders", partition: int = 0, producer_id: int = -1, sequence: int = -1) -> int:
        """Appends one batch with acks all; its offset. A topic is named by its name or its id."""
        records = [Record(value=value, timestamp_ms=self.world.hosts[NODE].wall.ms()) for value in values]
        batch = encode_batch(records, producer_id=producer_id, producer_epoch=min(0, producer_id), base_sequence=sequence)
        return self.produce_batch(bytes(batch), topic=topic, partition=partition)

    def produce_batch(self, batch: bytes, *, topic: str | bytes = "orders", partition: int = 0) -> int:
        named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
        body = {"acks": -1, "timeout_ms": 1_500, "topic_data": [{**named, "partition_data": [{"index": partition, "records": batch}]}]}
        answer = self.ask(ApiKey.PRODUCE, 9 if isinstance(topic, str) else 13, body)
        row = answer.responses[0].partition_responses[0]
        _check(row.error_code)
        return int(row.base_offset)

    def fetch(self, offset: int = 0, *, topic: str | bytes = "orders", partition: int = 0) -> bytes:
        """What the node sends for a fetch at this offset."""
        name, topic_id = (topic, NO_ID) if isinstance(topic, str) else ("", topic)
        (row,) = rows_of(self.ask(ApiKey.FETCH, 12 if isinstance(topic, str) else 13, fetch_body(name, topic_id, {partition: offset})))
        _check(row.error_code)
        return bytes(row.records or b"")

    def read(self, *, topic: str = "orders", partition: int = 0) -> list[bytes]:
        """Every value from the start of the partition to its end; offsets must be dense."""
        offset, end = self.offset(EARLIEST, topic=topic, partition=partition), self.offset(LATEST, topic=topic, partition=partition)
        values: list[bytes] = []
        while offset < end:
            records = values_at(self.fetch(offset, topic=topic, partition=partition), offset)
            assert [at for at, _ in records] == list(range(offset, offset + len(records))), "offsets are dense"
            assert records
            values += [value for _, value in records]
            offset += len(records)
        return values

    def offset(self, timestamp: int, *, topic: str = "orders", partition: int = 0) -> int:
        row = self._do(lambda line: list_offset(line, TopicPartition(topic, partition), timestamp))
        _check(row.error_code)
        return int(row.offset)

    def path(self, topic_id: bytes, base_offset: int = 0, *, partition: int = 0) -> str:
        return f"topics/{topic_id.hex()}/{partition}/{base_offset:020}.log"

    def _do(self, work: Callable[[Line], Coroutine[Any, Any, T]]) -> T:
        async def on_a_line(env: SimEnv) -> T:
            if self._client_line is None or not self._client_line.is_open:
                self._client_line = await Line.open(self.notebook, CLIENT)
            return await work(self._client_line)

        return self.world.call(CLIENT, on_a_line)


def values_at(batches: bytes, offset: int) -> list[tuple[int, bytes]]:
    """(offset, value) of every record from the offset on; batches must be whole and right."""
    records = [record for _, batch in whole_batches(batches) for record in decode_records(batch, bytes_max=1 << 20)]
    return [(record.offset, record.value or b"") for record in records if record.offset >= offset]


def at_every_change(
    script: Callable[[Scene], object], before: Callable[[Scene], object] = lambda scene: None, **settings: Any
) -> Iterator[Scene]:
    """Plays the script once for every change that it makes to the disk, with the power gone in place of that change; then starts again."""
    with Scene(**settings) as scene:
        before(scene)
        first = scene.disk.operations
        script(scene)
        changes = scene.disk.operations - first
    assert changes > 0
    for change in range(1, changes + 1):
        with Scene(seed=change, **settings) as scene:
            before(scene)
            scene.disk.crash_at(change)
            with suppress(LineLost, PowerCut, Stuck):
                script(scene)
            if not scene.is_dead():
                scene.power_cut()
            scene.start()
            yield scene


async def _wait_for_ever(env: SimEnv) -> None:
    await asyncio.sleep(1e9)


def _check(code: int) -> None:
    if code != ErrorCode.NONE:
        raise Refused(code)
