"""Progress as Spark tells it, added up; as lines, as metrics, and as what another process reads."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.failures import told_by
from penstock.pipeline.metrics import MetricsServer, metrics_text
from penstock.pipeline.progress import PipelineProgress, StageProgress, lag_of, lines

# As Spark 4.3 tells of one batch, shortened.
BATCH: dict[str, Any] = {
    "name": "orders.validated", "batchId": 3, "numInputRows": 1000, "processedRowsPerSecond": 2500.4,
    "durationMs": {"addBatch": 300, "triggerExecution": 400},
    "sources": [{
        "endOffset": {"raw": {"0": 900, "1": 100}, "topic ids": {"raw": "AAAA"}},
        "latestOffset": {"raw": {"0": 950, "1": 107, "2": 3}, "topic ids": {"raw": "AAAA"}},
    }],
    "observedMetrics": {"penstock": {"rows": 990, "dead_letters": 7}},
}  # fmt: skip
QUIET = {"numInputRows": 0, "durationMs": {"latestOffset": 1, "triggerExecution": 2}, "sources": [], "observedMetrics": {}}


def test_batches_add_up_and_the_last_one_gives_the_pace() -> None:
    stage = StageProgress("validated")
    stage.absorb(BATCH)
    stage.absorb(BATCH | {"processedRowsPerSecond": 10.0})
    assert (stage.batches, stage.rows_in, stage.rows_out, stage.dead_letters) == (2, 2000, 1980, 14)
    assert (stage.state, stage.rows_per_second, stage.batch_ms, stage.lag) == ("running", 10.0, 400, 60)


def test_a_quiet_moment_is_no_batch() -> None:
    stage = StageProgress("validated")
    stage.absorb(BATCH)
    stage.absorb(QUIET)
    assert (stage.batches, stage.rows_in, stage.rows_per_second, stage.lag) == (1, 1000, 0.0, None)


@pytest.mark.parametrize(("sources", "lag"), [
    ([{"endOffset": '{"raw": {"0": 4}}', "latestOffset": '{"raw": {"0": 10}}'}], 6),
    ([{"endOffset": {"raw": {"0": 12}}, "latestOffset": {"raw": {"0": 10}}}], 0),
    ([{"endOffset": 17, "latestOffset": 20}], None),
    ([{"endOffset": "not json", "latestOffset": None}], None),
    ([{"endOffset": None, "latestOffset": None}, {"endOffset": {"a": {"0": 1}}, "latestOffset": {"a": {"0": 3}}}], 2),
])  # fmt: skip
def test_lag_is_counted_where_offsets_are_told_as_kafkas_are(sources: list[dict[str, Any]], lag: int | None) -> None:
    assert lag_of(sources) == lag


def whole() -> PipelineProgress:
    stage = StageProgress("validated")
    stage.absorb(BATCH)
    return PipelineProgress("orders", {"validated": stage}, counts={"rows": 12.0}, started_ms=1, at_ms=2)


def test_progress_survives_the_way_through_a_file() -> None:
    assert PipelineProgress.from_json(json.loads(json.dumps(whole().as_json()))) == whole()


def test_a_line_tells_pace_lag_batch_time_and_dead_letters() -> None:
    line, counted = lines(whole())
    for told in ("validated", "2,500 rows/s", "lag        60", "400 ms", "1,000 in", "990 out", "7 dead"):
        assert told in line
    assert counted == "rows 12"


def test_metrics_are_served_as_prometheus_reads_them() -> None:
    progress = whole()
    with MetricsServer("127.0.0.1", 0, lambda: metrics_text(progress)) as server:
        page = urllib.request.urlopen(f"http://{server.address}/metrics").read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{server.address}/")
        with pytest.raises(PipelineComplaint, match="choose another port"):
            MetricsServer("127.0.0.1", int(server.address.rpartition(":")[2]), str)
    labels = '{pipeline="orders",stage="validated"}'
    assert f"penstock_pipeline_dead_letters_total{labels} 7\n" in page
    assert f"penstock_pipeline_batch_seconds{labels} 0.4\n" in page
    assert 'penstock_pipeline_job_total{pipeline="orders",what="rows"} 12\n' in page
    named = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(named) == len(set(named)) and all(line.startswith(("#", "penstock_pipeline_")) for line in page.splitlines())


def test_a_label_cannot_break_out_of_its_quotes() -> None:
    odd = PipelineProgress('a"b\\c\nd', {}, counts={"rows": 1.0})
    assert 'pipeline="a\\"b\\\\c\\nd"' in metrics_text(odd)


JAVA = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 in stage 1.0 failed
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 12, in main
    process()
penstock.pipeline.options.WrongOption: kafka.acks is '7'
  write 0, 1 or all

\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:1)
"""


def test_what_a_worker_said_is_found_in_sparks_pages() -> None:
    assert told_by(Exception(JAVA)) == ("kafka.acks is '7'", "write 0, 1 or all")
    other = JAVA.replace("penstock.pipeline.options.WrongOption: kafka.acks is '7'\n  write 0, 1 or all", "builtins.ValueError: no number")
    assert told_by(Exception(other))[0] == "ValueError: no number"


@pytest.mark.invariant("pipeline.failed-stage-ends-pipeline")
def test_what_went_wrong_first_counts_before_what_a_clean_up_made_of_it() -> None:
    afterwards = 'During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File "x"\n'
    assert told_by(Exception(f"{JAVA}\n{afterwards}UnboundLocalError: cannot access local variable 'reader'"))[0] == "kafka.acks is '7'"


def test_a_failure_of_sparks_own_keeps_its_first_sentence() -> None:
    assert (
        told_by(Exception("[TABLE_NOT_FOUND] The table `t` is not there. SQLSTATE: 42P01\nat org.apache"))[0]
        == "The table `t` is not there."
    )
