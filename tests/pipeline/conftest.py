"""What the tests of the pipeline share: one Spark session, one real node, and a plain Kafka client that writes and reads beside Spark.

A session costs seconds of both cores, so that there is one: tests that ask for `spark` carry the marker `spark`, and one worker runs all
files that have it (tests/schedule.py). Tests keep apart by topics, query names and checkpoints in `tmp_path`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pipeline_topics import Topics
    from pyspark.sql import SparkSession

    from penstock.testing.brokers import Broker

TEST_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",  # What a test wants to see of a failure is in its exception.
}


@pytest.fixture(scope="session")
def spark_settings() -> dict[str, str]:
    """What the session is started with beside those of penstock.pipeline.session; also for tests that start a Spark of their own."""
    from ports import free_port
    from spark_home import SOONER

    connect = {"spark.connect.grpc.binding.port": str(free_port())}  # For the one test that starts that server inside of a session.
    return TEST_SETTINGS | SOONER | connect


@pytest.fixture(scope="session")
def _one_spark(spark_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    from spark_home import WARM_DAEMON, byte_compiled_home

    from penstock.pipeline.session import session

    settings = spark_settings | WARM_DAEMON | {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    with byte_compiled_home(tmp_path_factory.mktemp("spark")):
        running = session("penstock-tests", master="local[2,3]", settings=settings)
        yield running
        running.stop()


@pytest.fixture
def spark(request: pytest.FixtureRequest, _one_spark: "SparkSession") -> Iterator["SparkSession"]:
    """The shared session on local[2,3]. What a test leaves running is stopped after it."""
    if request.node.get_closest_marker("spark") is None:
        pytest.fail("a test with the session must carry the marker `spark`: pytestmark = pytest.mark.spark", pytrace=False)
    yield _one_spark
    for query in _one_spark.streams.active:
        query.stop()
    _one_spark.streams.resetTerminated()
    _one_spark.catalog.clearCache()


@pytest.fixture(scope="session")
def node() -> Iterator["Broker"]:
    """A real node that all these tests share; `node.bootstrap` is its address. A test that stops or restarts one starts its own.

    It keeps records of any age: it lives for minutes, and tests write with times of long ago, which retention would find on its rounds.
    """
    from penstock.testing.brokers import broker

    with broker(flush="os", topic_retention_ms=-1) as running:
        yield running


@pytest.fixture
def topics(node: "Broker") -> Iterator["Topics"]:
    """Makes, writes and reads topics of the shared node with the ecosystem's own client."""
    from pipeline_topics import Topics

    with Topics(node.bootstrap) as helper:
        yield helper


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A directory for the checkpoint of one query."""
    return str(tmp_path / "checkpoint")
