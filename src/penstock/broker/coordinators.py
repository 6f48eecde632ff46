"""All coordinators of one kind: one for each partition of their internal topic, found by the hash of a key, as Kafka finds them.

The topic is made when somebody first needs it. The node that leads a partition has its coordinator: loaded as soon as the node leads, a few
at a time, while everything else is served already, and forgotten when another node leads. A snapshot is due when the log has grown by as
much as the last one was large: loading then reads at most about twice what the state itself takes, and writing snapshots costs at most as
much as writing the log. It is also due when compaction has been past the last one.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.broker import coordinator_snapshots
from penstock.broker.coordinator import Coordinator, Kind, SnapshottedState
from penstock.broker.coordinator_loading import load
from penstock.broker.coordinator_snapshots import Mark, NotKept
from penstock.broker.patience import Patience
from penstock.broker.together import together
from penstock.cluster.commands import CreateTopics, NewTopic
from penstock.cluster.records import UnknownRecord
from penstock.errors import DiskFailed, ErrorCode, MalformedInput, Refusal
from penstock.log.faults import NewerFormat
from penstock.partition.partition import Partition
from penstock.settings import MIB

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

SNAPSHOT_EVERY_BYTES_MIN = 1 * MIB  # Of new log: loading that much takes a few hundredths of a second.
LOADED_AT_A_TIME = 4
LOADED_AGAIN_SECONDS = 1.0
SAVED_AT_A_TIME = 4
ROUND_SECONDS = 1.0
PREPARING_SECONDS = 1.0  # Clients ask again, and what they asked behind this must not wait for a controller that is away.

_HASHES_MAX = 10_000

S = TypeVar("S", bound=SnapshottedState[Any, Any])
C = TypeVar("C")
R = TypeVar("R")


class Saved(NamedTuple):
    """What the last snapshot of a coordinator stands for."""

    appended_bytes: int = 0  # That the log had taken in all.
    size: int = 0
    offset: int = 0


class Coordinators(Generic[S, C, R]):
    def __init__(self, node: "Node", kind: Kind[S, C, R], partition_count: int) -> None:
        self._node = node
        self._kind = kind
        self._partition_count = partition_count  # Of a topic that is still to be made.
        self._coordinators: dict[int, Coordinator[S, C, R]] = {}  # By partition: of those that this node leads.
        self._saved: dict[Partition, Saved] = {}
        # To be loaded, with the topics that there were when this became due: what is stored tells of no later ones.
        self._waiting: dict[Coordinator[S, C, R], frozenset[str]] = {}
        self._loading = 0
        self._turn = asyncio.Lock()  # Snapshots of one coordinator are never written twice at once.

    def __iter__(self) -> Iterator[Coordinator[S, C, R]]:
        return iter(list(self._coordinators.values()))

    @property
    def topic(self) -> str:
        return self._kind.topic

    def is_loading(self) -> bool:
        return any(coordinator.unavailable is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and coordinator.state is None for coordinator in self)

    def are_all_here(self) -> bool:
        """Whether every partition of the topic that this node was chosen to lead has its coordinator, loaded or not."""
        topic, me = self._node.image.topics.get(self.topic), self._node.settings.node_id
        return topic is None or all(state.leader != me or index in self._coordinators for index, state in enumerate(topic.partitions))

    # Finding

    def find(self, key: str) -> Coordinator[S, C, R]:
        """The coordinator of a key. Raises Refusal where there is none: then the client must look for it again, which makes the topic."""
        index = self.partition_of(key)
        coordinator = None if index is None else self._coordinators.get(index)
        if coordinator is None:
            raise Refusal(ErrorCode.NOT_COORDINATOR, f"no coordinator for {key!r} is on this node")
        return coordinator

    def partition_of(self, key: str) -> int | None:
        """Of the topic: whoever leads it coordinates. None while the topic is not there."""
        topic = self._node.image.topics.get(self.topic)
        return None if topic is None else partition_of(key, len(topic.partitions))

    async def prepare(self) -> None:
        """Makes the topic if it isn't there. Raises Refusal when it cannot be made, or another node takes its time over it."""
        if self.topic in self._node.image.topics:
            return
        try:
            async with asyncio.timeout(None if self._node.quorum.is_leading else PREPARING_SECONDS):
                (reply,) = await self._node.submit(CreateTopics((self.new_topic(),)))
        except TimeoutError:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the topic is being made, or there is no controller to make it") from None
        if not isinstance(reply, Refusal) or reply.code is ErrorCode.TOPIC_ALREADY_EXISTS:  # Somebody else was quicker.
            return
        if reply.code is ErrorCode.INVALID_REPLICATION_FACTOR:  # Too few nodes are up: clients come again.
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, reply.reason)
        raise reply

    def new_topic(self) -> NewTopic:
        return NewTopic(self.topic, self._node.new_topic_id(), self._partition_count, overrides=dict(self._kind.overrides))

    # The topic's life

    def partition_led(self, partition: Partition) -> None:
        """This node leads the partition, perhaps again: load what it holds."""
        if partition.topic != self.topic:
            return
        self.partition_left(partition)
        coordinator = self._coordinators[partition.index] = Coordinator(self._node, self._kind, partition, self._load_later)
        self._load_later(coordinator)

    def partition_left(self, partition: Partition) -> None:
        """It leads it no longer, or the partition is gone: what was remembered is somebody else's to tell."""
        coordinator = self._coordinators.get(partition.index)
        if coordinator is not None and coordinator.partition is partition:
            del self._coordinators[partition.index]
            self._saved.pop(partition, None)
            self._waiting.pop(coordinator, None)
            coordinator.close()

    async def stop(self) -> None:
        """Leaves a snapshot of everything, so that the next start is quick. Nobody is served any more."""
        async with self._turn:
            news = [coordinator for coordinator in self if self._grown_bytes(coordinator) or self._is_overtaken(coordinator)]
            await together(partial(self._save, coordinator) for coordinator in news)
        for coordinator in self:
            coordinator.close()

    # Loading

    def _load_later(self, coordinator: Coordinator[S, C, R]) -> None:
        partition = coordinator.partition
        if not partition.log.end_offset and partition.log.failure is None:
            coordinator.begin(self._kind.new_state())  # A new topic is ready when its reply leaves.
            return
        self._waiting[coordinator] = frozenset(self._node.image.topics)
        if self._loading < LOADED_AT_A_TIME:
            self._loading += 1
            self._node.spawn(self._load_waiting())

    async def _load_waiting(self) -> None:
        try:
            while self._waiting:
                coordinator, topics = next(iter(self._waiting.items()))
                del self._waiting[coordinator]
                await self._load(coordinator, topics)
        finally:
            self._loading -= 1

    async def _load(self, coordinator: Coordinator[S, C, R], topics: frozenset[str]) -> None:
        partition, began = coordinator.partition, self._node.env.now()
        name = f"{partition.topic}-{partition.index}"
        try:
            if partition.log.failure is not None:
                raise DiskFailed(partition.log.failure)
            state, loaded = await load(self._node.env, partition.log, self._kind.new_state, self._kind.replay)
        except (DiskFailed, NewerFormat, UnknownRecord, MalformedInput) as failure:
            if not partition.is_deleted:
                self._node.report(f"the coordinator of {name} cannot be loaded: {failure}")
            coordinator.close()
            if isinstance(failure, DiskFailed) and partition.log.failure is None:
                self._node.spawn(self._load_again(coordinator))
            return
        except Exception:
            log.exception("the coordinator of %s could not be loaded, and is tried again", name)
            coordinator.close()
            self._node.spawn(self._load_again(coordinator))
            return
        if partition.is_deleted or partition.log.failure is not None or not self._is_here(coordinator):
            coordinator.close()
            return
        if loaded.disbelief is not None:
            self._node.report(f"the snapshot of {name} is not believed, its log was read instead: {loaded.disbelief}")
        self._saved[partition] = Saved(partition.log.appended_bytes - loaded.log_bytes, loaded.snapshot_bytes, loaded.snapshot_offset)
        coordinator.begin(state)
        self.loaded(coordinator, topics)
        seconds, read_bytes = self._node.env.now() - began, loaded.snapshot_bytes + loaded.log_bytes
        log.debug("loaded the coordinator of %s: %d bytes in %.2f s", name, read_bytes, seconds)

    def loaded(self, coordinator: Coordinator[S, C, R], topics: frozenset[str]) -> None:
        """For what a crash kept from being done; `topics` are those that what was loaded can be about."""

    def _is_here(self, coordinator: Coordinator[S, C, R]) -> bool:
        return self._coordinators.get(coordinator.partition.index) is coordinator

    async def flush(self) -> None:
        """Waits until what the coordinators know now is durable, or has failed to be."""
        behind = [coordinator.partition for coordinator in self if _is_behind(coordinator.partition)]
        if behind:
            await self._node.flusher.flush(behind)

    async def _load_again(self, coordinator: Coordinator[S, C, R]) -> None:
        """A read that failed may succeed later: nothing was lost by it."""
        await asyncio.sleep(LOADED_AGAIN_SECONDS)
        if self._is_here(coordinator) and coordinator.state is None:
            coordinator.unavailable = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            self._load_later(coordinator)

    # Snapshots

    async def save_grown(self) -> None:
        async with self._turn:
            grown = [coordinator for coordinator in self if self._wants_snapshot(coordinator)]
            await together((partial(self._save, coordinator) for coordinator in grown), SAVED_AT_A_TIME)

    def _wants_snapshot(self, coordinator: Coordinator[S, C, R]) -> bool:
        last = self._saved.get(coordinator.partition, Saved())
        return self._is_overtaken(coordinator) or self._grown_bytes(coordinator) >= max(SNAPSHOT_EVERY_BYTES_MIN, last.size)

    def _is_overtaken(self, coordinator: Coordinator[S, C, R]) -> bool:
        """Whether compaction has been past the last snapshot, so that nobody would believe it."""
        partition = coordinator.partition
        is_usable = coordinator.state is not None and partition.log.failure is None
        return is_usable and self._saved.get(partition, Saved()).offset < partition.log.gaps_below

    def _grown_bytes(self, coordinator: Coordinator[S, C, R]) -> int:
        """How much of the log the last snapshot does not cover."""
        partition = coordinator.partition
        if coordinator.state is None or partition.log.failure is not None:
            return 0
        return partition.log.appended_bytes - self._saved.get(partition, Saved()).appended_bytes

    async def _save(self, coordinator: Coordinator[S, C, R]) -> None:
        partition, state = coordinator.partition, coordinator.state
        if state is None or partition.is_deleted or coordinator.is_stuck:
            return
        mark, appended_bytes = Mark.now(partition.log), partition.log.appended_bytes

        async def commit() -> bool:
            await self._node.flusher.flush([partition])
            with suppress(Refusal):
                await coordinator.read(lambda _: None)
                return partition.log.failure is None and not partition.is_deleted and coordinator.state is state
            return False

        entries, patience = self._entries(state), Patience(self._node.env)
        try:
            size = await coordinator_snapshots.write(
                self._node.env.disk, partition.log, mark, entries, pause=patience.pause_if_over, commit=commit
            )
        except NotKept:
            return  # Another node leads, or the log takes its time: a later round tries again.
        except (DiskFailed, FileNotFoundError) as failure:
            if not partition.is_deleted:
                self._node.report(f"no snapshot of {partition.topic}-{partition.index}: {failure}")
            return
        self._saved[partition] = Saved(appended_bytes, size, mark.offset)

    def _entries(self, state: S) -> Iterator[tuple[bytes, bytes]]:
        for piece in state.snapshot_pieces():
            for record in piece:
                key, value = self._kind.encode(record)
                if value is not None:
                    yield key, value


async def look_after_snapshots(kinds: Sequence[Coordinators[Any, Any, Any]]) -> None:
    """Off the hot path: a round each second, a few coordinators at a time."""
    while True:
        await asyncio.sleep(ROUND_SECONDS)
        for coordinators in kinds:
            try:
                await coordinators.save_grown()
            except Exception:
                log.exception("a round of snapshots failed; the next one tries again")


def _is_behind(partition: Partition) -> bool:
    return partition.log.failure is None and partition.log.flushed_end < partition.log.end_offset


@lru_cache(maxsize=_HASHES_MAX)  # Every heartbeat asks for it.
def partition_of(key: str, partitions: int) -> int:
    """As Kafka has it: Java's hash of the string, so that tools which compute it themselves find the same partition."""
    value = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed) % partitions
