"""`archive` and `replay` killed with all their processes while they work: resumed, every record is there once, and in order.

A round lets the job come some way in a process of its own, and kills the whole family at a random moment. What is left is done in the
session of the tests, with the same checkpoint. PENSTOCK_SEED takes another course.
"""

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from job_runs import run_job
from lake_rows import seen
from pipeline_process import PipelineProcess
from pipeline_topics import Topics
from waiting import pause_at_random

from penstock.pipeline.jobs import archive, replay
from penstock.pipeline.lake.table import open_table
from penstock.pipeline.pipeline import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800), pytest.mark.invariant("lake.kill-leaves-whole-table")]

SEED = int(os.environ.get("PENSTOCK_SEED", "0"))
STAYS = "tests/pipeline/test_killed_pipeline.py::test_a_killed_pipeline_neither_loses_nor_doubles_an_order"
REPLAY = [pytest.mark.soak(only_here="kills of a replay"), pytest.mark.timeout(3_600)]
soak = [pytest.mark.soak(stays=STAYS), pytest.mark.timeout(3_600)]
ROWS = 6_000


class Killed:
    """A job in a process of its own, killed before it is done and resumed in the session of the tests."""

    def __init__(self, job: Job, spark: "SparkSession", topics: Topics, directory: Path, settings: dict[str, str]) -> None:
        directory.mkdir()
        self._job, self._spark, self._topics, self._directory, self._settings = job, spark, topics, directory, settings

    def at(self, far_enough: Callable[[], bool], rng: random.Random, **given: str) -> None:
        arguments = [part for name, value in given.items() for part in ("--set", f"{name.replace('_', '-')}={value}")]
        settings = self._settings | {"spark.master": "local[2,3]"}
        bootstrap = self._topics.bootstrap
        with PipelineProcess(bootstrap, self._job.name, self._directory, *arguments, settings=settings) as process:
            process.until(far_enough, "some way")
            pause_at_random(rng, 0.0, 0.5)  # Anywhere within a batch.
            process.kill_all()

    def resumed(self, **given: str) -> None:
        checkpoint = self._directory / self._job.name / "checkpoints"
        run_job(self._job, self._spark, self._topics.bootstrap, str(checkpoint), **given)


def archived_rows(path: str) -> int:
    return open_table(path, "parquet").snapshot().rows


@pytest.mark.parametrize("rounds", [pytest.param(1, marks=pytest.mark.slow(stays=STAYS)), pytest.param(10, marks=soak)])
def test_an_archive_that_is_killed_holds_every_record_once(
    spark: "SparkSession", topics: Topics, spark_settings: dict[str, str], tmp_path: Path, rounds: int
) -> None:
    rng = random.Random(SEED)
    topic, target = topics.create(), str(tmp_path / "archive")
    wanted = {"topics": topic, "to": target, "rows": "100", "every": "0 seconds", "compact_every": "4"}
    job = Killed(archive.JOB, spark, topics, tmp_path / "process", spark_settings)
    for number in range(rounds):
        topics.write_values(topic, ROWS // 2, first=number * ROWS)
        enough = number * ROWS + rng.randrange(400, 1_200)
        job.at(lambda enough=enough: archived_rows(target) >= enough, rng, **wanted)  # type: ignore[misc]
        topics.write_values(topic, ROWS // 2, first=number * ROWS + ROWS // 2)  # However late it was killed, something is left to do.
    job.resumed(**wanted | {"rows": "100000"})
    assert seen(target) == list(range(ROWS * rounds))
    assert spark.read.parquet(target).count() == ROWS * rounds
    assert archived_rows(target) == ROWS * rounds


@pytest.mark.invariant("lake.replay-once-in-order")
@pytest.mark.parametrize("rounds", [pytest.param(5, marks=REPLAY)])
def test_a_replay_that_is_killed_writes_every_record_once_and_in_order(
    spark: "SparkSession", topics: Topics, spark_settings: dict[str, str], tmp_path: Path, rounds: int
) -> None:
    rng = random.Random(SEED)
    topic, to, target = topics.create(), topics.create(), str(tmp_path / "archive")
    topics.write_values(topic, ROWS)
    run_job(archive.JOB, spark, topics.bootstrap, str(tmp_path / "archived"), topics=topic, to=target)
    wanted = {"from": target, "to": to, "rows": "100", "rate": "100"}
    job = Killed(replay.JOB, spark, topics, tmp_path / "process", spark_settings)

    def has_more(than: int) -> bool:
        return len(topics.read(to)) > than

    for _ in range(rounds):
        job.at(partial(has_more, len(topics.read(to)) + rng.randrange(100, 600)), rng, **wanted)
    assert len(topics.read(to)) < ROWS, "it was killed too late"
    job.resumed(**wanted | {"rate": "0", "rows": "100000"})
    assert [int(value or b"") for value in topics.values(to)] == list(range(ROWS))
