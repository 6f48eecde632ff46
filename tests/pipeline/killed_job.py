"""A job for the test that kills it: the stages of `orders`, and an archive of what they read, in one process.

Found by `penstock pipeline run tests.pipeline.killed_job:JOB` from the root of the repository.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.pipeline.jobs import archive, orders
from penstock.pipeline.pipeline import Job, JobOption, Pipeline
from penstock.pipeline.stage import Context, FromFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

def pipeline(options: Mapping[str, str]) -> Pipeline:
    wanted = {"topics": f"{options['topics']}.raw", "to": options["to"], "rows": options["rows"], "every": "0 seconds"}
    told = archive.JOB.filled(wanted | {"compact-every": "4"})
    (files,) = archive.pipeline(told).stages

    def records(context: Context) -> "DataFrame":
        return archive.records(replace(context, options=told))

    def dated(frame: "DataFrame", context: Context) -> "DataFrame":
        return archive.dated(frame, replace(context, options=told))

    return Pipeline("killed", [*orders.pipeline(options).stages, replace(files, source=FromFrame(records), step=dated)])


JOB = Job(
    "killed",
    "orders, and an archive of the raw ones",
    options=(*orders.JOB.options, JobOption("to", "the path of the archive")),
    build=pipeline,
)
