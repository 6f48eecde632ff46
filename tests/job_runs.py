"""Jobs run in the shared session, as the command line runs them in one of its own; and a job that a user might have."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.pipeline.pipeline import BatchContext, Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The text of a module `shop`: `penstock pipeline run shop:JOB`.
SHOP = """
from penstock.pipeline import FromTopic, Job, JobOption, Pipeline, Stage, ToTopic

def shouted(frame, context):
    return frame.selectExpr("key", "cast(upper(cast(value as string)) as binary) AS value")

def pipeline(options):
    return Pipeline("shop", [Stage("loud", FromTopic(options["raw"]), shouted, ToTopic(options["raw"] + ".loud"))])

JOB = Job("shop", "shouts", (JobOption("raw", "the topic to read"),), build=pipeline)
"""


@dataclass(slots=True)
class Told:
    """What a job said and counted."""

    lines: list[str] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)

    def count(self, what: str, number: float) -> None:
        self.counts[what] = self.counts.get(what, 0) + number


def run_job(
    job: Job,
    spark: "SparkSession",
    bootstrap: str,
    checkpoint: str,
    *,
    is_stopping: Callable[[Told], bool] = lambda told: False,
    **given: str,
) -> Told:
    """Runs it with these options (an underscore stands for a dash) until it is done; a pipeline takes what there is, and ends."""
    options = job.filled({name.replace("_", "-"): value for name, value in given.items()})
    told = Told()
    if job.run is not None:
        job.run(BatchContext(spark, bootstrap, options, checkpoint, told.lines.append, told.count, lambda: is_stopping(told)))
        return told
    from penstock.pipeline.running import Plan, Run

    assert job.build is not None
    run = Run(job.build(options), spark, Plan(bootstrap, checkpoint, options, is_once=True))
    run.start()
    try:
        run.wait(threading.Event())
    finally:
        run.stop()
    told.counts["rows"] = sum(stage.rows_out for stage in run.progress.stages.values())
    return told
