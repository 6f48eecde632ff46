"""A pipeline in a process of its own that loses a Python worker, and then its driver with the JVM, at random moments.

What is left is done in the session of the tests, with the same checkpoints: every order comes out once, every raw record is archived once.
Many kills, and starts of the process after each, are in test_orders_kill.py and test_lake_kill.py. PENSTOCK_SEED takes another course.
"""

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from job_runs import run_job
from orders_reckoning import check_everything
from pipeline_process import PipelineProcess
from pipeline_topics import Topics
from waiting import pause_at_random

from penstock.pipeline.examples.orders import OrderBook, Outcome
from penstock.pipeline.examples.writing import write_customers, write_orders
from penstock.pipeline.lake.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

SEED = int(os.environ.get("PENSTOCK_SEED", "0"))
PREFIX = "killed"
BEFORE, MEANWHILE, AFTER = 1_000, 1_000, 4_500  # Twenty minutes of orders in all: revenue waits for fifteen.


@pytest.mark.invariant("pipeline.end-to-end-once", "lake.kill-leaves-whole-table")
def test_a_killed_pipeline_neither_loses_nor_doubles_an_order(
    spark: "SparkSession", topics: Topics, spark_settings: dict[str, str], tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    book, expected = OrderBook(seed=11, customers=30), Outcome()
    raw, target = f"{PREFIX}.raw", str(tmp_path / "archive")
    write_customers(topics.bootstrap, book, topic=f"{PREFIX}.customers")

    def write(count: int) -> None:
        orders = list(book.orders(count, first=sum(expected.kinds.values())))
        expected.add(orders)
        write_orders(topics.bootstrap, orders, topic=raw)

    wanted = {"topics": PREFIX, "customers": f"{PREFIX}.customers", "to": target, "rows": "250"}
    arguments = [part for name, value in wanted.items() for part in ("--set", f"{name}={value}")]
    settings = spark_settings | {"spark.master": "local[2,3]"}
    directory, job = tmp_path / "process", "tests.pipeline.killed_job:JOB"
    directory.mkdir()
    write(BEFORE)
    with PipelineProcess(topics.bootstrap, job, directory, *arguments, "--trigger", "100 milliseconds", settings=settings) as process:
        for name in ("valid", "enriched"):
            process.until(lambda topic=f"{PREFIX}.{name}": topic in topics.names() and bool(topics.values(topic)), name)  # type: ignore[misc]
        process.until(lambda: archived_rows(target) > 0, "an archive")
        write(MEANWHILE)
        assert process.kill_a_fork(rng, "pyspark.worker")
        pause_at_random(rng, 0.0, 1.0)  # Spark tries again what the worker did, or the pipeline ends.
        process.kill_driver()
        write(AFTER)
        resume(spark, topics.bootstrap, directory, wanted)  # While workers of the dead driver may still write.
    check_everything(topics, PREFIX, expected)
    for stage, topic in (("validated", "raw"), ("enriched", "valid"), ("revenue", "enriched")):
        ends = {partition: end for partition, end in topics.ends(f"{PREFIX}.{topic}").items() if end}
        assert topics.committed(f"killed.{stage}", f"{PREFIX}.{topic}") == ends, "its lag is nothing, and any tool can see it"
    written = sorted((record.partition, record.offset) for record in topics.read(raw))
    rows = ds.dataset(target, format="parquet", partitioning="hive").to_table(["partition", "offset"]).to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in rows) == written
    assert spark.read.parquet(target).count() == archived_rows(target) == len(written)


def resume(spark: "SparkSession", bootstrap: str, directory: Path, wanted: dict[str, str]) -> None:
    """Takes all that there is, and ends."""
    from pipeline.killed_job import JOB

    run_job(JOB, spark, bootstrap, str(directory / "killed" / "checkpoints"), **wanted | {"rows": "100000"})


def archived_rows(path: str) -> int:
    return open_table(path, "parquet").snapshot().rows
