"""What compaction does to transactions: aborted records go and take no others' place, and markers stay while somebody may need them."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from log.bench import FIRST_MS, headers_in, records_in, run
from partition.held import Held
from tiers import pick

from penstock.errors import DiskFailed
from penstock.log.compacted_log import Account
from penstock.log.config import LogConfig
from penstock.log.decided import Decided
from penstock.partition.aborted import AbortedIndex
from penstock.partition.joining import join
from penstock.partition.partition import Partition
from penstock.simulator.defects import breaks
from penstock.simulator.disk import PowerCut, SimDisk
from penstock.wire.batches import BatchHeader, Record
from penstock.wire.compression import Codec
from penstock.wire.markers import decode_marker

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=200, is_compacted=True, delete_retention_ms=1_000)
VALUE = b"v" * 50


async def led(disk: SimDisk | None = None, config: LogConfig = CONFIG) -> Held:
    held = Held(disk, config)
    await held.open()
    held.lead()
    return held


async def compact(held: Held, *, keys_bytes: int = 1 << 16) -> Account | None:
    """One round, as a node does it."""
    partition = held.partition
    await held.flush()
    dirt = partition.log.dirt(held.env.wall, partition.last_stable_offset)
    if dirt is None:
        return None
    if not partition.log.covers(dirt):
        await held.checkpoint()
    producers = partition.producers
    account = await partition.log.compact(
        dirt, last_offsets=producers.last_offsets(), aborted=producers.aborted.spans(), keys_bytes_max=keys_bytes
    )
    await partition.log.remove_replaced()
    return account


def fill(held: Held, count: int = 12, *, name: bytes = b"filler") -> None:
    """So much that what was written before stands in closed segments."""
    for number in range(count):
        held.put(-1, -1, (b"%s-%d" % (name, number), VALUE), is_transactional=False, epoch=-1)


async def one_more(held: Held) -> None:
    """Another round, a while after the one before."""
    fill(held)
    await compact(held)
    for _ in range(2):
        held.partition.forget_old(0)


async def stored(held: Held) -> list[tuple[BatchHeader, list[Record]]]:
    content, at, found = await held.content(), 0, []
    for header in headers_in(content):
        found.append((header, records_in(content[at : at + header.size])))
        at += header.size
    return found


async def values(held: Held, key: bytes) -> list[bytes | None]:
    return [record.value for header, records in await stored(held) if not header.is_control for record in records if record.key == key]


async def markers(held: Held) -> list[int]:
    return [header.base_offset for header, records in await stored(held) if header.is_control and records]


@pytest.mark.parametrize("codec", Codec)
def test_the_value_of_an_aborted_transaction_takes_no_others_place_and_goes(codec: Codec) -> None:
    async def story() -> None:
        held = await led()
        held.put(1, 0, (b"a", b"holds"), (b"c", b"old"), is_transactional=False)
        held.put(7, 0, (b"a", b"aborted"), (b"b", b"aborted"), codec=codec)
        held.put(8, 0, (b"c", b"committed"), (b"d", b"committed"), codec=codec)
        held.end(7, is_commit=False)
        held.end(8)
        fill(held)
        account = await compact(held)
        assert account is not None and account.is_complete and account.records_removed >= 3
        assert await values(held, b"a") == [b"holds"]
        assert await values(held, b"b") == []
        assert await values(held, b"c") == [b"committed"]
        assert await values(held, b"d") == [b"committed"]
        committed = [header for header, records in await stored(held) if any(record.key == b"c" for record in records)]
        assert [(header.is_transactional, header.codec, header.producer_id) for header in committed] == [(True, codec, 8)]
        held.put(8, 2, (b"c", b"newer"), codec=codec)
        held.end(8)
        fill(held)
        await compact(held)
        assert await values(held, b"c") == [b"newer"] and await values(held, b"d") == [b"committed"]
        changed = [header for header, records in await stored(held) if any(record.key == b"d" for record in records)]
        assert [(header.is_transactional, header.codec, header.record_count) for header in changed] == [(True, codec, 1)]

    run(story())


def test_compaction_waits_for_the_first_transaction_that_is_open() -> None:
    async def story() -> None:
        held = await led()
        for number in range(20):
            held.put(1, number, (b"a", b"%d" % number + VALUE), is_transactional=False)
        held.put(7, 0, (b"a", b"open"))
        first_open = held.partition.log.end_offset - 1
        for number in range(20, 50):
            held.put(1, number, (b"a", b"%d" % number + VALUE), is_transactional=False)
        account = await compact(held)
        assert account is not None
        assert 0 < held.partition.log.clean_end <= first_open == held.partition.last_stable_offset
        assert b"open" in await values(held, b"a")
        held.end(7, is_commit=False)
        fill(held)
        await compact(held)
        left = await values(held, b"a")
        assert left == [b"49" + VALUE]

    run(story())


def test_a_marker_stays_until_nothing_of_its_transaction_is_left_and_then_as_long_as_tombstones_do() -> None:
    async def story() -> None:
        held = await led()
        held.put(7, 0, (b"a", b"1"))
        committed = held.end(7)
        held.put(7, 1, (b"b", b"aborted"))
        aborted = held.end(7, is_commit=False)
        held.put(7, 2, (b"c", b"so that the ones before are not its last"), is_transactional=False)
        assert committed is not None and aborted is not None
        both = [committed.base_offset, aborted.base_offset]
        await one_more(held)
        assert await markers(held) == both, "one has records, the other had some in this round"
        await one_more(held)
        assert await markers(held) == both, "what nobody needs any more stays for delete.retention.ms"
        horizons = {header.base_offset: header.delete_horizon_ms for header, records in await stored(held) if header.is_control}
        assert horizons == {both[0]: None, both[1]: held.env.wall + CONFIG.delete_retention_ms}
        held.env.wall += CONFIG.delete_retention_ms
        await one_more(held)
        assert await markers(held) == both[:1], "the committed one still has a record"
        held.put(1, 0, (b"a", b"2"), is_transactional=False)
        for _ in range(3):
            await one_more(held)
            held.env.wall += CONFIG.delete_retention_ms
        await one_more(held)
        assert await markers(held) == [] and await values(held, b"a") == [b"2"]

    run(story())


def test_a_marker_stays_as_long_as_readers_are_told_of_its_transaction() -> None:
    """They pass over its producer until they come to it: without it they would pass over what the producer committed next."""

    async def story() -> None:
        held = await led()
        held.put(7, 0, (b"a", b"aborted"))
        held.end(7, is_commit=False)
        for number in range(1, 4):
            held.put(7, number, (b"a", b"committed %d" % number))
            held.end(7)
            fill(held)
            await compact(held)
            held.env.wall += 2 * CONFIG.delete_retention_ms
            assert held.partition.aborted(0, 1 << 60) == [(7, 0)]
            assert (await seen_by_a_reader(held))[b"a"][1] == b"committed %d" % number
        for _ in range(3):
            await one_more(held)
            held.env.wall += 2 * CONFIG.delete_retention_ms
        assert 1 not in await markers(held) and held.partition.aborted(0, 1 << 60) == []
        assert (await seen_by_a_reader(held))[b"a"][1] == b"committed 3"

    run(story())


def test_a_marker_with_a_horizon_says_what_it_said() -> None:
    async def story() -> None:
        held = await led()
        held.put(7, 0, (b"b", b"aborted"))
        held.end(7, is_commit=False, number=5, coordinator_epoch=3)
        await one_more(held)
        held.put(7, 1, (b"c", b""), is_transactional=False)
        for _ in range(2):
            await one_more(held)
        content, at = await held.content(), 0
        for header in headers_in(content):
            if header.is_control:
                assert header.delete_horizon_ms is not None
                assert header.max_timestamp == FIRST_MS
                assert decode_marker(content[at : at + header.size]) == (False, 3, 5)
                return
            at += header.size
        raise AssertionError("the marker is gone")

    run(story())


def test_the_last_batch_of_a_producer_stays_empty_and_so_its_sequence_is_known_from_the_log_alone() -> None:
    async def story() -> None:
        held = await led()
        held.put(7, 0, (b"a", b"aborted"), (b"b", b"aborted"), codec=Codec.GZIP)
        held.end(7, is_commit=False)
        held.end(9, epoch=4, is_commit=False)  # Of whom nothing is here but a marker.
        for _ in range(4):
            await one_more(held)
            held.env.wall += CONFIG.delete_retention_ms
        kept = [(header.producer_id, header.record_count, header.is_control) for header, _ in await stored(held) if header.producer_id >= 0]
        assert kept == [(7, 0, False), (7, 1, True), (9, 0, True)]
        await held.partition.remember_producers(held.env.wall)
        producers = held.partition.producers
        assert (producers.described(7).last_sequence, producers.described(7).open_since) == (1, -1)
        assert producers.described(9).epoch == 4
        held.put(7, 2, (b"a", b"next"))

    run(story())


def test_a_follower_of_a_compacted_log_knows_what_its_leader_knows() -> None:
    async def story() -> None:
        held, replica = await led(), Held(SimDisk(2), CONFIG)
        for number in range(6):
            held.put(7, number, (b"a", b"%d" % number + VALUE))
            held.end(7, is_commit=number % 2 == 0)
            fill(held, 4)
        for _ in range(3):
            await one_more(held)
            held.env.wall += CONFIG.delete_retention_ms
        held.put(8, 0, (b"b", b"open"))
        await held.flush()
        await replica.open()
        joined = join(await held.content(), end_offset=0, last_epoch=-1, epoch_max=9)
        for content, header in joined.batches:
            replica.partition.replicate(content, header, held.env.wall)
        replica.partition.learn_watermark(held.partition.high_watermark)
        assert replica.partition.log.end_offset == held.partition.log.end_offset
        assert list(replica.partition.producers.transactions.by_producer) == [8]
        assert replica.partition.last_stable_offset == held.partition.last_stable_offset == held.partition.log.end_offset - 1
        assert replica.partition.producers.described(7) == held.partition.producers.described(7)
        assert await seen_by_a_reader(replica) == await seen_by_a_reader(held)

    run(story())


# Against a model


@dataclass
class Model:
    """What holds, by key, and what was ever written."""

    holds: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    pending: dict[int, list[tuple[bytes, int, bytes]]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)

    def write(self, producer: int, key: bytes, offset: int, value: bytes, *, is_transactional: bool) -> None:
        if is_transactional:
            self.pending.setdefault(producer, []).append((key, offset, value))
        else:
            self._take(key, offset, value)

    def end(self, producer: int, *, is_commit: bool) -> None:
        for key, offset, value in self.pending.pop(producer, []):
            if is_commit:
                self._take(key, offset, value)
            else:
                self.aborted.add(offset)

    def _take(self, key: bytes, offset: int, value: bytes) -> None:
        if key not in self.holds or self.holds[key][0] < offset:
            self.holds[key] = (offset, value)


async def seen_by_a_reader(held: Held) -> dict[bytes, tuple[int, bytes]]:
    """Who reads committed records, as clients do it: by markers and the list of what was aborted."""
    partition = held.partition
    content = await held.content(reads_committed=True)
    to_come = sorted(partition.aborted(partition.log.start_offset, partition.last_stable_offset), key=lambda row: row[1])
    passed_over: set[int] = set()
    found: dict[bytes, tuple[int, bytes]] = {}
    at = 0
    for header in headers_in(content):
        batch, at = content[at : at + header.size], at + header.size
        while to_come and to_come[0][1] <= header.last_offset:
            passed_over.add(to_come.pop(0)[0])
        if header.is_control:
            passed_over.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in passed_over):
            for record in records_in(batch):
                assert record.key is not None and record.value is not None
                found[record.key] = (record.offset, record.value)
    return found


def walk(seed: int) -> None:
    async def story() -> None:
        rng, model = Random(seed), Model()
        held = await led(SimDisk(seed), replace(CONFIG, segment_bytes=rng.choice((300, 700, 2_000))))
        sequences: dict[int, int] = {}
        for step in range(rng.choice((60, 200))):
            producer = rng.choice((1, 2, 7, 8, 9))
            match rng.choice("wwwwwweecr" if producer >= 7 else "wwwwcf"):
                case "w":
                    key, value = b"k%d" % rng.randrange(6), b"%d" % step
                    is_transactional = producer >= 7
                    appended = held.put(
                        producer, sequences.get(producer, 0), (key, value), is_transactional=is_transactional, codec=rng.choice((0, 0, 1))
                    )
                    sequences[producer] = sequences.get(producer, 0) + 1
                    model.write(producer, key, appended.base_offset, value, is_transactional=is_transactional)
                case "e":
                    is_commit = rng.random() < 0.5
                    held.end(producer, is_commit=is_commit)
                    model.end(producer, is_commit=is_commit)
                case "f":
                    for number in range(4):
                        key, offset = b"f%d" % number, held.partition.log.end_offset
                        held.put(-1, -1, (key, b"f"), is_transactional=False, epoch=-1)
                        model.write(-1, key, offset, b"f", is_transactional=False)
                case "c":
                    await compact(held, keys_bytes=rng.choice((1 << 16, 24 * 8)))
                    held.env.wall += rng.choice((0, CONFIG.delete_retention_ms))
                    held.partition.forget_old(0)
                case "r":
                    await held.flush()
                    if rng.random() < 0.5:
                        await held.checkpoint()
                    await held.open()
                    held.lead()
                    await held.flush()
        for producer in list(model.pending):
            held.end(producer, is_commit=False)
            model.end(producer, is_commit=False)
        await held.flush()
        assert await seen_by_a_reader(held) == model.holds
        await compact(held)
        assert await seen_by_a_reader(held) == model.holds
        left = {record.offset for header, records in await stored(held) if not header.is_control for record in records}
        clean = {offset for offset in model.aborted if offset < held.partition.log.clean_end}
        assert not left & clean, "of what was aborted nothing is left in the clean part"

    run(story())


@pytest.mark.invariant("transactions.compaction-keeps-committed")
@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(pick(test=15, slow=40)))
def test_what_a_reader_sees_is_what_was_committed_whatever_compaction_and_restarts_do(seed: int) -> None:
    walk(seed)


DEFECTS: dict[str, tuple[type, str, object]] = breaks("transactions.compaction-keeps-committed")({
    "takes aborted ones for committed": (Decided, "is_aborted", lambda self, header: False),
    "takes committed ones for aborted": (Decided, "is_aborted", lambda self, header: header.producer_id == 8),
    "drops markers too early": (Decided, "ends_something", lambda self, header: False),
    "forgets what was aborted": (AbortedIndex, "forget_below", lambda self, offset: AbortedIndex.__init__(self)),
    "sees past open transactions": (Partition, "last_stable_offset", property(lambda self: self.high_watermark)),
})


@pytest.mark.invariant("transactions.compaction-keeps-committed")
@pytest.mark.parametrize("defect", DEFECTS)
def test_the_walk_finds_what_was_planted(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, planted = DEFECTS[defect]
    monkeypatch.setattr(where, name, planted)
    for seed in range(40):
        try:
            walk(seed)
        except AssertionError:
            return
    raise RuntimeError(f"nobody noticed a log that {defect}")


@pytest.mark.invariant("transactions.compaction-keeps-committed")
def test_a_power_cut_in_the_middle_of_a_round_loses_nothing_that_was_committed() -> None:
    async def life(disk: SimDisk) -> Held:
        held = await led(disk)
        for number in range(12):
            held.put(7, number, (b"k%d" % (number % 3), b"%d" % number + VALUE))
            held.end(7, is_commit=number % 3 != 1)
        fill(held)
        await held.flush()
        await held.checkpoint()
        return held

    async def story() -> None:
        held = await life(SimDisk())
        before = await seen_by_a_reader(held)
        for moment in range(0, 60, 3):
            disk = SimDisk(moment)
            held = await life(disk)
            disk.crash_at(moment)
            with suppress(PowerCut, DiskFailed):
                await compact(held)
            disk.power_cut()
            await held.open()
            held.lead()
            await held.flush()
            assert await seen_by_a_reader(held) == before, f"after a cut at operation {moment}"
            await compact(held)
            assert await seen_by_a_reader(held) == before

    run(story())
