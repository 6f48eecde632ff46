"""Tables of the lake, both formats: a batch counts once, killed writers leave nothing behind that counts, and readers are not disturbed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import lake_rows
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from lake_rows import NOON, SCHEMA, held, rows, seen, staged, table_at, write
from pyspark.sql.types import LongType, StructType
from waiting import PATIENCE_S

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.lake.layout import NULL_PARTITION, FileNames, StagedFile, directory_of, partition_of
from penstock.pipeline.lake.log import CHECKPOINT_EVERY, Log
from penstock.pipeline.lake.parquet_table import ParquetTable
from penstock.pipeline.lake.sink import LakeBatchWriter, Staged
from penstock.pipeline.lake.staging import OPEN_FILES_MAX, stage
from penstock.pipeline.lake.table import Table

pytestmark = pytest.mark.needs("spark")  # For Arrow and deltalake; no session is started.

SMALL_FILES = 1 << 20
SHARED = os.path.dirname(lake_rows.__file__)  # Where child processes find what tests share.


@pytest.fixture(params=["parquet", "delta"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return table_at(tmp_path / "table", request.param)


@pytest.mark.invariant("lake.batch-counts-once")
def test_a_batch_counts_once_however_often_it_is_committed(table: Table) -> None:
    assert write(table, [rows(0, 10)], batch=0)
    assert not write(table, [rows(0, 10)], batch=0), "the same batch was taken twice"
    assert write(table, [rows(10, 10)], batch=1)
    assert not write(table, [rows(0, 10)], batch=0), "a batch of the past was taken again"
    assert write(table, [rows(100, 5)], query="another", batch=0), "the batches of another query are its own"
    assert held(table) == [*range(20), *range(100, 105)]
    assert table.mark("q") == 1
    assert table.snapshot().rows == 25


def test_rows_keep_every_column_and_their_order(table: Table) -> None:
    write(table, [rows(0, 7, days=2), rows(7, 8, days=2)])
    for path in table.snapshot().locations():
        held_rows = pq.ParquetFile(path).read()
        offsets = held_rows["offset"].to_pylist()
        assert offsets == sorted(offsets)
        expected = pa.Table.from_batches([rows(0, 15, days=2)]).take(pa.array(offsets)).drop_columns(["topic", "date"])
        assert held_rows.to_pylist() == expected.to_pylist()
        assert held_rows.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    directories = {file.path.rpartition("/")[0] for file in table.snapshot().files}
    assert directories == {"topic=orders/date=2026-11-15", "topic=orders/date=2026-11-16"}


@pytest.mark.invariant("lake.compaction-changes-nothing")
def test_small_files_become_one_and_nothing_else_changes(table: Table) -> None:
    for batch in range(12):
        write(table, [rows(batch * 10, 10, days=2)], batch=batch)
    before = table.snapshot()
    joined = table.compact(file_bytes=SMALL_FILES)
    assert (joined.files_before, joined.files_after) == (24, 2)
    assert held(table) == list(range(120))
    assert table.mark("q") == 11, "the marks of batches were lost"
    assert all(os.path.exists(path) for path in before.locations()), "files were taken from under a reader of the past state"
    assert not write(table, [rows(0, 10)], batch=5)
    assert table.compact(file_bytes=SMALL_FILES).files_before == 0, "what is joined is joined again"


@pytest.mark.invariant("lake.deletes-only-unused-files")
def test_what_no_longer_counts_is_cleaned_and_what_counts_stays(table: Table) -> None:
    for batch in range(4):
        write(table, [rows(batch * 10, 10)], batch=batch)
    before = table.snapshot()
    orphans = staged(table, [rows(40, 10)], batch=4, attempt=1)
    table.compact(file_bytes=SMALL_FILES)
    assert table.clean(retain_s=3600) == 0, "young files were deleted"
    past = time.time() - 7200
    for path in before.locations():  # Written long ago, but counted until a moment ago.
        os.utime(path, (past, past))
    assert table.clean(retain_s=3600) == 0, "files that somebody may still read were deleted"
    os.utime(os.path.join(table.directory, orphans[0].path), (past, past))
    assert table.clean(retain_s=3600) == 1, "an old orphan was kept"
    table.clean(retain_s=0)
    assert held(table) == list(range(40))
    kept = {os.path.join(path, name) for path, _, names in os.walk(table.directory) for name in names if name.endswith(".parquet")}
    assert {path for path in kept if "checkpoint" not in path} == set(table.snapshot().locations())


def test_a_partition_is_replaced_as_a_whole(table: Table) -> None:
    write(table, [rows(0, 10, days=2), rows(0, 10, topic="other")])
    day = (("topic", "orders"), ("date", "2026-11-15"))
    files = [file for file in staged(table, [rows(500, 3)], batch=1) if file.partition == day]
    assert table.commit(files, schema=SCHEMA, marks={"q": 1}, replace=day)
    assert held(table) == sorted([500, 501, 502, *range(1, 10, 2), *range(10)])
    assert table.snapshot(day).rows == 3


def test_rows_are_not_replaced_by_one_who_has_not_seen_them(table: Table) -> None:
    """Two refresh a table, and the slower one has read less of the topic. What it noted has grown by itself all the same."""
    within = (("topic", "orders"), ("date", "2026-11-15"))
    seen = {"part/0": None, "part/1": None, "at": None}
    assert table.commit(staged(table, [rows(0, 10)]), schema=SCHEMA, marks={"part/0": 10, "at": 1}, replace=within, seen=seen)
    seen = {"part/0": 10, "part/1": None, "at": 1}
    newer, older = staged(table, [rows(0, 20)]), staged(table, [rows(0, 12)])
    assert table.commit(newer, schema=SCHEMA, marks={"part/1": 10, "at": 2}, replace=within, seen=seen)
    assert not table.commit(older, schema=SCHEMA, marks={"part/0": 12, "at": 3}, replace=within, seen=seen), "newer rows were replaced"
    assert held(table) == list(range(20)) and table.mark("part/0") == 10
    seen = {"part/0": 10, "part/1": 10, "at": 2}
    assert table.commit(older, schema=SCHEMA, marks={"part/0": 12, "at": 3}, replace=within, seen=seen)


@pytest.mark.invariant("lake.columns-fixed")
def test_rows_of_another_shape_are_refused(table: Table) -> None:
    write(table, [rows(0, 3)])
    altered = SCHEMA.remove(SCHEMA.get_field_index("headers"))
    with pytest.raises(PipelineComplaint, match="other columns"):
        table.check_schema(altered)
    with pytest.raises(PipelineComplaint, match="other columns"):
        table.commit([], schema=altered, marks={"q": 1})
    assert table.mark("q") == 0


def test_a_plain_reader_of_the_directory_sees_each_row_once(tmp_path: Path) -> None:
    table = table_at(tmp_path, "parquet")
    for batch in range(6):
        write(table, [rows(batch * 10, 10, days=3)], batch=batch)
    staged(table, [rows(1000, 10)], batch=6)  # Never committed.
    assert seen(tmp_path) == list(range(60))
    table.compact(file_bytes=SMALL_FILES)
    assert seen(tmp_path) == list(range(60))
    assert len(list((tmp_path / "topic=orders").rglob("*.parquet"))) == 3
    frame = ds.dataset(str(tmp_path), format="parquet", partitioning="hive").to_table().to_pandas()
    assert set(frame["topic"]) == {"orders"} and len(set(frame["date"])) == 3


@pytest.mark.invariant("lake.deletes-only-unused-files")
def test_files_of_others_in_the_tree_are_left_alone(tmp_path: Path) -> None:
    table = table_at(tmp_path, "parquet")
    for batch in range(3):
        write(table, [rows(batch * 10, 10)], batch=batch)
    note = tmp_path / "topic=orders" / "date=2026-11-15" / "README"
    note.write_text("mine")
    table.compact(file_bytes=SMALL_FILES)
    assert note.read_text() == "mine"
    assert seen(tmp_path / "topic=orders" / "date=2026-11-15" / next(p.name for p in note.parent.glob("*.parquet"))) == list(range(30))


def test_a_long_log_is_read_from_its_last_checkpoint(tmp_path: Path) -> None:
    table = table_at(tmp_path, "parquet")
    for batch in range(3 * CHECKPOINT_EVERY):
        write(table, [rows(batch, 1)], batch=batch)
        if batch % 40 == 39:
            table.compact(file_bytes=SMALL_FILES)
    table.clean(retain_s=0)
    log = tmp_path / "_penstock" / "log"
    assert not (log / f"{0:020d}.json").exists(), "what two checkpoints cover is still there"
    assert len(list(log.iterdir())) <= 2 * CHECKPOINT_EVERY
    assert held(table) == seen(tmp_path) == list(range(3 * CHECKPOINT_EVERY))
    assert table.mark("q") == 3 * CHECKPOINT_EVERY - 1
    os.unlink(tmp_path / "_penstock" / "view")  # The tree can be rebuilt from the log alone, also when the log is short.
    write(table, [rows(5000, 1)], batch=5000)
    assert seen(tmp_path) == held(table)


def test_a_hole_in_the_log_is_told_not_read_over(tmp_path: Path) -> None:
    table = table_at(tmp_path, "parquet")
    for batch in range(3):
        write(table, [rows(batch, 1)], batch=batch)
    os.unlink(tmp_path / "_penstock" / "log" / f"{1:020d}.json")
    with pytest.raises(PipelineComplaint, match="has a hole"):
        table.snapshot()


def test_a_log_of_a_later_format_is_refused(tmp_path: Path) -> None:
    table = table_at(tmp_path, "parquet")
    write(table, [rows(0, 1)])
    (tmp_path / "_penstock" / "log" / f"{1:020d}.json").write_text('{"format": 2}')
    with pytest.raises(PipelineComplaint, match="has format 2"):
        table.snapshot()


WRITERS = """
import os, sys, traceback
sys.path.insert(0, sys.argv[1])
from lake_rows import rows, table_at, write
import penstock.pipeline.lake.delta_table, penstock.pipeline.lake.parquet_table

def work(query, at):
    table = table_at(sys.argv[2], sys.argv[3])
    for batch in range(10):
        write(table, [rows(batch * 10 + 1000 * at, 10)], query=query, batch=batch)
        if batch % 5 == 4:
            table.compact(file_bytes=1 << 20)

def started(query, at):
    child = os.fork()
    if child:
        return child
    try:
        work(query, at)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)

children = [started(query, at) for query, at in [("a", 0), ("a", 0), ("b", 1)]]
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


@pytest.mark.invariant("lake.batch-counts-once")
def test_several_processes_write_and_compact_one_table_at_once(table: Table) -> None:
    """Three processes: two of them are the same query (a driver that was believed dead), one is another."""
    write(table, [rows(9000, 1)], query="first")
    done = subprocess.run(
        [sys.executable, "-c", WRITERS, SHARED, table.path, table.format], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert held(table) == [*range(100), *range(1000, 1100), 9000]
    if table.format == "parquet":
        assert seen(table.path) == held(table)


READER = """
import sys
sys.path.insert(0, sys.argv[1])
from lake_rows import held, seen, table_at
table = table_at(sys.argv[2], "parquet")
expected = list(range(400))
print("ready", flush=True)
looks = 0
while sys.stdin.read(1):
    assert held(table) == expected, "the table's own reader was disturbed"
    try:
        assert seen(sys.argv[2]) == expected, "a reader of the directory saw too few or too many rows"
    except FileNotFoundError:
        pass
    looks += 1
    print(looks, flush=True)
"""


@pytest.mark.invariant("lake.compaction-changes-nothing")
def test_compaction_disturbs_no_reader(tmp_path: Path) -> None:
    """One process reads all rows over and over while another compacts: each look is right, or a file is said to be gone."""
    table = table_at(tmp_path / "table", "parquet")
    for batch in range(40):
        write(table, [rows(batch * 10, 10)], batch=batch)
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, SHARED, table.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdin is not None and reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"
    size = max(os.path.getsize(path) for path in table.snapshot().locations())
    for round in range(1, 7):
        reader.stdin.write("x")
        reader.stdin.flush()
        table.compact(file_bytes=int(size * 2**round))  # Each round joins what the last has made.
        assert reader.stdout.readline() == f"{round}\n"
    reader.stdin.close()
    assert reader.wait(PATIENCE_S) == 0
    assert len(table.snapshot().files) == 1


KILLED = """
import os, shutil, signal, subprocess, sys
sys.path.insert(0, sys.argv[1])
from lake_rows import rows, table_at, write

def work(path, touches_left):
    def at_each_touch(event, arguments):
        nonlocal touches_left
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if is_write or event in ("os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "ctypes.dlsym", "fcntl.flock"):
            touches_left -= 1
            if touches_left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    table = table_at(path, "parquet")
    sys.addaudithook(at_each_touch)
    write(table, [rows(40, 10)], batch=4)
    table.compact(file_bytes=1 << 20)
    write(table, [rows(50, 10)], batch=5)
    table.clean(retain_s=0)
    os._exit(0)

warm = table_at(sys.argv[2] + "-warm", "parquet")  # What is imported late is imported once, and not by each child.
for batch in range(2):
    write(warm, [rows(batch * 10, 10)], batch=batch)
warm.compact(file_bytes=1 << 20)
warm.clean(retain_s=0)
for step in range(1000):
    path = f"{sys.argv[2]}-{step}"
    subprocess.run(["cp", "-al", sys.argv[2], path], check=True)
    child = os.fork() or work(path, step)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        print(step)
        break
"""


@pytest.mark.invariant("lake.kill-leaves-whole-table")
def test_a_writer_killed_before_any_touch_of_the_disk_leaves_a_whole_table(tmp_path: Path) -> None:
    """A process writes, compacts, writes and cleans; it is killed before its n-th touch of the file system, for every n.

    Then it is done again by another: each batch counts once, the tree shows what counts, and nothing else is left.
    """
    origin = table_at(tmp_path / "table", "parquet")
    for batch in range(4):
        write(origin, [rows(batch * 10, 10)], batch=batch)
    run = subprocess.run([sys.executable, "-c", KILLED, SHARED, origin.path], capture_output=True, text=True, check=True)
    last_step = int(run.stdout)
    assert last_step > 20, "the process was not killed in enough places"
    for step in range(last_step + 1):
        path = tmp_path / f"table-{step}"
        table = table_at(path, "parquet")
        whole = (list(range(40)), list(range(50)), list(range(60)))
        assert held(table) in whole, f"killed before touch {step}"
        assert seen(path) in whole, f"a plain reader saw something else, killed before touch {step}"
        for batch in (4, 5):
            write(table, [rows(batch * 10, 10)], batch=batch)
        assert held(table) == seen(path) == list(range(60)), f"killed before touch {step}"
        table.clean(retain_s=0)
        files = [os.path.join(at, name) for at, _, names in os.walk(table.directory) for name in names]
        assert sorted(files) == sorted(table.snapshot().locations()), f"orphans stay, killed before touch {step}"


def test_a_task_that_fails_leaves_no_files(table: Table) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield rows(0, 10, days=3)
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError, match="the task fails"):
        staged(table, failing())  # type: ignore[arg-type]
    assert [name for _, _, names in os.walk(table.directory) for name in names] == []


def test_a_file_is_finished_at_its_size_and_few_are_open_at_once(tmp_path: Path) -> None:
    table = table_at(tmp_path, "parquet")
    names = FileNames(query="q", batch=0, task=0, attempt=0)

    def incompressible() -> pa.Array:
        return pa.array([os.urandom(1000) for _ in range(100)], pa.binary())

    batches = [rows(at * 100, 100).set_column(1, SCHEMA.field(1), incompressible()) for at in range(10)]
    files = stage(batches, table.directory, partition_by=("topic", "date"), names=names, file_bytes=300_000)
    assert [file.rows for file in files] == [300, 300, 300, 100]
    scattered = stage([rows(0, 100, days=OPEN_FILES_MAX + 8)], table.directory, partition_by=("topic", "date"), names=names)
    assert sum(file.rows for file in scattered) == 100 and len(scattered) == OPEN_FILES_MAX + 8


@pytest.mark.parametrize("partition", [(), (("topic", "orders.eu-1"), ("date", "2026-11-15")), (("c", "a/b=c %"), ("d", None))])
def test_a_directory_says_which_partition_it_is(partition: tuple[tuple[str, str | None], ...]) -> None:
    assert partition_of(directory_of(partition)) == partition
    assert directory_of(partition).count("/") == max(0, len(partition) - 1)


def test_partition_values_may_be_anything(table: Table) -> None:
    odd = "a/b=c %2F ü"
    write(table, [rows(0, 3, topic=odd), rows(3, 3)])
    assert held(table) == list(range(6))
    assert table.snapshot((("topic", odd), ("date", "2026-11-15"))).rows == 3
    table.compact(file_bytes=SMALL_FILES)
    if table.format == "delta":
        found = DeltaTable(table.path).to_pyarrow_table(columns=["topic", "offset"]).to_pylist()
    else:
        found = ds.dataset(table.path, format="parquet", partitioning="hive").to_table(["topic", "offset"]).to_pylist()
    assert sorted((row["offset"], row["topic"]) for row in found) == [(at, odd if at < 3 else "orders") for at in range(6)]


@pytest.mark.parametrize("day", [-106_751_992, -719_163, 2_932_897, 106_751_991])  # Of -2**63, year 0, year 10000 and 2**63 - 1.
def test_a_date_that_cannot_be_read_back_is_refused_before_anything_counts(table: Table, day: int) -> None:
    write(table, [rows(0, 10)])
    odd = rows(10, 2)
    days = pa.array([20_000, day], pa.int32()).cast(pa.date32())
    odd = odd.set_column(odd.schema.get_field_index("date"), "date", days)
    with pytest.raises(PipelineComplaint, match="that no directory can be named after"):
        write(table, [odd], batch=1)
    assert write(table, [rows(10, 5)], batch=1) and held(table) == list(range(15)), "the table is no longer usable"


@pytest.mark.parametrize("day", [-719_162, -1, 2_932_896])
def test_the_first_and_the_last_date_are_read_back(table: Table, day: int) -> None:
    few = rows(0, 2)
    write(table, [few.set_column(few.schema.get_field_index("date"), "date", pa.array([day] * 2, pa.int32()).cast(pa.date32()))])
    assert held(table) == [0, 1]
    assert [dict(file.partition)["date"] for file in table.snapshot().files] == [str(pa.scalar(day, pa.int32()).cast(pa.date32()).as_py())]


def test_a_null_stands_where_hive_puts_it(tmp_path: Path) -> None:
    table = table_at(tmp_path, "parquet")
    nameless = rows(0, 2).set_column(SCHEMA.get_field_index("date"), SCHEMA.field("date"), pa.array([None, NOON.date()], pa.date32()))
    write(table, [nameless])
    assert (tmp_path / "topic=orders" / f"date={NULL_PARTITION}").is_dir()
    assert seen(tmp_path) == [0, 1]


def test_a_parquet_table_needs_a_file_system() -> None:
    with pytest.raises(PipelineComplaint, match="hard links"):
        ParquetTable("s3://bucket/table")


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_files_of_a_commit_whose_answer_was_lost_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    """The step was taken, and then answered with a refusal: by a file server that was asked twice, or by an object store."""
    where, name, refusal = (os, "link", FileExistsError(17, "exists")) if format == "parquet" else (
        DeltaTable, "create_write_transaction", CommitFailedError("no answer"))  # fmt: skip
    real, refused = getattr(where, name), []

    def lossy(*given: object, **more: object) -> None:
        real(*given, **more)
        if not refused:
            refused.append(given)
            raise refusal

    schema = StructType().add("n", LongType())
    writer = LakeBatchWriter({"path": str(tmp_path), "tableFormat": format}, schema)
    table, own = writer.plan.table(), pa.schema([("n", pa.int64())])
    rows_of_batch = [pa.record_batch([pa.array(range(10), pa.int64())], schema=own)]
    for attempt, is_lossy in enumerate((True, False)):
        files = stage(rows_of_batch, table.directory, names=FileNames(query="q", batch=0, task=0, attempt=attempt))
        with monkeypatch.context() as lost:
            if is_lossy:
                lost.setattr(where, name, lossy)
            writer.publish([Staged("q", files)], query="q", batch=0)
        assert os.path.exists(os.path.join(table.directory, files[0].path)) == is_lossy
    assert refused and table.snapshot().rows == 10
    assert [pq.read_metadata(path).num_rows for path in table.snapshot().locations()] == [10], "a file that counts was deleted"


def test_of_two_writers_at_one_number_one_is_told(tmp_path: Path) -> None:
    from penstock.pipeline.lake.log import Change, NumberTaken

    log = Log(str(tmp_path / "log"))
    file = StagedFile("data/a.parquet", (), 1, 10)
    log.append(Change(added=(file,)), 0)
    with pytest.raises(NumberTaken):
        log.append(Change(added=(file,)), 0)
    assert [name.name for name in (tmp_path / "log").iterdir()] == [f"{0:020d}.json"]
