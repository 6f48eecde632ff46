"""`orders` on a real node: everything from raw orders to revenue, resumed from its checkpoints, seen by its groups."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from orders_reckoning import check_everything

from penstock.pipeline.examples.orders import OrderBook, Outcome
from penstock.pipeline.examples.writing import write_customers, write_orders

if TYPE_CHECKING:
    from pipeline_topics import Topics
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.needs("spark"), pytest.mark.spark, pytest.mark.invariant("pipeline.end-to-end-once")]

STAYS = "tests/pipeline/test_killed_pipeline.py::test_a_killed_pipeline_neither_loses_nor_doubles_an_order"

PREFIX = "orders-whole"


@pytest.mark.slow(stays=STAYS)  # The same assertions, with a run that nothing happens to.
def test_orders_come_out_once_whatever_comes_in_and_a_second_run_goes_on(spark: "SparkSession", topics: "Topics", tmp_path: Path) -> None:
    from penstock.pipeline.jobs.orders import JOB
    from penstock.pipeline.running import Plan, Run

    options = JOB.filled({"topics": PREFIX, "customers": f"{PREFIX}.customers"})
    plan = Plan(topics.bootstrap, str(tmp_path), options, is_once=True)
    book, expected = OrderBook(seed=11, customers=30), Outcome()
    write_customers(topics.bootstrap, book, topic=f"{PREFIX}.customers")
    for first in (0, 4_000):
        orders = list(book.orders(4_000, first=first))
        expected.add(orders)
        write_orders(topics.bootstrap, orders, topic=f"{PREFIX}.raw")
        assert JOB.build is not None
        run = Run(JOB.build(options), spark, plan)
        run.start()
        run.wait(threading.Event())
        run.stop()
    check_everything(topics, PREFIX, expected)
    assert run.progress.stages["validated"].dead_letters > 0
    for stage, topic in (("validated", "raw"), ("enriched", "valid"), ("revenue", "enriched")):
        ends = {partition: end for partition, end in topics.ends(f"{PREFIX}.{topic}").items() if end}
        assert topics.committed(f"orders.{stage}", f"{PREFIX}.{topic}") == ends, "its lag is nothing, and any tool can see it"
