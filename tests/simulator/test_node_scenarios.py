"""The crash-safety checklist of one node, row by row, where a whole node shows it best. docs/invariants.md has the table."""

from pathlib import Path

import pytest
from simulator.scene import Refused, Scene, at_every_change, values_at

from penstock.errors import ErrorCode, MalformedInput
from penstock.log.segment import BATCHES, INDEX
from penstock.peers.offsets import EARLIEST, LATEST
from penstock.simulator.disk_faults import DiskFaults
from penstock.simulator.platter import LOSSES, Loss
from penstock.simulator.workloads.line import LineLost
from penstock.simulator.workloads.stage import NODE
from penstock.wire.batches import Record, encode_batch

SMALL = {"segment_bytes": 1_024}
VALUE = b"v" * 300  # Two or three batches make a segment.
SOURCES = Path(__file__).parents[2] / "src" / "penstock"


class Promises:
    """What a scripted producer was told: value by offset."""

    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}
        self.sent = 0

    def produce(self, scene: Scene, count: int) -> None:
        for _ in range(count):
            value = b"%d:" % self.sent + VALUE
            self.sent += 1
            self.kept[scene.produce(value)] = value

    def check(self, scene: Scene) -> None:
        values = scene.read()
        for offset, value in self.kept.items():
            assert values[offset] == value


@pytest.mark.invariant("log.ack-after-flush")
@pytest.mark.parametrize("loss", LOSSES)
def test_row_1_what_was_acknowledged_survives_a_power_cut_at_any_change_of_the_disk(loss: Loss) -> None:
    promises: list[Promises] = []

    def script(scene: Scene) -> None:
        scene.world.host(NODE).disk.faults = DiskFaults(loss=loss)
        promises.append(Promises())
        promises[-1].produce(scene, 8)

    for scene in at_every_change(script, before=lambda scene: scene.create(**SMALL)):
        promises[-1].check(scene)


@pytest.mark.invariant("log.recovered-tail-flushed")
def test_row_1_what_a_killed_node_left_in_the_machines_memory_is_flushed_before_anybody_is_told_of_it() -> None:
    """A batch is written, its flush takes long, the process is killed. The next one finds the batch, and so do readers and its producer;
    then the machine loses its power too."""
    with Scene() as scene:
        scene.create()
        producer_id = scene.producer_id()
        scene.disk.faults = DiskFaults(sync_seconds_min=5.0, sync_seconds_max=5.0)
        with pytest.raises(Refused, match="REQUEST_TIMED_OUT"):
            scene.produce(b"a", producer_id=producer_id, sequence=0)
        assert scene.read() == [], "nobody reads what is not on the disk"
        scene.kill()
        scene.disk.faults = DiskFaults()
        scene.start()
        assert scene.read() == [b"a"]
        assert scene.produce(b"a", producer_id=producer_id, sequence=0) == 0
        scene.power_cut()
        scene.start()
        assert scene.read() == [b"a"]


@pytest.mark.invariant("log.checksum-verified")
def test_row_2_no_byte_that_changed_is_ever_served() -> None:
    """Every byte of a segment is changed once under a running node, and once under one that starts."""
    with Scene() as scene:
        topic_id = scene.create()
        for number in range(3):
            scene.produce(b"%d" % number)
        path, whole = scene.path(topic_id), scene.fetch(0)
        for restarts in (False, True):
            for position in range(len(whole)):
                scene.disk.rot(path, position)
                if restarts and position % 7 == 0:
                    scene.power_cut()
                    scene.start()
                for offset in range(3):
                    try:
                        served = scene.fetch(offset)
                        assert served in whole, "batch by batch what was written"
                    except Refused as refused:
                        assert refused.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)
                    except LineLost:
                        pass  # A long reply that turned out damaged broke off.
                scene.disk.restore(path, whole)


@pytest.mark.invariant("log.torn-tail")
def test_row_3_a_torn_tail_ends_before_what_was_never_acknowledged() -> None:
    for seed in range(40):
        with Scene(seed) as scene:
            scene.create()
            scene.produce(b"a")
            scene.disk.faults = DiskFaults(sync_seconds_min=5.0, sync_seconds_max=5.0)
            with pytest.raises(Refused, match="REQUEST_TIMED_OUT"):
                scene.produce(b"b" * 2_000)
            scene.power_cut(Loss.TORN)
            scene.disk.faults = DiskFaults()
            scene.start()
            values = scene.read()
            assert values[0] == b"a"
            assert values[1:] in ([], [b"b" * 2_000])


@pytest.mark.invariant("log.damage-never-cut", "log.unknown-end-not-reported")
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_row_4_damage_in_the_middle_is_not_a_tail(has_checkpoint: bool) -> None:
    """Below the checkpoint one batch cannot be read. Above it nobody knows any more where the log ends."""
    with Scene(checkpoint_bytes=1_024) as scene:
        topic_id = scene.create()
        for number in range(6):
            scene.produce(b"%d:" % number + VALUE)
        if has_checkpoint:
            scene.run_for(3)
        size = len(scene.disk.snapshot(scene.path(topic_id)))
        scene.power_cut()
        scene.disk.rot(scene.path(topic_id), size // 6 * 2 + 80)
        scene.start()
        assert len(scene.disk.snapshot(scene.path(topic_id))) == size, "nothing is cut"
        assert [offset for offset, _ in values_at(scene.fetch(0), 0)] == [0, 1], "what stands before is served"
        with pytest.raises(Refused) as refused:
            scene.fetch(2)
        assert refused.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)
        if has_checkpoint:
            assert [offset for offset, _ in values_at(scene.fetch(3), 3)] == [3, 4, 5], "and what stands behind"
            assert scene.produce(b"on") == 6
        else:
            for act in (lambda: scene.offset(LATEST), lambda: scene.produce(b"no"), lambda: scene.fetch(4)):
                with pytest.raises(Refused, match="KAFKA_STORAGE_ERROR"):
                    act()


def harm_nothing(scene: Scene, path: str) -> None: ...


def lose(scene: Scene, path: str) -> None:
    scene.disk.lose(path)


def shorten(scene: Scene, path: str) -> None:
    scene.disk.restore(path, scene.disk.snapshot(path)[:-1])


def flip(scene: Scene, path: str) -> None:
    scene.disk.rot(path)


def exchange(scene: Scene, path: str) -> None:
    """With the same kind of file of another partition."""
    other = path.replace("/0/", "/1/") if "/0/" in path else path.replace("/1/", "/0/")
    if other in scene.disk.files():
        scene.disk.restore(path, scene.disk.snapshot(other))


def misplace(scene: Scene, path: str) -> None:
    """The index of another segment, a checkpoint of an earlier time."""
    folder, name = path.rsplit("/", 1)
    others = [other for other in scene.disk.files() if other.startswith(folder) and other != path and other[-6:] == path[-6:]]
    if others and name != "checkpoint":
        scene.disk.restore(path, scene.disk.snapshot(others[-1]))


@pytest.mark.invariant("log.caches-are-optional")
@pytest.mark.parametrize("harm", [harm_nothing, lose, shorten, flip, exchange, misplace])
@pytest.mark.parametrize("ends", ["power cut", "clean stop"])
def test_row_7_caches_may_be_harmed_without_harm(harm, ends: str) -> None:  # type: ignore[no-untyped-def]
    with Scene(checkpoint_bytes=1_024) as scene:
        scene.create(partitions=2, **SMALL, index_interval_bytes=0)
        producer_id = scene.producer_id()
        for number in range(9):
            for partition in range(2):
                value = b"%d-%d:" % (partition, number) + VALUE * (1 + partition)
                scene.produce(value, partition=partition, producer_id=producer_id, sequence=number)
        scene.run_for(3)
        if ends == "power cut":
            scene.power_cut()
        else:
            scene.stop()
        caches = [path for path in scene.disk.files() if path.endswith(INDEX) or "checkpoint" in path.rsplit("/", 1)[-1]]
        assert len(caches) >= 8
        for path in caches:
            harm(scene, path)
        scene.start()
        for partition in range(2):
            values = scene.read(partition=partition)
            assert [value.split(b":")[0] for value in values] == [b"%d-%d" % (partition, number) for number in range(9)]
            for offset in reversed(range(9)):  # Each by itself, so that its index is needed.
                assert values_at(scene.fetch(offset, partition=partition), offset)[0] == (offset, values[offset])
            value = b"%d-8:" % partition + VALUE * (1 + partition)
            repeated = scene.produce(value, partition=partition, producer_id=producer_id, sequence=8)
            assert repeated == 8, "the producer is known by its old offset"


@pytest.mark.invariant("log.failed-flush-never-trusted")
def test_row_8_whichever_flush_fails_nothing_is_acknowledged_that_is_not_kept() -> None:
    """The k-th flush fails and every later one claims success; then the process restarts on the same machine; then the power goes."""
    for number in range(1, 25):
        with Scene(seed=number) as scene:
            scene.create(**SMALL)
            promises, left = Promises(), [number]

            def is_due(path: str, left: list[int] = left) -> bool:
                left[0] -= path.startswith("topics/") and path.count("/") > 1
                return left[0] == 0

            scene.disk.fail_next_flush_where(is_due)
            refused = 0
            for _ in range(12):
                try:
                    promises.produce(scene, 1)
                except Refused as no:
                    refused += 1
                    assert no.code is ErrorCode.KAFKA_STORAGE_ERROR
                    assert scene.node.partitions.find("orders", 0).log.failure is not None  # type: ignore[union-attr]
                if refused == 1:
                    scene.kill()
                    scene.start()
                    refused += 1
            scene.power_cut()
            scene.start()
            promises.check(scene)


@pytest.mark.invariant("log.small-files-atomic")
def test_row_9_files_of_the_node_itself_are_whole_or_not_there_at_any_change() -> None:
    """From nothing to a node with a topic, through a clean stop and a start: the power may go at any change."""
    identities: list[str] = []

    def script(scene: Scene) -> None:
        scene.create("second")
        scene.stop()
        scene.start()
        scene.create("third")

    def before(scene: Scene) -> None:
        scene.create("first")
        identities.append(scene.node.image.cluster_id)

    for scene in at_every_change(script, before=before):
        assert scene.node.image.cluster_id == identities[-1]
        assert scene.topics() in (["first"], ["first", "second"], ["first", "second", "third"])


@pytest.mark.invariant("log.small-files-atomic")
def test_row_9_the_very_first_start_may_be_cut_anywhere() -> None:
    with Scene() as scene:
        changes = scene.disk.operations
    for change in range(1, changes + 1):
        scene = Scene(seed=change)
        scene.disk.crash_at(change)
        scene.begin_to_start()
        scene.run_for(2)
        if not scene.is_dead():
            scene.power_cut()
        with scene:
            scene.create()
            assert scene.produce(b"a") == 0


@pytest.mark.invariant("log.names-durable-first")
def test_row_10_the_first_record_of_a_new_topic_and_of_a_new_segment_survive() -> None:
    with Scene() as scene:
        scene.create(**SMALL)
        for number in range(10):
            assert scene.produce(b"%d:" % number + VALUE) == number
            scene.power_cut(Loss.ALL)
            scene.start()
        assert len(scene.read()) == 10


@pytest.mark.invariant("node.clean-shutdown-marker")
def test_row_11_only_a_clean_stop_is_believed() -> None:
    """A node that stopped in order is opened without a scan and in the same epoch; any other end raises the epoch."""
    with Scene() as scene:
        topic_id = scene.create()

        def epoch() -> int:
            return int(scene.node.image.topics_by_id[topic_id].partitions[0].leader_epoch)  # type: ignore[index]

        def scanned() -> int:
            return sum(partition.log.report.scanned_batches for partition in scene.node.partitions)

        scene.produce(b"a")
        epochs = [epoch()]
        for end in (scene.stop, scene.kill, scene.stop, scene.power_cut):
            scene.produce(b"b")
            end()
            scene.start()
            epochs.append(epoch())
            assert (scanned() == 0) == (end == scene.stop)
        assert epochs == [epochs[0], epochs[0], epochs[0] + 1, epochs[0] + 1, epochs[0] + 2]
        assert not scene.disk.exists("node/clean-shutdown"), "the marker goes first"


@pytest.mark.invariant("node.clean-shutdown-marker")
def test_row_11_a_stop_that_is_cut_off_at_any_change_was_not_clean_and_loses_nothing() -> None:
    promises: list[Promises] = []

    def before(scene: Scene) -> None:
        scene.create(**SMALL)
        promises.append(Promises())
        promises[-1].produce(scene, 5)

    for scene in at_every_change(Scene.stop, before=before):
        promises[-1].check(scene)
        assert scene.produce(b"on") == 5


@pytest.mark.invariant("log.producer-state-survives")
@pytest.mark.parametrize("ends", ["kill", "power cut", "clean stop"])
def test_row_17_a_batch_sent_again_is_answered_with_its_old_offset_in_the_next_life(ends: str) -> None:
    """Over a restart, a roll and retention: the segments with the first batches are gone, the producer is not forgotten."""
    with Scene(retention_check_ms=500, checkpoint_bytes=1_024) as scene:
        topic_id = scene.create(**SMALL, retention_bytes=2_000)
        producer_id = scene.producer_id()
        records = [Record(value=VALUE, timestamp_ms=scene.world.hosts[NODE].wall.ms())]
        batches = [bytes(encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=number)) for number in range(20)]
        offsets = [scene.produce_batch(batch) for batch in batches]
        scene.run_for(5)
        assert scene.offset(EARLIEST) > 5, "retention has taken what came first"
        match ends:
            case "kill":
                scene.kill()
            case "power cut":
                scene.power_cut()
            case _:
                scene.stop()
        scene.start()
        for number in range(15, 20):
            assert scene.produce_batch(batches[number]) == offsets[number]
        with pytest.raises(Refused, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            scene.produce(VALUE, topic=topic_id, producer_id=producer_id, sequence=25)
        assert scene.produce(VALUE, producer_id=producer_id, sequence=20) == 20


@pytest.mark.invariant("log.disk-full-undoes-append")
def test_row_21_a_disk_that_fills_up_at_any_byte_refuses_and_recovers_without_a_restart() -> None:
    with Scene(disk_free_bytes_min=0, disk_reserve_bytes=0) as scene:
        scene.create(**SMALL)
        promises = Promises()
        promises.produce(scene, 2)
        for room in (*range(0, 60, 7), 100, 200, 300, 360):
            scene.disk.capacity_bytes -= scene.disk.free_bytes() - room
            try:
                promises.produce(scene, 1)
            except Refused as refused:
                assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
            promises.check(scene)  # Reading goes on.
            scene.disk.pacify()
            scene.run_for(2)
            promises.produce(scene, 1)
        scene.power_cut()
        scene.start()
        promises.check(scene)


@pytest.mark.invariant("log.deletion-durable-first")
def test_row_22_retention_may_be_cut_off_at_any_change() -> None:
    promises: list[Promises] = []

    def before(scene: Scene) -> None:
        scene.create(**SMALL, retention_bytes=1_000)
        promises.append(Promises())
        promises[-1].produce(scene, 9)

    for scene in at_every_change(lambda scene: scene.run_for(4), before=before, retention_check_ms=2_000, checkpoint_bytes=1_024):
        start = scene.offset(EARLIEST)
        values = scene.read()
        assert values == [promises[-1].kept[offset] for offset in range(start, 9)]
        assert len(values) * len(VALUE) > 1_000 - len(VALUE), "no more went than was asked for"


@pytest.mark.invariant("log.deletion-durable-first")
def test_row_22_a_deletion_may_be_cut_off_at_any_change() -> None:
    def script(scene: Scene) -> None:
        scene.delete(scene.node.image.topics["orders"].topic_id)
        scene.run_for(1)

    def before(scene: Scene) -> None:
        scene.create(**SMALL)
        scene.create("other")
        for _ in range(4):
            scene.produce(VALUE)

    with Scene() as scene:
        before(scene)
        script(scene)
        assert len(scene.disk.list("topics")) == 1
    for scene in at_every_change(script, before=before):
        scene.run_for(1)
        there = scene.topics()
        assert there in (["orders", "other"], ["other"])
        assert len(scene.disk.list("topics")) == len(there), "what is deleted leaves nothing behind"
        if "orders" in there:
            assert len(scene.read()) == 4


@pytest.mark.invariant("node.recreated-topic-is-new")
def test_row_23_a_topic_made_again_is_another() -> None:
    with Scene() as scene:
        old = scene.create()
        scene.produce(b"old", topic=old)
        scene.delete(old)
        new = scene.create()
        for _ in range(2):
            for act in (lambda: scene.produce(b"late", topic=old), lambda: scene.fetch(0, topic=old)):
                with pytest.raises(Refused, match="UNKNOWN_TOPIC_ID"):
                    act()
            assert scene.read() == []
            scene.power_cut()
            scene.start()
        assert scene.produce(b"new", topic=new) == 0
        assert scene.read() == [b"new"]


@pytest.mark.invariant("log.recovery-restartable")
@pytest.mark.parametrize("loss", LOSSES)
def test_row_28_a_crash_at_any_change_of_recovery_is_safe(loss: Loss) -> None:
    """What a first power cut left is recovered, the power goes again in the middle of that, and all over again."""
    promises: list[Promises] = []

    def before(scene: Scene) -> None:
        scene.create(**SMALL)
        promises.append(Promises())
        promises[-1].produce(scene, 5)
        scene.disk.faults = DiskFaults(sync_seconds_min=5.0, sync_seconds_max=5.0)
        with pytest.raises(Refused, match="REQUEST_TIMED_OUT"):
            scene.produce(b"never acknowledged" * 100)
        scene.disk.faults = DiskFaults(loss=loss)
        scene.power_cut(loss)

    for scene in at_every_change(Scene.start, before=before):
        promises[-1].check(scene)
        scene.kill()
        scene.start()
        promises[-1].check(scene)
        assert len(scene.read()) in (5, 6)


@pytest.mark.invariant("log.no-mmap-writes")
def test_row_29_nothing_is_written_through_a_memory_map() -> None:
    """Its errors come as signals, and a failed write comes as none. `penstock log dump` reads through one."""
    mapping = {str(path.relative_to(SOURCES)): path.read_text() for path in SOURCES.rglob("*.py") if "mmap" in path.read_text()}
    assert list(mapping) == ["cli/segments.py"]
    assert mapping["cli/segments.py"].count("mmap.mmap(") == mapping["cli/segments.py"].count("access=mmap.ACCESS_READ") == 1


def test_the_helper_that_reads_batches_finds_what_is_wrong() -> None:
    batch = bytes(encode_batch([Record(value=b"v")]))
    with pytest.raises(MalformedInput):
        values_at(batch[:-1] + b"x", 0)
    assert batch.endswith(b"v\0") and BATCHES == ".log"
