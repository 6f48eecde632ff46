"""Pipelines as they run, on a real node: stages, dead letters, tables that change, progress, failures, stop and resume."""

import json
import threading
from pathlib import Path

import pytest
from waiting import PATIENCE_S, until

from penstock.pipeline import FromFrame, FromTopic, Pipeline, PipelineComplaint, Stage, ToBatches, ToTopic

pytestmark = pytest.mark.spark


def order(number: int, customer: str = "c1") -> tuple[bytes, bytes]:
    return b"k%d" % number, json.dumps({"id": number, "customer": customer}).encode()


def clean(frame, context):
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, StringType, StructType

    from penstock.pipeline.steps.parsing import checked, parsed_json, with_origin

    schema = StructType().add("id", LongType()).add("customer", StringType())
    parsed = parsed_json(with_origin(frame), schema)
    return checked(parsed, {"the order has no id": F.col("reason").isNotNull() | F.col("parsed.id").isNotNull()})


def with_customers(frame, context):
    from pyspark.sql import functions as F

    from penstock.pipeline.steps.tables import looked_up, table

    orders = frame.withColumn("customer", F.get_json_object(F.col("value").cast("string"), "$.customer"))
    found = looked_up(orders, table(context, context.options["customers"]), on="customer", into="name")
    return found.withColumn("value", F.concat_ws(" ", F.col("value").cast("string"), F.col("name").cast("string")).cast("binary"))


def with_known_form(frame, context):
    from pyspark.sql import functions as F

    from penstock.pipeline.steps.parsing import checked

    named = with_customers(frame, context)
    return checked(named, {"the order names no customer": F.col("customer").isNotNull()})


def two_stages(raw: str) -> Pipeline:
    return Pipeline(
        f"shop-{raw[-6:]}",
        [
            Stage("clean", FromTopic(raw), clean, ToTopic(f"{raw}.clean", partitions=2), dead_letters=f"{raw}.dead"),
            Stage("named", FromTopic(f"{raw}.clean"), with_customers, ToTopic(f"{raw}.named")),
        ],
    )


@pytest.mark.invariant("pipeline.end-to-end-once", "pipeline.row-written-or-buried")
def test_what_goes_in_comes_out_of_the_last_stage_once_and_a_restart_goes_on(spark, node, topics, tmp_path: Path) -> None:
    from penstock.pipeline.running import Plan, Run

    raw, customers = topics.create(partitions=2), topics.create(cleanup_policy="compact")
    topics.write(customers, [(b"c1", b"Ada"), (b"c2", b"Bela")])
    topics.write(
        raw, [order(1), order(2, "c2"), order(3, "stranger"), (b"bad", b"{oops"), (b"none", None), (b"odd", b'{"customer": "c1"}')]
    )
    pipeline = two_stages(raw)

    def run_once() -> Run:
        run = Run(pipeline, spark, Plan(node.bootstrap, str(tmp_path), {"customers": customers}, is_once=True))
        run.start()
        run.wait(threading.Event())
        run.stop()
        return run

    first = run_once()
    named = [order(1)[1] + b" Ada", order(2, "c2")[1] + b" Bela", order(3, "stranger")[1]]
    assert sorted(topics.values(f"{raw}.named")) == sorted(named)
    dead = {letter.key: (letter.value, dict(letter.headers)) for letter in topics.read(f"{raw}.dead")}
    assert {key: (value, headers["penstock.reason"]) for key, (value, headers) in dead.items()} == {
        b"bad": (b"{oops", b"the value is not JSON, or a field has another type"),
        b"none": (None, b"the record has no value"),
        b"odd": (b'{"customer": "c1"}', b"the order has no id"),
    }
    written = {record.key: record for record in topics.read(raw)}
    headers = dead[b"bad"][1]
    origin = tuple(headers[f"penstock.{name}"].decode() for name in ("topic", "partition", "offset", "stage"))
    assert origin == (raw, str(written[b"bad"].partition), str(written[b"bad"].offset), "clean")
    clean_stage, named_stage = first.progress.stages.values()
    assert (clean_stage.rows_in, clean_stage.rows_out, clean_stage.dead_letters, clean_stage.state) == (6, 6, 3, "done")
    assert (named_stage.rows_in, named_stage.rows_out, named_stage.dead_letters, named_stage.lag) == (3, 3, 0, 0)
    assert topics.partitions(f"{raw}.clean") == [0, 1] and topics.partitions(f"{raw}.dead") == [0]

    topics.write(raw, [order(4)])
    again = run_once()
    assert sorted(topics.values(f"{raw}.named")) == sorted([*named, order(4)[1] + b" Ada"])
    assert again.progress.stages["clean"].rows_in == 1
    assert sum(topics.committed(f"{pipeline.name}.clean", raw).values()) >= 6, "the stage's group shows how far it is"


@pytest.mark.invariant("pipeline.table-fresh")
def test_a_table_stays_fresh_under_a_running_query_and_a_stop_is_clean(spark, node, topics, tmp_path: Path) -> None:
    from penstock.pipeline.running import Plan, Run

    raw, customers = topics.create(), topics.create(cleanup_policy="compact")
    topics.write(customers, [(b"c1", b"Ada"), (b"c2", b"Bela")])
    topics.write(raw, [order(1), order(2, "c2"), (b"bad", b"{oops")])
    stage = Stage("named", FromTopic(raw), with_known_form, ToTopic(f"{raw}.named"), dead_letters=f"{raw}.dead", trigger="0 seconds")
    pipeline = Pipeline(f"fresh-{raw[-6:]}", [stage])
    run = Run(pipeline, spark, Plan(node.bootstrap, str(tmp_path), {"customers": customers}))
    run.start()
    (query,) = spark.streams.active
    query.processAllAvailable()
    topics.write(customers, [(b"c1", b"Ada Abel"), (b"c2", None), (b"c3", b"Carl")])
    topics.write(raw, [order(3), order(4, "c2"), order(5, "c3")])
    query.processAllAvailable()
    told = run.progress.stages["named"]
    until(lambda: (told.rows_in, told.rows_out, told.dead_letters) == (6, 6, 1), lambda: f"what its batches did is told: {told}")
    assert topics.values(f"{raw}.dead") == [b"{oops"]
    stopping = threading.Event()
    looks = []
    run.wait(stopping, lambda: (looks.append((told.state, told.dead_letters)), stopping.set()))
    run.stop()
    assert looks == [("running", 1)] and (told.state, told.dead_letters) == ("stopped", 1) and not spark.streams.active
    assert query.exception() is None
    names = [
        order(1)[1] + b" Ada",
        order(2, "c2")[1] + b" Bela",
        order(3)[1] + b" Ada Abel",
        order(4, "c2")[1],
        order(5, "c3")[1] + b" Carl",
    ]
    assert topics.values(f"{raw}.named") == names


@pytest.mark.invariant("pipeline.failed-stage-ends-pipeline")
def test_a_stage_that_fails_ends_the_pipeline_in_words(spark, node, topics, tmp_path: Path) -> None:
    from penstock.pipeline.running import Plan, Run

    raw = topics.create()
    topics.write_values(raw, 1)

    def refuse(batch, number, context) -> None:
        raise PipelineComplaint("the warehouse is closed", "come back at nine")

    def quiet(context):
        return context.spark.readStream.format("rate").load()

    stages = [
        Stage("idle", FromFrame(quiet), lambda frame, context: frame, ToBatches(lambda batch, number, context: None)),
        Stage("closed", FromTopic(raw), lambda frame, context: frame, ToBatches(refuse)),
    ]
    run = Run(Pipeline("failing", stages), spark, Plan(node.bootstrap, str(tmp_path)))
    run.start()
    with pytest.raises(PipelineComplaint, match="stage 'closed' of the pipeline 'failing' failed: the warehouse is closed") as failed:
        run.wait(threading.Event())
    assert failed.value.advice == "come back at nine"
    assert not spark.streams.active
    assert {stage.name: stage.state for stage in run.progress.stages.values()} == {"idle": "stopped", "closed": "failed"}


def test_what_cannot_work_is_refused_before_anything_starts(spark, node, topics, tmp_path: Path) -> None:
    from penstock.pipeline.running import Plan, Run

    raw = topics.create()

    def run_with(stage: Stage) -> None:
        run = Run(Pipeline("refused", [stage]), spark, Plan(node.bootstrap, str(tmp_path)))
        run.start()
        run.wait(threading.Event())

    def reasoned(frame, context):
        return frame.selectExpr("value", "'why' AS reason")

    with pytest.raises(PipelineComplaint, match="reads the topic 'nowhere', which is not there"):
        run_with(Stage("a", FromTopic("nowhere"), lambda frame, context: frame, ToTopic(f"{raw}.a")))
    with pytest.raises(PipelineComplaint, match="no value but offset"):
        run_with(Stage("a", FromTopic(raw), lambda frame, context: frame.select("offset"), ToTopic(f"{raw}.b")))
    with pytest.raises(PipelineComplaint, match="finds dead letters and has no topic"):
        run_with(Stage("a", FromTopic(raw), reasoned, ToTopic(f"{raw}.c")))
    with pytest.raises(PipelineComplaint, match="stage 'a' of the pipeline 'refused' failed: maxOffsetsPerTrigger is 'some'"):
        run_with(Stage("a", FromTopic(raw, options={"maxOffsetsPerTrigger": "some"}), lambda frame, context: frame, ToTopic(f"{raw}.d")))
    with pytest.raises(PipelineComplaint, match="every 'banana', which is no span of time"):
        run_with(Stage("a", FromTopic(raw), lambda frame, context: frame, ToTopic(f"{raw}.e"), trigger="banana"))
    assert not spark.streams.active


def test_a_stop_ends_what_spark_works_at_for_a_job(spark) -> None:
    from penstock.pipeline.launching import cut_short

    stopping, done = threading.Event(), threading.Event()
    with cut_short(spark, "endless", stopping, grace_s=0.0) as look:

        def is_over() -> bool:
            look()
            if spark.sparkContext.statusTracker().getJobIdsForGroup("endless"):
                stopping.set()
            return done.is_set()

        def watch() -> None:
            until(is_over, "the job is cut short")

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            spark.range(10**14).selectExpr("sum(hash(id))").collect()
        finally:
            done.set()
            watching.join()
        raise AssertionError("it came to its end")
    assert stopping.is_set()
    with pytest.raises(ValueError, match="its own"), cut_short(spark, "fails", stopping, grace_s=0.0):
        raise ValueError("its own")


@pytest.mark.invariant("pipeline.row-written-or-buried")
def test_rows_go_where_the_sink_says_and_not_back_to_where_they_came_from(spark, node, topics, tmp_path: Path) -> None:
    from penstock.pipeline.running import Plan, Run

    raw, other = topics.create(partitions=2), topics.create(partitions=3)
    topics.write_values(raw, 3, partition=1)

    def routed(frame, context):
        return frame.selectExpr("*", f"if(value = '2', '{other}', null) AS place", "2 AS seat")

    stages = [
        Stage("plain", FromTopic(raw), lambda frame, context: frame, ToTopic(f"{raw}.plain", partitions=1)),
        Stage("routed", FromTopic(raw), routed, ToTopic(f"{raw}.rest", 3, topic_column="place", partition_column="seat")),
    ]
    run = Run(Pipeline(f"routes-{raw[-6:]}", stages), spark, Plan(node.bootstrap, str(tmp_path), is_once=True))
    run.start()
    run.wait(threading.Event())
    run.stop()
    assert len(topics.values(raw)) == 3 and topics.values(f"{raw}.plain") == [b"0", b"1", b"2"]
    assert [(record.partition, record.value) for record in topics.read(other)] == [(2, b"2")]
    assert [(record.partition, record.value) for record in topics.read(f"{raw}.rest")] == [(2, b"0"), (2, b"1")]


@pytest.mark.invariant("pipeline.reports-every-batch-once")
def test_batches_that_spark_tells_of_too_late_count_once(spark, node, topics, tmp_path: Path) -> None:
    """Spark calls its listeners one after the other: one that takes its time keeps the pipeline's own from hearing of anything."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    from penstock.pipeline.running import Plan, Run

    released, ended = threading.Event(), threading.Event()

    class Dawdler(StreamingQueryListener):
        def onQueryStarted(self, event):
            pass

        def onQueryProgress(self, event):
            released.wait(PATIENCE_S)

        def onQueryIdle(self, event):
            pass

        def onQueryTerminated(self, event):
            ended.set()

    raw = topics.create()
    topics.write_values(raw, 5)
    stage = Stage("late", FromTopic(raw, options={"maxOffsetsPerTrigger": "2"}), lambda frame, context: frame, ToTopic(f"{raw}.late"))
    run = Run(Pipeline(f"late-{raw[-6:]}", [stage]), spark, Plan(node.bootstrap, str(tmp_path), is_once=True))
    dawdler = Dawdler()
    spark.streams.addListener(dawdler)
    try:
        run.start()
        run.wait(threading.Event())
        run.stop()
        told = run.progress.stages["late"]
        assert (told.batches, told.rows_in, told.rows_out, told.lag, told.state) == (3, 5, 5, 0, "done")
        released.set()
        assert ended.wait(PATIENCE_S)
        assert (told.batches, told.rows_in, told.rows_out, told.lag, told.state) == (3, 5, 5, 0, "done"), "what came late is left alone"
    finally:
        released.set()
        spark.streams.removeListener(dawdler)
