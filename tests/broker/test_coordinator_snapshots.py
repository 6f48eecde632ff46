"""A coordinator's snapshots and its log: what loading makes of them, whatever the disk, the clock or compaction has done to them."""

import asyncio
from collections.abc import Callable

import pytest
from members import commit, coordinated, offsets_of, send_commit
from serving import Line, NodePath, Serving, started, virtually
from tiers import pick_step
from waiting import NEVER_S, PATIENCE_MS, until_async

from penstock.broker import coordinator_snapshots, coordinators
from penstock.broker.coordinators import SNAPSHOT_EVERY_BYTES_MIN
from penstock.broker.groups import CONSUMER_OFFSETS
from penstock.broker.known_ends import KNOWN_ENDS
from penstock.broker.node import Node
from penstock.simulator.env import SimEnv
from penstock.simulator.platter import Loss
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, encode_batch
from penstock.wire.keyed_records import keyed_records, latest_records

ALL_LOOPS = True

QUICK = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 1, "group_min_session_timeout_ms": 100}


async def opened(serving: Serving) -> Line:
    await serving.open(**QUICK)
    line = await serving.line()
    await coordinated(line)
    await line.create("a", 3)
    return line


async def reopened(serving: Serving) -> Line:
    await serving.open(**QUICK)
    await until_async(lambda: not serving.node.groups.is_loading())
    return await serving.line()


def snapshot_path(serving: Serving) -> NodePath:
    return serving.directory / serving.node.partitions.by_name[CONSUMER_OFFSETS][0].log.directory / coordinator_snapshots.NAME


def log_bytes_loaded(node: Node) -> int:
    """How much of the log was read at the last load, beyond what the snapshot told."""
    (partition,) = node.partitions.by_name[CONSUMER_OFFSETS].values()
    return partition.log.appended_bytes - node.groups._saved[partition].appended_bytes


# Snapshots


async def test_a_stop_in_order_leaves_a_snapshot_and_the_next_start_reads_no_log(serving: Serving) -> None:
    line = await opened(serving)
    for offset in range(50):
        await commit(line, "g", "a", {0: offset, 1: 2 * offset})
    await serving.stop()
    line = await reopened(serving)
    assert snapshot_path(serving).exists()
    assert log_bytes_loaded(serving.node) == 0
    assert await offsets_of(line, "g", "a", (0, 1, 2)) == {0: 49, 1: 98, 2: -1}


async def test_a_snapshot_is_written_when_the_log_has_grown(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "ROUND_SECONDS", NEVER_S)  # The test says when the node looks.
    line = await opened(serving)
    await commit(line, "g", "a", {0: 1})
    await serving.node.groups.save_grown()
    assert not snapshot_path(serving).exists()
    note = "n" * 4_000
    for number in range(SNAPSHOT_EVERY_BYTES_MIN // 4_000 + 1):
        send_commit(line, f"g{number % 7}", "a", {number % 3: number}, metadata=note)
        await line.receive()
    await serving.node.groups.save_grown()
    assert snapshot_path(serving).exists()
    await commit(line, "g", "a", {0: 77})  # After the snapshot: it must come from the log.
    await serving.crash()
    line = await reopened(serving)
    assert 0 < log_bytes_loaded(serving.node) < 10_000
    assert await offsets_of(line, "g") == {0: 77}
    assert await offsets_of(line, "g3", "a", (0, 1, 2)) != {0: -1, 1: -1, 2: -1}


@pytest.mark.invariant("groups.snapshot-is-cache")
async def test_commits_made_while_a_snapshot_is_written_are_kept(serving: Serving) -> None:
    line = await opened(serving)
    for group in range(300):
        await commit(line, f"g{group}", "a", {0: 1, 1: 1, 2: 1})
    groups = serving.node.groups
    (coordinator,) = groups
    flushes, log = serving.env.disk.flushes, coordinator.partition.log
    flushes.hold()
    saving = asyncio.get_running_loop().create_task(groups._save(coordinator))
    await flushes.until_waited_for()  # The log is flushed already, so it is the snapshot that waits.
    changes = {group: (await serving.line(), await serving.line()) for group in range(0, 300, 3)}
    end_before = log.end_offset
    for group, (committing, deleting) in changes.items():
        send_commit(committing, f"g{group}", "a", {1: 2})
        deleting.send(ApiKey.DELETE_GROUPS, groups_names=[f"g{group + 1}"])
    await until_async(lambda: log.end_offset >= end_before + 100 * (1 + 3))
    assert not saving.done() and not snapshot_path(serving).exists()
    flushes.let_go()
    for committing, deleting in changes.values():
        assert (await committing.receive()).topics[0].partitions[0].error_code == 0
        assert (await deleting.receive()).results[0].error_code == 0
    await saving
    assert snapshot_path(serving).exists()
    await serving.crash()
    line = await reopened(serving)
    assert log_bytes_loaded(serving.node) > 0
    for group in range(0, 300, 3):
        assert await offsets_of(line, f"g{group}", "a", (0, 1, 2)) == {0: 1, 1: 2, 2: 1}
        assert await offsets_of(line, f"g{group + 1}", "a", (0, 1, 2)) == {0: -1, 1: -1, 2: -1}
        assert await offsets_of(line, f"g{group + 2}", "a", (0, 1, 2)) == {0: 1, 1: 1, 2: 1}


def _torn(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _damaged(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


def _longer(content: bytes) -> bytes:
    return content + content


def _empty(content: bytes) -> bytes:
    return b""


@pytest.mark.invariant("groups.snapshot-is-cache")
@pytest.mark.parametrize("spoil", [_torn, _damaged, _longer, _empty])
async def test_a_snapshot_that_is_not_whole_is_not_believed(serving: Serving, spoil: Callable[[bytes], bytes]) -> None:
    line = await opened(serving)
    for offset in range(20):
        await commit(line, "g", "a", {0: offset})
    path = snapshot_path(serving)
    await serving.stop()
    path.write_bytes(spoil(path.read_bytes()))
    line = await reopened(serving)
    assert log_bytes_loaded(serving.node) > 0
    assert await offsets_of(line, "g") == {0: 19}


@pytest.mark.invariant("groups.snapshot-is-cache")
async def test_a_snapshot_of_another_partition_is_not_believed(serving: Serving) -> None:
    await serving.open(**QUICK | {"offsets_topic_num_partitions": 2})
    line = await serving.line()
    await coordinated(line)
    await line.create("a")
    names = [f"g{number}" for number in range(8)]
    for at, name in enumerate(names):
        await commit(line, name, "a", {0: at})
    partitions = list(serving.node.partitions.by_name[CONSUMER_OFFSETS].values())
    paths = [serving.directory / partition.log.directory / coordinator_snapshots.NAME for partition in partitions]
    await serving.stop()
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)
    line = await reopened(serving)
    for at, name in enumerate(names):
        assert await offsets_of(line, name) == {0: at}


@pytest.mark.invariant("groups.snapshot-is-cache")
def test_a_snapshot_that_is_ahead_of_its_log_is_not_believed() -> None:
    """The disk kept the snapshot and lost the end of the log that it stood for: what the log says holds, and what comes after counts."""
    with World(5) as world:

        async def first(env: SimEnv) -> None:
            node, address = await started(env, **QUICK)
            line = await Line.open(address)
            await coordinated(line)
            await line.create("a")
            for offset in range(5):
                await commit(line, "g", "a", {0: offset})
            await node.stop()

        async def second(env: SimEnv) -> None:
            node, address = await started(env, **QUICK)
            line = await Line.open(address)
            await until_async(lambda: not node.groups.is_loading())
            assert await offsets_of(line, "g") == {0: -1}
            await commit(line, "g", "a", {0: 1})
            assert await offsets_of(line, "g") == {0: 1}
            await node.stop()

        world.start("node", first)
        world.run_for(100)
        disk = world.hosts["node"].disk
        (directory,) = [name.rsplit("/", 1)[0] for name in disk.files() if name.endswith(coordinator_snapshots.NAME)]
        for name in list(disk.files()):
            is_of_the_log = name.startswith(directory) and not name.endswith(coordinator_snapshots.NAME)
            if is_of_the_log or name.endswith(KNOWN_ENDS):  # Else the log would count as damaged.
                disk.lose(name)
        world.start("node", second)
        world.run_for(100)
        assert world.hosts["node"].endings[-1] == "returned"


@pytest.mark.invariant("groups.snapshot-is-cache")
@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(0, 12, pick_step(test=3, slow=1)))
@pytest.mark.parametrize("loss", [Loss.ALL, Loss.NONE])
def test_the_power_may_go_at_any_moment_of_a_snapshot(loss: Loss, seed: int) -> None:
    """What was acknowledged is there after every cut, whatever became of the snapshot."""
    acknowledged: dict[int, int] = {}

    async def live(env: SimEnv) -> None:
        node, address = await started(env, **QUICK)
        line = await Line.open(address)
        await coordinated(line)
        await line.create("a", 3)
        for offset in range(1_000):
            assert await commit(line, "g", "a", {offset % 3: offset}) == {offset % 3: 0}
            acknowledged[offset % 3] = offset
            if offset % 5 == 0:
                (coordinator,) = node.groups
                await node.groups._save(coordinator)

    async def look(env: SimEnv) -> None:
        node, address = await started(env, **QUICK)
        line = await Line.open(address)
        await until_async(lambda: not node.groups.is_loading())
        found = await offsets_of(line, "g", "a", (0, 1, 2))
        assert all(found[partition] >= offset for partition, offset in acknowledged.items())
        await node.stop()

    with World(seed) as world:
        world.start("node", live)
        world.run_for(0.05 + seed * 0.013)
        world.power_cut("node", loss)
        world.start("node", look)
        world.run_for(100)
        assert acknowledged
        assert world.hosts["node"].endings[-1] == "returned"


# Compaction


@pytest.mark.invariant("groups.snapshot-is-cache")
def test_a_compacted_log_loads_into_the_same_state_and_brings_nothing_back_to_life() -> None:
    """A deleted group's tombstones are taken out of the log in the end. A snapshot from before must not be believed then."""

    async def scenario(world: World, env: SimEnv) -> None:
        settings = QUICK | {"cleaner_backoff_ms": 1_000, "disk_free_bytes_min": 0}
        node, address = await started(env, **settings)
        line = await Line.open(address)
        await line.create(CONSUMER_OFFSETS, 1, segment_bytes=2_048, min_cleanable_dirty_ratio=0.01, delete_retention_ms=1_000)
        await line.create("a", 3)
        await commit(line, "dead", "a", {0: 1, 1: 2, 2: 3})
        (coordinator,) = node.groups
        await node.groups._save(coordinator)
        path, disk = f"{coordinator.partition.log.directory}/{coordinator_snapshots.NAME}", world.hosts["node"].disk
        old = disk.snapshot(path)
        answer = await line.ask(ApiKey.DELETE_GROUPS, groups_names=["dead"])
        assert answer.results[0].error_code == 0
        for offset in range(300):
            await commit(line, f"g{offset % 5}", "a", {offset % 3: offset})
            await asyncio.sleep(0.1)
        (partition,) = node.partitions.by_name[CONSUMER_OFFSETS].values()
        assert partition.log.gaps_below > 100
        size = partition.log.size_bytes
        assert size < 40_000
        expected = {f"g{group}": await offsets_of(line, f"g{group}", "a", (0, 1, 2)) for group in range(5)}
        assert disk.snapshot(path) != old, "one that nobody would believe is written anew"
        disk.restore(path, old)
        coordinator.reload("as after a start")
        await until_async(lambda: not node.groups.is_loading())
        assert {f"g{group}": await offsets_of(line, f"g{group}", "a", (0, 1, 2)) for group in range(5)} == expected
        assert await offsets_of(line, "dead", "a", (0, 1, 2)) == {0: -1, 1: -1, 2: -1}
        await node.stop()

    virtually(scenario)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_age_never_takes_what_coordinators_keep(serving: Serving, policy: str) -> None:
    await serving.open(**QUICK)
    line = await serving.line()
    config = [{"name": "cleanup.policy", "value": policy}]
    wish = {"name": CONSUMER_OFFSETS, "num_partitions": 1, "replication_factor": 1, "configs": config}
    answer = await line.ask(ApiKey.CREATE_TOPICS, topics=[wish], timeout_ms=PATIENCE_MS)
    assert answer.topics[0].error_code == 40
    await coordinated(line)
    resource = {"resource_type": 2, "resource_name": CONSUMER_OFFSETS, "configs": [config[0] | {"config_operation": 0}]}
    answer = await line.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    assert answer.responses[0].error_code == 40
    (partition,) = serving.node.partitions.by_name[CONSUMER_OFFSETS].values()
    assert partition.config.cleanup_policy == "compact"


# Walking the log


def test_keys_found_in_batches_are_those_that_were_put_in() -> None:
    records = [Record(b"k%d" % n, None if n % 5 == 0 else b"v" * n, timestamp_ms=1_000 + n) for n in range(300)]
    codecs = zip(range(0, 300, 30), [0, 4] * 5, strict=True)
    batches = b"".join(bytes(encode_batch(records[at : at + 30], base_offset=at, codec=codec)) for at, codec in codecs)
    pairs, end_offset = keyed_records(batches, 45)
    assert pairs == [(record.key, record.value) for record in records[45:]]
    assert end_offset == 300
    again = {b"k50": b"of an earlier stretch", b"k0": b"below"}
    assert latest_records(batches, 45, again) == 300
    assert list(again.items()) == [(b"k0", b"below"), *pairs]
