"""Starting, stopping, crashing: what a directory remembers, whose it is, and what ends a node."""

import asyncio
import random
from zlib import crc32

import pytest
from serving import (
    Line,
    NodePath,
    Serving,
    batch,
    fetch_body,
    produce_body,
    records_in,
    rows_of,
    sequenced,
    started,
    virtual_timeout,
    virtually,
)
from tiers import pick
from waiting import PATIENCE_MS, pause_at_random_async, until_async

from penstock.broker.identity import WrongDirectory
from penstock.broker.node import Node
from penstock.broker.quorum_entries import decode_decision
from penstock.cluster import records
from penstock.errors import DiskFailed, ErrorCode
from penstock.log.faults import NewerFormat
from penstock.settings import NodeSettings
from penstock.simulator.env import SimEnv
from penstock.simulator.platter import Loss
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey
from penstock.wire.compression import Codec

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("log.producer-state-survives", "node.one-process-per-directory")


async def read_all(line: Line, topic: str = "a", partition: int = 0) -> list[bytes | None]:
    row = rows_of(await line.fetch(topic, {partition: 0}))[topic, partition]
    return [record.value for record in records_in(row.records)]


def leader_epochs(node: Node) -> list[int]:
    return [partition.leader.epoch for partition in node.partitions]


# Whose directory it is


async def test_a_directory_belongs_to_one_node(serving: Serving) -> None:
    await serving.open(node_id=3)
    await serving.stop()
    with pytest.raises(WrongDirectory, match=r"belongs to node 3.*--node-id 3"):
        await serving.open(node_id=4)
    serving.env.shut()
    await serving.open(node_id=3)


async def test_logs_without_an_identity_are_nobodys(serving: Serving) -> None:
    await serving.open()
    await serving.stop()
    for name in ("identity", "identity.previous"):
        (serving.directory / "node" / name).unlink(missing_ok=True)
    with pytest.raises(WrongDirectory, match="no readable node/identity"):
        await serving.open()


async def test_the_cluster_keeps_its_id_and_the_node_counts_its_lives(serving: Serving) -> None:
    seen = set()
    for life in range(1, 4):
        node = await serving.open()
        seen.add(node.image.cluster_id)
        assert node.image.nodes[node.settings.node_id].node_epoch == life  # type: ignore[index]
        await (serving.stop() if life % 2 else serving.crash())
    assert len(seen) == 1


# Clean and unclean ends


@pytest.mark.parametrize("is_clean", [True, False])
async def test_what_was_acknowledged_is_there_after_a_restart(serving: Serving, is_clean: bool) -> None:
    node = await serving.open()
    line = await serving.line()
    topic_id = await line.create("a", 2, retention_ms=123_456_789)
    producer = await line.init_producer()
    for sequence in range(6):
        await line.produce_batch("a", sequenced(producer, sequence, b"%d" % sequence))
    await (serving.stop() if is_clean else serving.crash())
    assert (serving.directory / "node" / "clean-shutdown").exists() == is_clean
    node = await serving.open()
    line = await serving.line()
    assert not (serving.directory / "node" / "clean-shutdown").exists()
    assert leader_epochs(node) == ([0, 0] if is_clean else [1, 1]), "what was never flushed may be gone, so clients must be told"
    assert await read_all(line) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    (topic,) = (await line.ask(ApiKey.METADATA, topics=None)).topics
    assert (topic.topic_id.bytes, len(topic.partitions)) == (topic_id, 2)
    assert node.image.topics["a"].overrides == {"retention.ms": "123456789"}
    for sequence in range(1, 6):
        row = await line.produce_batch("a", sequenced(producer, sequence, b"again"))
        assert (row.error_code, row.base_offset) == (0, sequence), "producers are remembered"
    assert (await line.produce_batch("a", sequenced(producer, 7))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await line.produce_batch("a", sequenced(producer, 6))).base_offset == 6


@pytest.mark.invariant("node.clean-shutdown-marker")
async def test_an_epoch_is_raised_once_per_crash_and_never_goes_back(serving: Serving) -> None:
    expected = 0
    for is_clean in (True, False, True, False, False, True):
        node = await serving.open()
        line = await serving.line()
        if "a" not in node.image.topics:
            await line.create("a")
        assert leader_epochs(node) == [expected]
        await line.produce("a", b"x")
        await (serving.stop() if is_clean else serving.crash())
        expected += not is_clean
    node = await serving.open()
    partition = node.partitions.find("a", 0)
    assert partition is not None
    assert [epoch for epoch, _ in partition.log.epochs] == sorted({0, 1, 2, 3} & set(range(expected + 1)))


@pytest.mark.invariant("node.clean-shutdown-marker")
async def test_a_log_that_failed_is_not_called_clean(serving: Serving) -> None:
    """Its tail may be cut at the next start, and only a new epoch tells clients so."""
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    await line.produce("a", b"x")
    partition = node.partitions.find("a", 0)
    assert partition is not None
    partition.log._fail("as a disk would have it")
    await serving.stop()
    node = await serving.open()
    assert leader_epochs(node) == [1]
    assert await read_all(await serving.line()) == [b"x"]


@pytest.mark.invariant("node.producer-ids-unique")
async def test_producer_ids_never_repeat(serving: Serving) -> None:
    given: list[int] = []
    for life in range(4):
        await serving.open()
        line = await serving.line()
        given += [await line.init_producer() for _ in range(3)]
        await (serving.stop() if life % 2 else serving.crash())
    assert len(set(given)) == len(given) == 12
    assert given == sorted(given)


@pytest.mark.invariant("node.producer-ids-unique")
async def test_producer_ids_come_from_blocks_and_concurrent_askers_get_different_ones(serving: Serving) -> None:
    node = await serving.open()
    lines = [await serving.line() for _ in range(10)]
    for line in lines:
        for _ in range(110):
            line.send(ApiKey.INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=PATIENCE_MS)
    given = [(await line.receive()).producer_id for line in lines for _ in range(110)]
    assert sorted(given) == list(range(1_100))
    assert node.image.next_producer_id == 2_000


async def test_a_producer_that_names_an_old_id_gets_a_new_one(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    known = {"producer_id": 77, "producer_epoch": 3}
    old = await line.ask(ApiKey.INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=PATIENCE_MS, **known)
    assert (old.error_code, old.producer_epoch) == (0, 0), "an id of its own, as Kafka gives"
    assert old.producer_id != 77


# The metadata snapshot


async def lived_through(serving: Serving, count: int) -> None:
    line = await serving.line()
    for number in range(count):
        await line.create(f"t{number}", 2)
    for number in range(0, count, 3):
        await line.delete(f"t{number}")


@pytest.mark.parametrize("damage", ["none", "flipped", "cut", "gone"])
async def test_of_a_damaged_snapshot_the_one_before_takes_the_place(serving: Serving, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.setattr("penstock.broker.quorum_snapshots.SNAPSHOT_EVERY_BYTES", 400)
    node = await serving.open()
    await lived_through(serving, 10)
    await until_async(lambda: not node.image.graveyard)
    before = node.image
    await serving.crash()
    damage_file(serving.directory / "metadata" / "snapshot", damage)
    node = await serving.open()
    assert list(node.image.topics) == list(before.topics)
    assert {topic.topic_id for topic in node.image.topics.values()} == {topic.topic_id for topic in before.topics.values()}
    assert (node.image.partition_count, node.image.cluster_id) == (before.partition_count, before.cluster_id)
    assert leader_epochs(node) == [1] * 12
    line = await serving.line()
    assert (await line.produce("t1", b"x", partition=1)).error_code == 0
    await line.create("t0")


async def test_without_any_snapshot_of_what_the_log_no_longer_has_a_node_does_not_start(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.quorum_snapshots.SNAPSHOT_EVERY_BYTES", 400)
    await serving.open()
    await lived_through(serving, 10)
    await serving.crash()
    for damage, name in (("flipped", "snapshot"), ("gone", "snapshot.previous")):
        damage_file(serving.directory / "metadata" / name, damage)
    with pytest.raises(DiskFailed, match="no snapshot of what came before"):
        await serving.open()


def damage_file(path: NodePath, damage: str) -> None:
    content = bytearray(path.read_bytes())
    match damage:
        case "flipped":
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        case "cut":
            path.write_bytes(content[:100])
        case "gone":
            path.unlink()


async def test_what_the_snapshot_has_is_not_replayed(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.quorum_snapshots.SNAPSHOT_EVERY_BYTES", 400)
    node = await serving.open()
    await lived_through(serving, 20)
    line = await serving.line()
    await until_async(node.quorum._is_saved.is_set)  # A disk that was slow to take the last one left much to the next:
    for name in ("takes-one", "comes-behind-it"):
        await line.create(name)
    await until_async(node.quorum._is_saved.is_set)
    await serving.crash()
    read: list[bytes] = []

    def note(payload: bytes) -> list[records.Record]:
        read.append(payload)
        return decode_decision(payload)

    monkeypatch.setattr("penstock.broker.quorum_replaying.decode_decision", note)
    await serving.open()
    assert len(read) < 10, "of some fifty, and the new registration"


@pytest.mark.repeats
@pytest.mark.parametrize("moment", ["flushing", *range(pick(test=6, slow=40))])
async def test_a_stop_in_the_middle_of_a_change_leaves_no_half_of_it(
    serving: Serving, moment: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot that misses what the log has would let a name be given twice."""
    monkeypatch.setattr("penstock.broker.quorum_snapshots.SNAPSHOT_EVERY_BYTES", 10_000)  # A stop leaves the first one.
    node = await serving.open()
    line = await serving.line()
    await line.create("before")
    if moment == "flushing":
        serving.env.disk.flushes.hold()
    wish = {"num_partitions": 3, "replication_factor": 1}
    line.send(ApiKey.CREATE_TOPICS, topics=[{"name": "a", **wish}, {"name": "b", **wish}], timeout_ms=PATIENCE_MS)
    if isinstance(moment, int):
        await pause_at_random_async(random.Random(moment), 0.0, 0.001)
    else:
        await serving.env.disk.flushes.until_waited_for()
    stopping = asyncio.create_task(serving.stop())
    if not isinstance(moment, int):
        await until_async(lambda: node.health().reason == "stopping")
        serving.env.disk.flushes.let_go()
    await stopping
    with_snapshot = await topics_after_a_crash(serving)
    for cache in [*(serving.directory / "metadata").glob("checkpoint*"), *(serving.directory / "metadata").glob("snapshot*")]:
        cache.unlink()
    assert await topics_after_a_crash(serving) == with_snapshot


async def topics_after_a_crash(serving: Serving) -> dict[str, bytes]:
    node = await serving.open()
    topics = {topic.name: bytes(topic.topic_id) for topic in node.image.topics.values()}
    await serving.crash()
    return topics


# Ends


async def test_a_node_stops_under_load_and_loses_nothing_it_acknowledged(serving: Serving) -> None:
    await serving.open(checkpoint_bytes=10_000, retention_check_ms=1)
    lines = [await serving.line() for _ in range(6)]
    await lines[0].create("a", 6, segment_bytes=5_000)
    acknowledged: list[list[int]] = [[] for _ in lines]
    large = batch(bytes(2_000_000), codec=Codec.ZSTD)

    async def load(place: int) -> None:
        line = lines[place]
        body = produce_body({"a": {place: batch(bytes(300))}})
        for _ in range(8):
            line.send(ApiKey.PRODUCE, **body)
        while True:
            row = (await line.receive()).responses[0].partition_responses[0]
            assert row.error_code == 0
            acknowledged[place].append(row.base_offset)
            line.send(ApiKey.PRODUCE, **(body if place else produce_body({"a": {0: large}})))

    tasks = [asyncio.create_task(load(place)) for place in range(5)]
    await until_async(lambda: min(map(len, acknowledged[:5])) > 10)
    async with virtual_timeout(10):
        await serving.stop()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(ended, AssertionError) and "closed" in str(ended)
    node = await serving.open()
    assert leader_epochs(node) == [0] * 6, "the stop was clean"
    for place in range(5):
        partition = node.partitions.find("a", place)
        assert partition is not None
        assert partition.log.end_offset > max(acknowledged[place])


async def test_a_node_that_stops_takes_no_new_connections_and_ends_the_old(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    line.send(ApiKey.FETCH, **fetch_body({"a": 0}, max_wait_ms=PATIENCE_MS))
    await until_async(lambda: node.partitions.find("a", 0).watchers)  # type: ignore[union-attr]
    await serving.stop()
    assert await line.is_closed()
    assert not node.health().is_ready
    with pytest.raises(OSError):
        await asyncio.open_connection(*serving.address)


async def test_a_node_that_never_started_can_be_stopped(serving: Serving) -> None:
    await serving.open(node_id=1)
    await serving.stop()
    with pytest.raises(WrongDirectory):
        await serving.open(node_id=2)
    await serving.node.stop()


async def test_health_tells_the_stages_of_a_life(serving: Serving) -> None:
    serving.lives.append(serving.new_env())
    node = Node(serving.env, NodeSettings())
    seen = [node.health()]
    serving._node = node
    await node.start()
    seen.append(node.health())
    serving.address = await node.listen_kafka("127.0.0.1", 0)
    seen.append(node.health())
    await serving.stop()
    seen.append(node.health())
    assert [health.is_ready for health in seen] == [False, False, True, False]
    assert len({health.reason for health in seen}) == 4


@pytest.mark.expects_failure
@pytest.mark.parametrize("fault", ["write", "flush"])
def test_a_metadata_log_that_fails_ends_the_node(fault: str) -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env)
        line = await Line.open(address)
        await line.create("before")
        disk = world.hosts["node"].disk
        if fault == "write":
            disk.fail_next_write()
        else:
            disk.fail_next_flush(f"metadata/{0:020}.log")
        answer = await line.ask(ApiKey.CREATE_TOPICS, topics=[{"name": "a", "num_partitions": 1, "replication_factor": 1}], timeout_ms=1)
        assert answer.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "metadata log failed" in await node.stopped
        assert not node.health().is_ready
        assert (await line.ask(ApiKey.INIT_PRODUCER_ID, transactional_id=None)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        answer = await line.ask(ApiKey.DELETE_TOPICS, topics=[{"name": "before"}], timeout_ms=1)
        assert answer.responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await node.stop()
        assert not env.disk.exists("node/clean-shutdown")
        disk.kill()
        node, address = await started(env)
        line = await Line.open(address)
        assert "before" in {topic.name for topic in (await line.ask(ApiKey.METADATA, topics=None)).topics}
        await node.stop()

    virtually(scenario)


@pytest.mark.expects_failure
def test_a_metadata_log_that_is_damaged_keeps_the_node_from_starting() -> None:
    with World(3) as world:

        async def live(env: SimEnv) -> None:
            _, address = await started(env)
            line = await Line.open(address)
            for number in range(5):
                await line.create(f"t{number}")
            await asyncio.sleep(100)

        world.start("node", live)
        world.run_for(10)
        world.power_cut("node", Loss.NONE)
        disk = world.hosts["node"].disk
        disk.rot(f"metadata/{0:020}.log", 700)

        async def fail_to_start(env: SimEnv) -> None:
            with pytest.raises(DiskFailed, match="metadata"):
                await started(env)

        world.start("node", fail_to_start)
        world.run_for(10)
        assert world.hosts["node"].endings[-1] == "returned"


async def test_a_broken_promise_ends_the_node(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    from penstock.errors import require

    node = await serving.open()

    async def break_it() -> None:
        require(False, "two and two is four")

    node.spawn(break_it())
    async with virtual_timeout(5):
        assert "two and two is four" in await node.stopped
    caplog.clear()


@pytest.mark.invariant("node.clean-shutdown-marker")
async def test_a_start_that_failed_leaves_no_marker_of_a_clean_stop(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    await line.produce("a", b"x")
    await serving.stop()
    await serving.open()
    await serving.crash()
    (checkpoint,) = serving.directory.glob("topics/*/0/checkpoint")
    content = bytearray(checkpoint.read_bytes())
    content[8] = 99  # Its format, of a newer Penstock than this one,
    unsigned, body = content[:16], content[20:]
    content[16:20] = crc32(body, crc32(unsigned)).to_bytes(4, "little")  # rightly signed.
    checkpoint.write_bytes(content)
    with pytest.raises(NewerFormat):
        await serving.open()
    await serving.stop()
    assert not (serving.directory / "node" / "clean-shutdown").exists()
