"""The session: what it was started with, and who may say otherwise."""

import pytest

from penstock.pipeline.session import SPARK_SETTINGS, Place, session, spark_defaults, spark_defaults_conf

ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def test_every_setting_says_why_and_when_not() -> None:
    assert all(row.reason and row.caveat for row in SPARK_SETTINGS)
    assert len({row.name for row in SPARK_SETTINGS}) == len(SPARK_SETTINGS)


def test_rows_for_python_follow_the_largest_value() -> None:
    assert spark_defaults(value_bytes_max=2**20)[ROWS] == "64"
    assert spark_defaults(value_bytes_max=2**30)[ROWS] == "1"
    assert spark_defaults(value_bytes_max=100)[ROWS] == "10000"


def test_a_cluster_gets_nothing_that_suits_one_machine_only() -> None:
    conf = spark_defaults_conf()
    local = [row for row in SPARK_SETTINGS if row.place is Place.LOCAL]
    assert local and not any(row.name in conf for row in local)
    lines = [line for line in conf.splitlines() if not line.startswith("#")]
    assert dict(line.split(" ", 1) for line in lines) == spark_defaults(place=Place.EVERYWHERE)


@pytest.mark.spark
def test_the_session_has_every_setting_and_the_caller_wins(spark) -> None:
    wanted = spark_defaults() | {"spark.driver.extraJavaOptions": spark.conf.get("spark.driver.extraJavaOptions")}
    assert {name: spark.conf.get(name) for name in wanted} == wanted
    assert "-Xss8m" in spark.conf.get("spark.driver.extraJavaOptions")
    assert session(value_bytes_max=2**20) is not None
    try:
        assert spark.conf.get(ROWS) == "64", "a running session takes what can still be changed"
        session(settings={ROWS: "7"})
        assert spark.conf.get(ROWS) == "7"
    finally:
        session()
    assert spark.conf.get(ROWS) == spark_defaults()[ROWS]


@pytest.mark.spark
def test_a_batch_goes_through_python_and_back(spark) -> None:
    frame = spark.range(10).mapInArrow(lambda batches: batches, "id long")
    assert sorted(row.id for row in frame.collect()) == list(range(10))
