"""The same job on a Spark cluster: a master and two workers that have no Penstock, one command, and a packed environment."""

import subprocess
import tarfile
from pathlib import Path

import pytest
from orders_reckoning import check_everything
from pipeline_topics import Topics
from spark_cluster import bare_environment, standalone_cluster
from spark_home import JAVA_OPTIONS, cluster_home

from penstock.pipeline.examples.orders import OrderBook, Outcome
from penstock.pipeline.examples.writing import write_customers, write_orders
from penstock.pipeline.packing import pack
from penstock.testing.brokers import Broker

pytestmark = [
    pytest.mark.needs("spark"),
    pytest.mark.paired,
    pytest.mark.slow(stays="tests/pipeline/test_packing.py::test_a_packed_environment_runs_a_job_on_a_cluster"),
]

PREFIX = "on-cluster"


def test_a_cluster_without_penstock_runs_orders_from_one_command(node: Broker, tmp_path: Path) -> None:
    book = OrderBook(seed=21, customers=20)
    orders = list(book.orders(6_000))
    write_customers(node.bootstrap, book, topic=f"{PREFIX}.customers")
    write_orders(node.bootstrap, orders, topic=f"{PREFIX}.raw")
    archive = pack(tmp_path / "environment.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "environment", filter="fully_trusted")  # As the guide says: the driver has a copy beside it.
    home = cluster_home(tmp_path)
    with standalone_cluster(home, tmp_path) as master, Topics(node.bootstrap) as topics:
        # The guide's command, with less memory and a simpler compiler.
        command = [
            home / "bin" / "spark-submit", "--master", master, "--archives", "environment.tar.gz#environment",
            "--executor-memory", "768m", "--driver-memory", "768m", "--driver-java-options", JAVA_OPTIONS,
            "--conf", f"spark.executor.extraJavaOptions={JAVA_OPTIONS}", "environment/submit.py",
            "pipeline", "run", "orders", "--once", "--bootstrap", node.bootstrap, "--checkpoints", tmp_path / "checkpoints",
            "--directory", tmp_path / "state", "--set", f"topics={PREFIX}", "--set", f"customers={PREFIX}.customers",
            "--conf", "spark.sql.shuffle.partitions=2",
        ]  # fmt: skip
        environment = bare_environment(home) | {"PYSPARK_PYTHON": "./environment/bin/python"}
        done = subprocess.run(list(map(str, command)), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4_000:] + done.stdout[-2_000:]
        check_everything(topics, PREFIX, Outcome().add(orders))
    unpacked = list(tmp_path.glob("worker-*/app-*/*/environment/bin/python"))
    assert len({path.relative_to(tmp_path).parts[0] for path in unpacked}) == 2, "both workers had an executor, with its own environment"
