"""The same pipelines on Apache Kafka: nothing but the address is another. `make soak` runs them; `make test` has the sink there."""

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from apache_kafka import apache_kafka
from orders_reckoning import check_everything
from pipeline_topics import Topics

from penstock.pipeline.examples.orders import OrderBook, Outcome
from penstock.pipeline.examples.writing import write_customers, write_orders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ON_KAFKA = pytest.mark.soak(only_here="pipelines on Apache Kafka; `make test` has the sink there")
pytestmark = [pytest.mark.needs("spark"), pytest.mark.spark, ON_KAFKA]

PREFIX = "elsewhere"


def test_orders_and_traffic_run_on_apache_kafka_by_another_address(spark: "SparkSession", tmp_path: Path) -> None:
    with apache_kafka(tmp_path) as bootstrap, Topics(bootstrap) as topics:
        book = OrderBook(seed=31, customers=20)
        orders = list(book.orders(6_000))
        write_customers(bootstrap, book, topic=f"{PREFIX}.customers")
        write_orders(bootstrap, orders, topic=f"{PREFIX}.raw")
        run_orders(spark, bootstrap, tmp_path)
        check_everything(topics, PREFIX, Outcome().add(orders))
        ends = {partition: end for partition, end in topics.ends(f"{PREFIX}.raw").items() if end}
        assert topics.committed("orders.validated", f"{PREFIX}.raw") == ends

        said = report_traffic(spark, bootstrap, tmp_path)
        assert f"{PREFIX}.raw: {len(orders)} records" in said[0]
        html = (tmp_path / "traffic.html").read_text()
        assert "orders.validated" in html, "the group's lag, seen by Kafka's own protocol"
        samples = [json.loads(value or b"") for value in topics.values("penstock.traffic")]
        assert {sample["committed"] for sample in samples if sample["group"] == "orders.validated"} == set(ends.values())


def run_orders(spark: "SparkSession", bootstrap: str, tmp_path: Path) -> None:
    from penstock.pipeline.jobs.orders import JOB
    from penstock.pipeline.running import Plan, Run

    options = JOB.filled({"topics": PREFIX, "customers": f"{PREFIX}.customers"})
    assert JOB.build is not None
    run = Run(JOB.build(options), spark, Plan(bootstrap, str(tmp_path / "checkpoints"), options, is_once=True))
    run.start()
    run.wait(threading.Event())
    run.stop()


def report_traffic(spark: "SparkSession", bootstrap: str, tmp_path: Path) -> list[str]:
    from penstock.pipeline.jobs.traffic import JOB
    from penstock.pipeline.pipeline import BatchContext

    said: list[str] = []
    report = str(tmp_path / "traffic.html")
    options = JOB.filled({"topics": f"{PREFIX}.raw", "report": report, "watch": "100ms", "event-time": "ordered_at"})
    assert JOB.run is not None
    JOB.run(BatchContext(spark, bootstrap, options, str(tmp_path), said.append, lambda name, number: None, lambda: False))
    return [line for line in said if "records" in line]
