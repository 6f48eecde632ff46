"""The jobs that ship, by name. Each file reads top to bottom as source → steps → sink and ends with its `JOB`.

`find` also takes `module:object`, for jobs of your own: a `Job`, a `Pipeline`, or a function from options to a `Pipeline`.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.pipeline import Job, Pipeline


@dataclass(frozen=True, slots=True)
class Shipped:
    """A job that can be listed without loading it, and Spark with it."""

    place: str  # module:object
    summary: str


JOBS = {
    "orders": Shipped("penstock.pipeline.jobs.orders:JOB", "The worked example: raw orders, validated, enriched, revenue per minute."),
    "archive": Shipped("penstock.pipeline.jobs.archive:JOB", "Topics into Parquet files or a Delta table, exactly once."),
    "replay": Shipped("penstock.pipeline.jobs.replay:JOB", "An archive or any table back into a topic, in order for each key."),
    "snapshot": Shipped("penstock.pipeline.jobs.snapshot:JOB", "A compacted topic as a table of the latest values."),
    "traffic": Shipped("penstock.pipeline.jobs.traffic:JOB", "A report on rate, size, lag, latency and key skew of topics."),
    "dead-letters": Shipped(
        "penstock.pipeline.jobs.dead_letters:JOB", "A report on what queues have buried, and a list of what to send back."
    ),
}


def find(name: str) -> Job:
    """The job of that name, or what stands at `module:object`. Modules of the working directory are found, as Python itself does."""
    place = JOBS[name].place if name in JOBS else name
    module, colon, attribute = place.partition(":")
    if not colon:
        raise PipelineComplaint(f"there is no job {name!r}", f"there are {', '.join(JOBS)}; one of your own goes as module:object")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = getattr(import_module(module), attribute)
    except ModuleNotFoundError as absent:
        raise PipelineComplaint(f"{name!r} needs a module that is not there: {absent.name}", "check the name, and PYTHONPATH") from absent
    except AttributeError:
        raise PipelineComplaint(f"the module {module!r} has no {attribute!r}", "check what stands behind the colon") from None
    return _as_job(name, found)


def _as_job(name: str, found: object) -> Job:
    match found:
        case Job():
            return found
        case Pipeline():
            return Job(found.name, found.summary, build=lambda options: found)
        case _ if callable(found):
            made = cast(Callable[[Mapping[str, str]], Pipeline], found)
            return Job(name, (found.__doc__ or "").partition("\n")[0], build=made)
        case _:
            raise PipelineComplaint(f"{name!r} is a {type(found).__name__}", "name a Pipeline, a Job, or a function that makes a Pipeline")
