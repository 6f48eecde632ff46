"""A node in this process, and a client that sends what it is told, at the pace it is told.

`Serving` is one data directory and the lives of the node on it, with real loopback sockets, a real clock and real files. `VirtualServing`
is the same in virtual time, on simulated sockets and a simulated disk: it must run on the simulator's loop (loops.py). Both have doors
that a test may hold shut: flushes, cold reads, work that was offloaded. `Line` is one connection; replies are read by kio's schemas and
must come in order. `virtually` runs one scenario in virtual time, on a disk that may fail.
Not here: claims about what a node should answer.
"""

import asyncio
import os
import shutil
import socket
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PosixPath
from random import Random
from typing import Any, TypeVar

from waiting import A_MOMENT_S, PATIENCE_MS, PATIENCE_S, until_async

from penstock.broker.housekeeping import GATHERING_SECONDS_WHEN_CROWDED
from penstock.broker.node import Node
from penstock.broker.queues.calls import WAIT_SECONDS_MAX
from penstock.env import Env, File, SyncFailures
from penstock.errors import DiskFailed
from penstock.server.disk import RealDisk
from penstock.server.env import RealEnv
from penstock.settings import NodeSettings
from penstock.simulator.disk import SimDisk
from penstock.simulator.disk_faults import HONEST, DiskFaults
from penstock.simulator.env import SimEnv, WallClock
from penstock.simulator.loop import SimLoop
from penstock.simulator.network import SimSocket
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, decode_records, encode_batch, read_header
from penstock.wire.schemas import read_response, write_request

T = TypeVar("T")

NEWEST = {
    ApiKey.PRODUCE: 12, ApiKey.FETCH: 12, ApiKey.LIST_OFFSETS: 11, ApiKey.METADATA: 13, ApiKey.API_VERSIONS: 4,
    ApiKey.CREATE_TOPICS: 7, ApiKey.DELETE_TOPICS: 6, ApiKey.INIT_PRODUCER_ID: 5, ApiKey.DESCRIBE_CLUSTER: 2,
    ApiKey.DESCRIBE_CONFIGS: 4, ApiKey.ALTER_CONFIGS: 2, ApiKey.INCREMENTAL_ALTER_CONFIGS: 1, ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_RECORDS: 2, ApiKey.OFFSET_FOR_LEADER_EPOCH: 4, ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0, ApiKey.DESCRIBE_LOG_DIRS: 5,
    ApiKey.DESCRIBE_PRODUCERS: 0, ApiKey.LIST_PARTITION_REASSIGNMENTS: 0, ApiKey.LIST_CONFIG_RESOURCES: 1,
    ApiKey.FIND_COORDINATOR: 6, ApiKey.JOIN_GROUP: 9, ApiKey.SYNC_GROUP: 5, ApiKey.HEARTBEAT: 4, ApiKey.LEAVE_GROUP: 5,
    ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9, ApiKey.OFFSET_DELETE: 0, ApiKey.LIST_GROUPS: 5, ApiKey.DESCRIBE_GROUPS: 6,
    ApiKey.DELETE_GROUPS: 2, ApiKey.ELECT_LEADERS: 2, ApiKey.ALTER_PARTITION_REASSIGNMENTS: 1, ApiKey.UNREGISTER_BROKER: 0,
    ApiKey.DESCRIBE_QUORUM: 2, ApiKey.ADD_RAFT_VOTER: 1, ApiKey.REMOVE_RAFT_VOTER: 0, ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
}  # fmt: skip # Of Produce, Fetch and the offset APIs the last ones that name topics; the newer ones are asked for by number.
NO_ID = bytes(16)
YEARS_S = 100_000_000  # Between the time of the records that `batch` makes and the first instant of a `VirtualMachine`.


class Door:
    """Open, or held shut by the test. Whoever comes meanwhile waits."""

    def __init__(self) -> None:
        self._is_open = asyncio.Event()
        self._is_open.set()
        self.waiting = 0

    def hold(self) -> None:
        self._is_open.clear()

    def let_go(self) -> None:
        self._is_open.set()

    async def pass_through(self) -> None:
        self.waiting += 1
        try:
            await self._is_open.wait()
        finally:
            self.waiting -= 1

    async def until_waited_for(self) -> None:
        await until_async(lambda: self.waiting > 0)


class DoorDisk:
    """What the disks of both kinds of `Serving` have in common: doors, and a few lies."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.flushes, self.cold_reads = Door(), Door()
        self.is_cold = False  # Nothing is in memory.
        self.is_unreadable = False  # Neither can anything be read from the disk.
        self.free_bytes_shown: int | None = None

    async def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> SyncFailures:
        await self.flushes.pass_through()
        return await super().sync(files, directories)

    def sync_then(self, files: Sequence[File], directories: Sequence[str], ended: Callable[[SyncFailures | BaseException], None]) -> None:
        asyncio.ensure_future(self.sync(files, directories)).add_done_callback(lambda flushing: ended(flushing.result()))

    def read_now(self, file: File, position: int, size: int) -> bytes | None:
        return None if self.is_cold else super().read_now(file, position, size)

    async def read_later(self, file: File, position: int, size: int) -> bytes:
        await self.cold_reads.pass_through()
        if self.is_unreadable:
            raise DiskFailed("it cannot be read now")
        return await super().read_later(file, position, size)

    def free_bytes(self) -> int:
        return super().free_bytes() if self.free_bytes_shown is None else self.free_bytes_shown


class RealDoorDisk(DoorDisk, RealDisk):
    """Files of this machine."""


class SimDoorDisk(DoorDisk, SimDisk):
    """Files of the simulator; they outlive the node's lives, as those of a directory do."""


class DoorEnv:
    disk: Any

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.offloads = Door()
        self.wall_ahead_ms = 0
        self.wall_stopped_ms: int | None = None

    def wall_ms(self) -> int:
        return self.wall_ahead_ms + (super().wall_ms() if self.wall_stopped_ms is None else self.wall_stopped_ms)

    async def offload(self, function: Callable[..., T], *arguments: object) -> T:
        await self.offloads.pass_through()
        return await super().offload(function, *arguments)


class RealDoorEnv(DoorEnv, RealEnv):
    def __init__(self, directory: str) -> None:
        super().__init__(directory, disk_type=RealDoorDisk)


class SimDoorEnv(DoorEnv, SimEnv):
    def shut(self) -> None:
        """The process ends, as after a stop or a kill."""
        self.disk.kill()


class RealPath(PosixPath):
    """A file or a directory of the node's, for tests that look at it or damage it; with what SimPath says and pathlib does not."""

    def files(self) -> list["RealPath"]:
        """Every file below this directory, in the order of their names; one that is removed meanwhile may be among them."""
        return sorted(RealPath(directory, name) for directory, _, names in os.walk(self) for name in names)

    def write_bytes(self, content: bytes) -> int:  # type: ignore[override]
        self.parent.mkdir(parents=True, exist_ok=True)
        return super().write_bytes(content)

    def remove(self) -> None:
        """Removes the file, or the directory with everything below it; it need not be there."""
        if self.is_dir():
            shutil.rmtree(self)
        else:
            self.unlink(missing_ok=True)


class Serving:
    """One data directory and the node that serves it."""

    def __init__(self, directory: Path) -> None:
        self._directory = RealPath(directory)
        self.lives: list[DoorEnv] = []
        self.lines: list[Line] = []
        self._node: Node | None = None
        self.address = ("", 0)

    @property
    def directory(self) -> Any:
        return self._directory

    def new_env(self) -> DoorEnv:
        """The world of the next life."""
        return RealDoorEnv(str(self._directory))

    @property
    def env(self) -> DoorEnv:
        return self.lives[-1]

    @property
    def node(self) -> Node:
        assert self._node is not None, "the node was not opened"
        return self._node

    async def open(
        self, settings: NodeSettings | None = None, *, gathering_s_when_crowded: float = GATHERING_SECONDS_WHEN_CROWDED, **changes: Any
    ) -> Node:
        """Starts the node; `changes` are attributes of NodeSettings."""
        self.lives.append(self.new_env())
        if isinstance(self.env.disk, RealDisk):
            changes.setdefault("disk_reserve_bytes", 0)  # A thousand nodes of tests would take a thousand times the room.
        self._node = node = Node(self.env, settings or NodeSettings(**changes), gathering_s_when_crowded=gathering_s_when_crowded)
        await node.start()
        self.address = await node.listen_kafka("127.0.0.1", 0)
        return node

    async def line(self, **options: Any) -> "Line":
        line = await Line.open(self.address, **options)
        self.lines.append(line)
        return line

    async def stop(self) -> None:
        """Stops the node in order; the directory can be opened again."""
        node, self._node = self.node, None
        try:
            await node.stop()
        finally:
            self.env.shut()

    async def crash(self) -> None:
        """Drops the node as kill -9 would: what was written stays, nothing is flushed or noted any more."""
        node, self._node = self.node, None
        await drop(node)
        self.env.shut()

    async def close(self) -> None:
        for line in self.lines:
            line.close()
        if self._node is not None:
            for door in (self.env.disk.flushes, self.env.disk.cold_reads, self.env.offloads):
                door.let_go()
            await self.stop()
        elif self.lives:
            self.env.shut()


class SimPath:
    """A file or a directory of a simulated disk, for tests that look at it or damage it from outside, as they would by pathlib."""

    def __init__(self, disk: SimDisk, path: str = "") -> None:
        self._disk, self._path = disk, path

    def __truediv__(self, name: str) -> "SimPath":
        return SimPath(self._disk, f"{self._path}/{name}" if self._path else name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimPath) and other._path == self._path

    def __hash__(self) -> int:
        return hash(self._path)

    def __repr__(self) -> str:
        return self._path

    def exists(self) -> bool:
        return self._disk.exists(self._path)

    def files(self) -> list["SimPath"]:
        """Every file below this directory, in the order of their names."""
        return [SimPath(self._disk, path) for path in sorted(self._disk.files()) if path.startswith(f"{self._path}/" if self._path else "")]

    def glob(self, pattern: str) -> list["SimPath"]:
        """The files whose path below this directory the pattern matches; a star stands for slashes, too."""
        return [file for file in self.files() if fnmatchcase(file._path, f"{self._path}/{pattern}" if self._path else pattern)]

    def read_bytes(self) -> bytes:
        return self._disk.snapshot(self._path)

    def write_bytes(self, content: bytes) -> None:
        if not self.exists():
            self._disk.close(self._disk.open(self._path, create=True))
        self._disk.restore(self._path, content)

    def mkdir(self) -> None:
        self._disk.mkdir(self._path)

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok and not self.exists():
            raise FileNotFoundError(self._path)
        self._disk.unlink(self._path)

    def remove(self) -> None:
        """Removes the file, or the directory with everything below it; it need not be there."""
        self._disk.unlink(self._path)


NodePath = RealPath | SimPath


class VirtualMachine:
    """What outlives the processes of one node: its disk and its wall clock."""

    def __init__(self, seed: int | str) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop), "this runs in virtual time only"
        self.disk = SimDoorDisk(seed, sleep=asyncio.sleep)
        self._loop, self._wall, self._seed, self._lives = loop, WallClock(loop), seed, 0
        self._wall.jump(YEARS_S)

    def new_env(self) -> SimDoorEnv:
        """The world of the next life."""
        self._lives += 1
        return SimDoorEnv(self._loop, Random(f"{self._seed}/{self._lives}"), self.disk, self._wall)


class VirtualServing(Serving):
    """The same on the simulator's loop. Everything is in one process of the simulated world: the node, its clients and the test."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))
        self._machine: VirtualMachine | None = None

    @property
    def machine(self) -> VirtualMachine:
        if self._machine is None:
            self._machine = VirtualMachine("node")
        return self._machine

    @property
    def directory(self) -> SimPath:
        return SimPath(self.machine.disk)

    def new_env(self) -> DoorEnv:
        return self.machine.new_env()


def listening_socket(virtual_address: tuple[str, int]) -> Any:
    """Returns a bound socket: of that address on the simulator's loop, of a free port of loopback on a real one."""
    is_virtual = isinstance(asyncio.get_running_loop(), SimLoop)
    return SimSocket(virtual_address) if is_virtual else socket.create_server(("127.0.0.1", 0))


def virtual_timeout(seconds: float) -> asyncio.Timeout:
    """Bounds a wait in virtual time, where no machine is too slow for it. On a real clock only PATIENCE_S does."""
    return asyncio.timeout(seconds if isinstance(asyncio.get_running_loop(), SimLoop) else PATIENCE_S)


def patient_s(virtual_s: float) -> float:
    """Returns how long a node is asked to wait for what must come: on a real clock longer than a machine stalls, as long as a take may."""
    return virtual_s if isinstance(asyncio.get_running_loop(), SimLoop) else WAIT_SECONDS_MAX


def patient_ms(virtual_ms: int) -> int:
    return int(1000 * patient_s(virtual_ms / 1000))


async def drop(node: Node) -> None:
    """Ends everything that a node runs, without its knowing."""
    for server in node._servers:
        server.close()
    for connection in list(node.connections):
        connection.close()
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and "Client" not in task.get_name()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _LineProtocol(asyncio.StreamReaderProtocol):
    """Hangs up when the node does, as clients do: a node that stops waits a second for those that do not."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


class Line:
    """One connection. Requests may be pipelined; replies must come in their order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.patience_seconds = PATIENCE_S
        self.reader = reader
        self.writer = writer
        self._asked: deque[tuple[int, ApiKey, int]] = deque()
        self._next_correlation_id = 1

    @classmethod
    async def open(cls, address: tuple[str, int], *, receive_bytes: int | None = None) -> "Line":
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop) if receive_bytes is None else asyncio.StreamReader(receive_bytes, loop)
        transport, protocol = await loop.create_connection(lambda: _LineProtocol(reader, loop=loop), *address)
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    def send(self, api: ApiKey, version: int | None = None, /, *, is_answered: bool = True, **body: Any) -> int:
        correlation_id, self._next_correlation_id = self._next_correlation_id, self._next_correlation_id + 1
        version = NEWEST[api] if version is None else version
        self.writer.write(write_request(api, version, correlation_id, "test", body))
        if is_answered:
            self._asked.append((correlation_id, api, version))
        return correlation_id

    def send_frame(self, body: bytes) -> None:
        self.writer.write(struct.pack(">i", len(body)) + body)

    async def receive(self) -> Any:
        """The next reply, which must be the answer to the oldest question."""
        correlation_id, api, version = self._asked.popleft()
        frame = await self.receive_frame()
        assert frame is not None, f"the connection was closed instead of an answer to {api.name} {version}"
        answered_id, message = read_response(api, version, frame)
        assert answered_id == correlation_id, "replies are out of order"
        return message

    async def receive_frame(self) -> bytes | None:
        """The next reply without its length; None when the node has closed the connection."""
        try:
            async with asyncio.timeout(self.patience_seconds):
                (size,) = struct.unpack(">i", await self.reader.readexactly(4))
                return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionResetError, BrokenPipeError):
            return None

    async def ask(self, api: ApiKey, version: int | None = None, /, **body: Any) -> Any:
        self.send(api, version, **body)
        return await self.receive()

    async def is_silent(self) -> bool:
        """Whether nothing comes for a while; only for lines that have nothing buffered."""
        with suppress(TimeoutError):
            async with asyncio.timeout(A_MOMENT_S):
                await self.reader.readexactly(1)
            return False
        return True

    async def is_closed(self) -> bool:
        return await self.receive_frame() is None

    def close(self) -> None:
        self.writer.close()

    # What most tests ask.

    async def create(self, topic: str, partitions: int = 1, **configs: object) -> bytes:
        """Makes a topic, `flush_ms=5` meaning the setting `flush.ms`; its id."""
        wish = {
            "name": topic,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": name.replace("_", "."), "value": str(value)} for name, value in configs.items()],
        }
        answer = await self.ask(ApiKey.CREATE_TOPICS, topics=[wish], timeout_ms=PATIENCE_MS)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message
        return bytes(answer.topics[0].topic_id.bytes)

    async def delete(self, topic: str) -> None:
        answer = await self.ask(ApiKey.DELETE_TOPICS, topics=[{"name": topic}], timeout_ms=PATIENCE_MS)
        assert answer.responses[0].error_code == 0, answer.responses[0].error_message

    async def produce(self, topic: str, *values: bytes, partition: int = 0, **options: Any) -> Any:
        """Sends one batch and returns its row."""
        return await self.produce_batch(topic, batch(*values), partition=partition, **options)

    async def produce_batch(self, topic: str, records: bytes, *, partition: int = 0, version: int = 12, **options: Any) -> Any:
        answer = await self.ask(ApiKey.PRODUCE, version, **produce_body({topic: {partition: records}}, **options))
        return answer.responses[0].partition_responses[0]

    async def fetch(self, topic: str | bytes, offsets: Mapping[int, int] | int = 0, *, version: int | None = None, **options: Any) -> Any:
        version = (18 if isinstance(topic, bytes) else 12) if version is None else version
        return await self.ask(ApiKey.FETCH, version, **fetch_body({topic: offsets}, **options))

    async def init_producer(self) -> int:
        answer = await self.ask(ApiKey.INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=PATIENCE_MS)
        assert answer.error_code == 0
        return int(answer.producer_id)

    async def latest(self, topic: str, partition: int = 0) -> int:
        wish = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
        answer = await self.ask(ApiKey.LIST_OFFSETS, topics=[{"name": topic, "partitions": [wish]}], replica_id=-1)
        assert answer.topics[0].partitions[0].error_code == 0
        return int(answer.topics[0].partitions[0].offset)


def batch(*values: bytes, timestamp_ms: int = 1_700_000_000_000, **fields: Any) -> bytes:
    return bytes(encode_batch([Record(value=value, timestamp_ms=timestamp_ms) for value in values], **fields))


def sequenced(producer_id: int, sequence: int, *values: bytes, epoch: int = 0, **fields: Any) -> bytes:
    """A batch of an idempotent producer."""
    return batch(*(values or (b"value",)), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def produce_body(
    topics: Mapping[str | bytes, Mapping[int, bytes | None]],
    *,
    acks: int = -1,
    timeout_ms: int = PATIENCE_MS,
    transactional_id: str | None = None,
) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": [
            {**named(topic, "name"), "partition_data": [{"index": index, "records": records} for index, records in partitions.items()]}
            for topic, partitions in topics.items()
        ],
    }


def fetch_body(
    topics: Mapping[str | bytes, Mapping[int, int] | int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    forgotten: Mapping[str | bytes, Sequence[int]] | None = None,
    leader_epoch: int = -1,
    isolation_level: int = 0,
    replica_id: int = -1,
) -> dict[str, Any]:
    """`topics` gives the offset of each partition, or of partition 0 alone."""

    def wish(index: int, offset: int) -> dict[str, int]:
        return {
            "partition": index, "current_leader_epoch": leader_epoch, "fetch_offset": offset, "last_fetched_epoch": -1,
            "log_start_offset": -1, "partition_max_bytes": partition_max_bytes,
        }  # fmt: skip

    def wishes(offsets: Mapping[int, int] | int) -> list[dict[str, int]]:
        return [wish(index, offset) for index, offset in ({0: offsets} if isinstance(offsets, int) else offsets).items()]

    return {
        "replica_id": replica_id,
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{**named(topic, "topic"), "partitions": wishes(offsets)} for topic, offsets in topics.items()],
        "forgotten_topics_data": [{**named(topic, "topic"), "partitions": list(indexes)} for topic, indexes in (forgotten or {}).items()],
    }


def named(topic: str | bytes, field: str) -> dict[str, Any]:
    return {field: topic} if isinstance(topic, str) else {"topic_id": topic}


def rows_of(answer: Any) -> dict[tuple[Any, int], Any]:
    """The rows of a reply to Fetch by topic (its name, or its id from version 13) and partition."""
    found = {}
    for topic in answer.responses:
        name = topic.topic if hasattr(topic, "topic") else topic.topic_id.bytes
        found.update({(name, row.partition_index): row for row in topic.partitions})
    return found


def records_in(content: bytes | None) -> list[Record]:
    """Every record of whole batches."""
    records: list[Record] = []
    while content:
        size = read_header(content).size
        records += decode_records(content[:size], bytes_max=1 << 26)
        content = content[size:]
    return records


def virtually(
    scenario: Callable[[World, SimEnv], Coroutine[Any, Any, T]],
    *,
    seed: int = 1,
    disk_faults: DiskFaults = HONEST,
    capacity_bytes: int = 1 << 50,
    within: float = 100_000.0,
) -> T:
    """Runs the scenario inside a host of its own, in virtual time. What nobody caught fails the test."""
    answers: list[T] = []

    async def run(env: SimEnv) -> None:
        async with asyncio.timeout(within):
            answers.append(await scenario(world, env))

    with World(seed, disk_faults=disk_faults, capacity_bytes=capacity_bytes) as world:
        world.start("node", run)
        main = world.hosts["node"].main
        assert main is not None
        main.add_done_callback(lambda _: world.loop.stop())
        world.loop.run_forever()
        main.result()
        assert world.complaints() == []
        return answers[0]


async def started(env: Env, **changes: Any) -> tuple[Node, tuple[str, int]]:
    """A node on any world, and its address."""
    if isinstance(env.disk, RealDisk):
        changes.setdefault("disk_reserve_bytes", 0)
    node = Node(env, NodeSettings(**changes))
    await node.start()
    return node, await node.listen_kafka("127.0.0.1", 0)
