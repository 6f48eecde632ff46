"""Bytes of one replica's log that change on its disk, whichever batch they are in, while its node runs or before it starts again.

What a configuration is promised to bear is never passed. Bytes change only below the copy's known end, since above it a torn write cannot
be told from damage; of one copy of a partition at a time; and only while another member of the in-sync set has the same. Should that one
leave the set before the damage is mended, the world puts the bytes right again, and what has noticed the damage is started anew.

At the end every replica is read whole, as a consumer in its rack reads it: damage that was never met before is met then, and mended.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from penstock.broker.known_ends import KNOWN_ENDS_PATH, read_known_ends
from penstock.broker.partitions import topic_directory
from penstock.errors import ErrorCode
from penstock.peers.connection import Address
from penstock.simulator.clusters import budget
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.clusters.menu import KAFKA_PORT
from penstock.simulator.clusters.replicas import read_log
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.diary import FinalLog
from penstock.simulator.env import SimEnv
from penstock.simulator.faults import Field
from penstock.simulator.workloads.fetching import fetch_body, rows_of
from penstock.simulator.workloads.line import Line, LineLost, whole_batches
from penstock.simulator.workloads.notebook import Notebook
from penstock.simulator.workloads.values import identity_of
from penstock.vocabulary import TopicId, TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import HEADER_BYTES, MAGIC, crc_is_right, decode_records, read_header

MENDED = "damage is mended"
WHOLE = "at the end every copy is whole"

_LOOK_SECONDS = 0.02  # Shorter than any node is down.
_LAST, _AT_REST, _EVEN = 0.5, 0.5, 0.5
_AGAIN_SECONDS, _STRIKES_AGAIN = 0.3, 20  # Where nothing may rot yet.
_PARTITIONS_AT_REST, _AT_THE_END, _AT_THE_LEADER = 3, 0.8, 0.7
_EPOCH_AT, _EPOCH_END = 12, 16  # No checksum covers the leader epoch, here or at Kafka.
_CRC_FROM = 21  # What stands before it is checked otherwise: by the offsets around it, or by its size.
_FETCH_VERSION = 12
_READ_WITHIN_SECONDS = 60.0
_READER = "reader of every copy"
_UNPACKED_BYTES_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class Rot:
    """One byte of a file that is not what was written."""

    host: str
    where: TopicPartition
    topic_id: TopicId
    path: str
    position: int
    right: int  # The byte that was there.
    batch_at: int  # Where its batch begins in the file.


@dataclass(frozen=True, slots=True)
class Spot:
    """A file of a copy that may rot now, and where the batches lie in it that are known to be whole."""

    host: str
    where: TopicPartition
    topic_id: TopicId
    path: str
    spans: list[tuple[int, int]]


class RottenCopies:
    def __init__(self, cluster: Cluster, notebook: Notebook, field: Field, seed: int) -> None:
        self._cluster = cluster
        self._notebook = notebook
        self._field = field
        self._rng = Random(f"{seed}/cluster rot strikes")
        self._left: dict[tuple[TopicId, int], Rot] = {}  # Not yet mended.
        self._again = 0
        self.seen: dict[TopicPartition, None] = {}
        self.intervals: list[tuple[float, float]] = []

    def begin(self, seconds: float) -> None:
        """Strikes now and then in so many seconds."""
        mean = self._rng.choice((0.3, 0.6, 1.2))
        at = 0.5 + self._rng.expovariate(1 / mean)
        while at < seconds:
            self._field.strike_later(at, self._strike)
            at += self._rng.expovariate(1 / mean)

    def is_rotten(self, host: str, topic_id: TopicId, index: int) -> bool:
        """Whether the bytes of this copy are still changed."""
        rot = self._left.get((topic_id, index))
        return rot is not None and rot.host == host and not self._has_gone(rot)

    @property
    def is_over(self) -> bool:
        """Whether everything is mended that was changed."""
        self._forget_what_is_mended()
        return not self._left

    def _forget_what_is_mended(self) -> None:
        for key in [key for key, rot in self._left.items() if self._has_gone(rot)]:
            del self._left[key]

    # Striking.

    def _strike(self) -> None:
        cluster, rng = self._cluster, self._rng
        spots = self._all_spots()
        if not spots:
            if self._again < _STRIKES_AGAIN:
                self._again += 1
                self._field.strike_later(_AGAIN_SECONDS, self._strike)
            return
        where = rng.choice(spots).where
        spot = self._leaders_or_any(where, [spot for spot in spots if spot.where == where])
        if rng.random() < _AT_REST and cluster.world.is_running(spot.host):
            if rng.random() < _EVEN:
                cluster.world.kill(spot.host)
            else:
                cluster.world.power_cut(spot.host)
        self.change([spot])

    def choose(self) -> list[Spot]:
        """One copy of some partitions, to be changed a little later: most of them at their end, which the next start reads again."""
        by_copy: dict[tuple[TopicPartition, str], list[Spot]] = {}
        for spot in self._all_spots():
            by_copy.setdefault((spot.where, spot.host), []).append(spot)
        by_partition: dict[TopicPartition, list[Spot]] = {}
        for (where, _), spots in by_copy.items():
            last = max(spots, key=lambda spot: spot.path)
            chosen = replace(last, spans=last.spans[-1:]) if self._rng.random() < _AT_THE_END else self._rng.choice(spots)
            by_partition.setdefault(where, []).append(chosen)
        return [self._leaders_or_any(where, spots) for where, spots in list(by_partition.items())[-_PARTITIONS_AT_REST:]]

    def _leaders_or_any(self, where: TopicPartition, spots: list[Spot]) -> Spot:
        """Mostly the leader's: a follower fetches again what it has cut off, and hardly anybody is the wiser."""
        leader = self._cluster.leader(where.topic, where.partition)
        led = [spot for spot in spots if spot.host == leader]
        return self._rng.choice(led if led and self._rng.random() < _AT_THE_LEADER else spots)

    def change(self, spots: list[Spot]) -> None:
        for spot in spots:
            start, end = spot.spans[-1] if self._rng.random() < _LAST else self._rng.choice(spot.spans)
            disk, now = self._cluster.world.hosts[spot.host].disk, self._cluster.world.now()
            position = self._rng.choice([at for at in range(start, end) if not _EPOCH_AT <= at - start < _EPOCH_END])
            rot = Rot(spot.host, spot.where, spot.topic_id, spot.path, position, disk.flushed(spot.path)[position], start)
            disk.rot(spot.path, position)
            self._left[spot.topic_id, spot.where.partition] = rot
            self.seen[spot.where] = None
            self.intervals.append((now, now + 0.5))
            self._cluster.world.trace.note(now, 0, f"{spot.path} of {spot.host} rots")
            self._cluster.world.at(_LOOK_SECONDS, lambda rot=rot: self._guard(rot))  # type: ignore[misc]

    def _all_spots(self) -> list[Spot]:
        if self._cluster.held_down or not budget.is_made_good(self._cluster):
            return []
        self._forget_what_is_mended()
        spots = [spot for host in self._cluster.brokers for spot in self._spots(host)]
        return [spot for spot in spots if (spot.topic_id, spot.where.partition) not in self._left]

    def _spots(self, host: str) -> Iterator[Spot]:
        """Files of copies that may rot now, each with the batches that are known to be whole there."""
        cluster, disk = self._cluster, self._cluster.world.hosts[host].disk
        node_id, node = cluster.processes[host].plan.node_id, cluster.node(host)
        if node is None:
            return
        known_ends = read_known_ends(disk.durable(KNOWN_ENDS_PATH)) or {}
        for life in self._notebook.lives.values():
            plan = life.plan
            if plan.is_weak or plan.forgets or plan.is_compacted or plan.is_churned or plan.replication_factor < 2:
                continue
            for index in range(plan.partitions):
                state = cluster.state(plan.name, index)
                partition = cluster.partition(host, plan.name, index)
                if state is None or partition is None or partition.is_damaged or node.replica_fetching.is_cutting(partition):
                    continue
                if not budget.has_another(state.in_sync, node_id):  # type: ignore[arg-type]
                    continue
                known_end = known_ends.get((life.topic_id, index), 0)
                folder = topic_directory(life.topic_id, index) + "/"
                for path in disk.files():
                    if path.startswith(folder) and path.endswith(".log"):
                        spans = [(start, end) for start, end, offset in _batches(disk.flushed(path)) if offset <= known_end]
                        if spans:
                            yield Spot(host, TopicPartition(plan.name, index), life.topic_id, path, spans)

    # Never more than is promised.

    def _guard(self, rot: Rot) -> None:
        cluster = self._cluster
        if self._has_gone(rot):
            return
        state, node_id = cluster.state(rot.where.topic, rot.where.partition), cluster.processes[rot.host].plan.node_id
        if state is not None and not budget.has_another(state.in_sync, node_id):  # type: ignore[arg-type]
            cluster.world.hosts[rot.host].disk.put_right(rot.path, rot.position, rot.right)
            partition = cluster.partition(rot.host, rot.where.topic, rot.where.partition)
            if cluster.world.is_running(rot.host) and (partition is None or partition.is_damaged):
                cluster.world.kill(rot.host)
            return
        cluster.world.at(_LOOK_SECONDS, lambda: self._guard(rot))

    def _has_gone(self, rot: Rot) -> bool:
        disk = self._cluster.world.hosts[rot.host].disk
        if rot.path not in disk.files():
            return True
        content = disk.flushed(rot.path)
        if len(content) <= rot.position or content[rot.position] == rot.right:
            return True
        return rot.position - rot.batch_at >= _CRC_FROM and any(
            start <= rot.position < end for start, end, _ in _batches(content)
        )  # fmt: skip

    # At the end.

    def what_is_not_whole(self, finals: dict[TopicPartition, FinalLog]) -> Iterator[tuple[str, TopicPartition, str]]:
        """Of the copies whose bytes had changed, and of the others of those partitions."""
        for where in self.seen:
            state, final = self._cluster.state(where.topic, where.partition), finals.get(where)
            for node_id in state.replicas if state is not None and final is not None else ():
                host = self._cluster.host_of(node_id)
                partition = self._cluster.partition(host, where.topic, where.partition)
                if partition is None or final is None:
                    yield WHOLE, where, f"{host} has none"
                    continue
                due = 0
                for batch in read_log(self._cluster.world.hosts[host].disk, partition.topic_id, where.partition):
                    if batch.base_offset != due:
                        break
                    due = batch.end_offset
                if due < final.end_offset:
                    yield WHOLE, where, f"{host} is whole up to {due} of {final.end_offset}"


class ReadingEveryCopy:
    """Reads the partitions whose bytes had changed from each of their replicas."""

    def __init__(self, stage: ClusterStage, cluster: Cluster, rotten: RottenCopies, env: SimEnv) -> None:
        self._stage = stage
        self._cluster = cluster
        self._rotten = rotten
        self._env = env

    async def run(self) -> None:
        for where in self._rotten.seen:
            final, state = self._stage.notebook.diary.finals.get(where), self._cluster.state(where.topic, where.partition)
            for node_id in state.replicas if state is not None and final is not None else ():
                assert final is not None
                host = self._cluster.host_of(node_id)
                found = await self._read(host, where, final.end_offset)
                if found is not None and found != final.records:
                    wrong = next((one for one in final.records if one not in found), final.records[0])
                    self._stage.notebook.find(MENDED, where, f"{host} serves {len(found)} records of {len(final.records)}; not {wrong[0]}")

    async def _read(self, host: str, where: TopicPartition, end_offset: int) -> list[tuple[int, bytes]] | None:
        found, offset, until, told = list[tuple[int, bytes]](), 0, self._env.now() + _READ_WITHIN_SECONDS, "no answer"
        while offset < end_offset:
            if self._env.now() > until:
                self._stage.notebook.find(MENDED, where, f"at the end {host} does not serve {offset} of {end_offset}: {told}")
                return None
            try:
                row = await self._fetch(host, where, offset)
            except LineLost as lost:
                told = str(lost)
                await asyncio.sleep(0.1)
                continue
            code = ErrorCode(int(row.error_code))
            before = offset
            for header, batch in whole_batches(row.records or b"") if code is ErrorCode.NONE else ():
                if not header.is_control:
                    records = decode_records(batch, bytes_max=_UNPACKED_BYTES_MAX)
                    found += [(record.offset, identity_of(record)) for record in records if offset <= record.offset < end_offset]
                offset = max(offset, header.end_offset)
            if offset == before:
                told = code.name
                await asyncio.sleep(0.2)
        return found

    async def _fetch(self, host: str, where: TopicPartition, offset: int) -> Any:
        line = await Line.open(self._stage.notebook, _READER, address=Address(host, KAFKA_PORT))
        try:
            body = fetch_body(where.topic, self._stage.topic_ids[where.topic], {where.partition: offset})
            (row,) = rows_of(
                await line.ask(ApiKey.FETCH, _FETCH_VERSION, body | {"rack_id": self._cluster.processes[host].settings.rack or "any"})
            )
            return row
        finally:
            line.close()


def _batches(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Where each batch begins and ends in the file, up to the first that is not whole, and the offset after it."""
    at = 0
    while at + HEADER_BYTES <= len(content):
        header = read_header(content, at)
        if (
            header.magic != MAGIC
            or header.size < HEADER_BYTES
            or at + header.size > len(content)
            or not crc_is_right(content, at, header.size)
        ):
            return
        yield at, at + header.size, header.end_offset
        at += header.size
