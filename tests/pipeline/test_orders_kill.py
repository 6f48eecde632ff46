"""`orders` while its driver and its workers are killed: every order comes out once, and none is lost.

A round writes some orders, waits until the pipeline is at work on them, and kills at a random moment: one of Spark's Python processes, the
driver with its JVM while its workers live on, or the whole family. Whatever ended is started again and goes on from its checkpoints.
The same on Apache Kafka, where its jars can be had: nothing but the address is another.
PENSTOCK_ROUNDS sets how many kills a test takes; PENSTOCK_SEED takes another course.
"""

import os
import random
from functools import partial
from pathlib import Path

import pytest
from apache_kafka import apache_kafka
from orders_reckoning import check_everything, check_orders, check_revenue
from pipeline_process import PipelineProcess
from pipeline_topics import Topics
from spark_home import byte_compiled_home
from waiting import pause_at_random

from penstock.pipeline.examples.orders import OrderBook, Outcome
from penstock.pipeline.examples.writing import write_customers, write_orders
from penstock.testing.brokers import Broker

pytestmark = [
    pytest.mark.needs("spark"),
    pytest.mark.paired,
    pytest.mark.timeout(1_800),  # One at a test would hide that of its parameters.
    pytest.mark.invariant("pipeline.end-to-end-once"),
]

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "3"))
SOAK_ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "50"))
KAFKA_ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "10"))
SEED = int(os.environ.get("PENSTOCK_SEED", "0"))
STAYS = "tests/pipeline/test_killed_pipeline.py::test_a_killed_pipeline_neither_loses_nor_doubles_an_order"
ON_KAFKA = [pytest.mark.soak(only_here="kills on Apache Kafka; `make test` has the sink there"), pytest.mark.timeout(3_600)]
soak = [pytest.mark.soak(stays=STAYS), pytest.mark.timeout(3_600)]
both = pytest.mark.parametrize("rounds", [pytest.param(ROUNDS, marks=pytest.mark.slow(stays=STAYS)), pytest.param(SOAK_ROUNDS, marks=soak)])

PREFIX = "killed"
PORTION = 1_000
KINDS = ("worker", "driver", "worker", "all")  # Workers twice: they cost no new JVM.


@both
def test_kills_of_driver_and_workers_neither_lose_nor_double_an_order(
    node: Broker, spark_settings: dict[str, str], tmp_path: Path, rounds: int
) -> None:
    kill_again_and_again(node.bootstrap, spark_settings, tmp_path, rounds)


@pytest.mark.parametrize("rounds", [pytest.param(KAFKA_ROUNDS, marks=ON_KAFKA)])
def test_kills_neither_lose_nor_double_an_order_on_apache_kafka(spark_settings: dict[str, str], tmp_path: Path, rounds: int) -> None:
    with apache_kafka(tmp_path) as bootstrap:
        kill_again_and_again(bootstrap, spark_settings, tmp_path, rounds)


def kill_again_and_again(bootstrap: str, spark_settings: dict[str, str], tmp_path: Path, rounds: int) -> None:
    rng = random.Random(f"{SEED}/{rounds}")
    book, expected = OrderBook(seed=rounds, customers=50), Outcome()
    write_customers(bootstrap, book, topic=f"{PREFIX}.customers")
    named = {"topics": PREFIX, "customers": f"{PREFIX}.customers", "rows": "500"}
    arguments = [part for name, value in named.items() for part in ("--set", f"{name}={value}")]
    settings = spark_settings | {"spark.master": "local[2,3]"}
    with (
        byte_compiled_home(tmp_path),
        Topics(bootstrap) as topics,
        PipelineProcess(bootstrap, "orders", tmp_path, *arguments, "--trigger", "100 milliseconds", settings=settings) as pipeline,
    ):
        for number in range(rounds):
            before = len(expected.counted)
            orders = list(book.orders(PORTION, first=number * PORTION))
            expected.add(orders)
            write_orders(bootstrap, orders, topic=f"{PREFIX}.raw")
            pipeline.until(partial(has_more, topics, "valid", before), "a batch of this round's orders")
            pause_at_random(rng, 0.0, 1.0)
            kill(pipeline, KINDS[number % len(KINDS)] if number < len(KINDS) else rng.choice(KINDS), rng)
        pipeline.until(partial(has_more, topics, "enriched", len(expected.counted) - 1), "every order")
        check_orders(topics, PREFIX, expected)
        pipeline.until(partial(has_all_revenue, topics), "every minute's revenue")
        assert pipeline.stop() == 0, pipeline.said()[-2_000:]
        check_everything(topics, PREFIX, expected)


def kill(pipeline: PipelineProcess, kind: str, rng: random.Random) -> None:
    if kind == "worker":
        print("killed", pipeline.kill_a_worker(rng))
    elif kind == "driver":
        pipeline.kill_driver()
    else:
        pipeline.kill_all()


def has_more(topics: Topics, stage: str, than: int) -> bool:
    """Whether the topic of a stage has more records than that, of committed transactions."""
    return f"{PREFIX}.{stage}" in topics.names() and len(topics.read(f"{PREFIX}.{stage}")) > than


def has_all_revenue(topics: Topics) -> bool:
    try:
        check_revenue(topics, PREFIX)
    except AssertionError:
        return False
    return True
