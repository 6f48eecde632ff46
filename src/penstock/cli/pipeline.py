"""`penstock pipeline`: run a job on Spark, see how it is doing, stop it. Spark is loaded by `run` alone."""

import os
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.faults import Fault
from penstock.cli.tables import print_json, print_table
from penstock.cli.talking import bootstrap_option, json_option, pairs
from penstock.cli.times import spoken

if TYPE_CHECKING:
    from penstock.pipeline.progress import PipelineProgress
    from penstock.pipeline.state import RunDirectory

DIRECTORY_VARIABLE = "PENSTOCK_PIPELINES"


def default_directory() -> str:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return str(Path(state, "penstock", "pipelines"))


directory_option = click.option(
    "--directory",
    metavar="DIR",
    envvar=DIRECTORY_VARIABLE,
    show_envvar=True,
    help="Where pipelines keep who runs them, how far they are and, unless told otherwise, their checkpoints. "
    "[default: ~/.local/state/penstock/pipelines]",
)


def job_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from penstock.pipeline.jobs import JOBS

    return [name for name in JOBS if name.startswith(incomplete)]


def in_words(command: Callable[..., Any]) -> Callable[..., Any]:
    """Complaints of the pipeline as those of the command line."""

    @wraps(command)
    def worded(*arguments: Any, **options: Any) -> Any:
        from penstock.pipeline.complaints import PipelineComplaint

        try:
            return command(*arguments, **options)
        except PipelineComplaint as complaint:
            raise Fault(complaint.problem, complaint.advice) from complaint

    return worded


@click.group()
def pipeline() -> None:
    """Run data pipelines on Spark, see how they are doing, stop them.

    A pipeline is a list of stages; each reads a topic, changes what it reads, and writes the next topic, exactly once. Stages keep
    checkpoints: a pipeline that was stopped, or killed, goes on where it was. It needs Spark (pip install 'penstock[spark]') and Java 17 or
    newer.

    \b
      penstock pipeline list                       the jobs that ship, and what runs
      penstock pipeline list orders                what a job does and takes
      penstock pipeline run orders                 runs until Ctrl-C, SIGTERM or `stop`
      penstock pipeline run orders --once          takes what there is, and ends
      penstock pipeline run mine.jobs:clean        a pipeline of your own
      penstock pipeline status orders
      penstock pipeline stop orders
      penstock pipeline pack environment.tar.gz    for a cluster that has no Penstock
    """


@pipeline.command("run", context_settings={"max_content_width": 120})
@click.argument("job", shell_complete=job_names)
@click.option("--set", "options", metavar="NAME=VALUE", multiple=True, help="An option of the job; may be repeated.")
@click.option("--once", "is_once", is_flag=True, help="Take what there is, stage after stage, and end.")
@click.option("--trigger", metavar="INTERVAL", help="How often stages look for more, as in '500 milliseconds'. [default: 1 second]")
@click.option("--name", metavar="NAME", help="Run it under another name, with checkpoints and groups of its own.")
@click.option("--master", metavar="URL", help="Where Spark runs, as in spark://host:7077. [default: this machine, local[*]]")
@click.option("--remote", metavar="URL", help="A Spark Connect server instead, as in sc://host:15002.")
@click.option("--conf", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of Spark, before all of ours; may be repeated.")
@click.option("--value-bytes-max", type=click.IntRange(1), metavar="BYTES", help="The largest value that is expected. [default: 65536]")
@click.option("--checkpoints", metavar="DIR", help="Where checkpoints are; on a cluster, storage that all machines reach.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics there, at /metrics; port 0 takes a free one.")
@click.option(
    "--every", type=click.FloatRange(0.1), default=5.0, show_default=True, metavar="SECONDS", help="How often progress is printed."
)
@directory_option
@bootstrap_option
@json_option
@in_words
def run(
    *, job: str, options: tuple[str, ...], is_once: bool, trigger: str | None, name: str | None, master: str | None, remote: str | None,
    settings: tuple[str, ...], value_bytes_max: int | None, checkpoints: str | None, metrics: str | None, every: float,
    directory: str | None, bootstrap: str, as_json: bool,
) -> None:  # fmt: skip
    """Run JOB, which is the name of one that ships, or module:object.

    The object is a Pipeline, a Job, or a function that takes a mapping of options and makes a Pipeline. Modules are looked for in the
    working directory too.

    \b
      penstock pipeline run orders --bootstrap broker:9092 --metrics 127.0.0.1:9095
      penstock pipeline run archive --once --set topics=orders --set to=./archive
      penstock pipeline run orders --master spark://10.0.0.1:7077 --checkpoints /mnt/shared/checkpoints

    Ctrl-C and SIGTERM stop it cleanly: batches that run are finished first, for up to half a minute. A second Ctrl-C ends it at once;
    nothing is lost by that, and what was begun is done again at the next start. The brokers may be Apache Kafka's as well.

    Exit codes: 0 done, or stopped as asked; 1 it failed, and why; 2 wrong usage.
    """
    from penstock.pipeline.jobs import find
    from penstock.pipeline.launching import Launch, Watcher, launch
    from penstock.pipeline.session import require_spark

    if master is not None and remote is not None:
        raise click.UsageError("--master and --remote are two ways to run it: give one")
    require_spark(needs_java=remote is None)
    how = Launch(
        bootstrap, directory or default_directory(), dict(pairs(options, "--set")), name, checkpoints, is_once, trigger, master, remote,
        dict(pairs(settings, "--conf")), value_bytes_max, _metrics_place(metrics),
    )  # fmt: skip
    printer = _Printer(every, as_json)
    progress = launch(find(job), how, Watcher(printer.started, printer.looked, printer.started))
    printer.print(progress)


@pipeline.command("status")
@click.argument("name", required=False)
@directory_option
@json_option
@in_words
def status(*, name: str | None, directory: str | None, as_json: bool) -> None:
    """Show how a pipeline is doing, or all of them.

    Rows a second and batch time are those of the last batch; the other numbers count since it was started. Lag is how far it is behind the
    ends of its topics; `penstock groups describe PIPELINE.STAGE` shows it for each partition.

    \b
      penstock pipeline status
      penstock pipeline status orders --json
    """
    from penstock.pipeline.state import RunDirectory, run_directories

    place = directory or default_directory()
    wanted = run_directories(place) if name is None else [RunDirectory(place, name)]
    known = [(each, each.progress()) for each in wanted]
    if name is not None and known[0][1] is None and not known[0][0].is_running():
        raise Fault(f"no pipeline {name!r} was ever run in {place}", f"run it: penstock pipeline run {name}")
    if as_json:
        return print_json([_as_json(each, progress) for each, progress in known])
    for each, progress in known:
        _print_status(each, progress)


@pipeline.command("list")
@click.argument("job", required=False, shell_complete=job_names)
@directory_option
@json_option
@in_words
def list_(*, job: str | None, directory: str | None, as_json: bool) -> None:
    """List the jobs that ship and whether they run; with JOB, what it does and the options it takes.

    \b
      penstock pipeline list
      penstock pipeline list orders
    """
    from penstock.pipeline.jobs import JOBS
    from penstock.pipeline.state import RunDirectory, run_directories

    if job is not None:
        return _print_job(job, as_json)
    place = directory or default_directory()
    own = [each.pipeline for each in run_directories(place) if each.pipeline not in JOBS]
    rows = [(name, _state(RunDirectory(place, name)), shipped.summary) for name, shipped in JOBS.items()]
    rows += [(name, _state(RunDirectory(place, name)), "") for name in own]
    if as_json:
        return print_json([dict(zip(("name", "state", "summary"), row, strict=True)) for row in rows])
    print_table(("name", "state", "what it does"), rows)


@pipeline.command("stop")
@click.argument("name")
@click.option("--timeout", type=click.FloatRange(0), default=60.0, show_default=True, metavar="SECONDS", help="How long to wait for it.")
@directory_option
@in_words
def stop(*, name: str, timeout: float, directory: str | None) -> None:
    """Stop a pipeline that another process of this machine runs, and wait until it has stopped.

    Batches that run are finished first. What it has read and written stays; `run` goes on from there.

    \b
      penstock pipeline stop orders
    """
    from penstock.pipeline.state import RunDirectory

    RunDirectory(directory or default_directory(), name).stop(timeout)
    click.echo(f"the pipeline {name} has stopped")


@pipeline.command("pack")
@click.argument("file", type=click.Path(dir_okay=False), default="environment.tar.gz")
@click.option("--with", "also", metavar="PACKAGE", multiple=True, help="An installed package that your own jobs need; may be repeated.")
@in_words
def pack_(*, file: str, also: tuple[str, ...]) -> None:
    """Pack Penstock and what it needs into FILE, for a Spark cluster that has neither.

    It holds what is installed here, but not Spark, which a cluster has. Workers need the same Python at the same place.

    \b
      penstock pipeline pack environment.tar.gz
      mkdir environment && tar -xzf environment.tar.gz -C environment
      PYSPARK_PYTHON=./environment/bin/python spark-submit --master spark://host:7077 \\
        --archives environment.tar.gz#environment environment/submit.py \\
        pipeline run orders --bootstrap broker:9092 --checkpoints /mnt/shared/checkpoints
    """
    from penstock.pipeline.packing import pack

    packed = pack(file, also)
    click.echo(f"{packed} ({packed.stat().st_size / 1e6:.0f} MB)")


class _Printer:
    """Progress on standard output, every few seconds while something is new."""

    def __init__(self, every_s: float, as_json: bool) -> None:
        self._every_s, self._as_json = every_s, as_json
        self._at = time.monotonic()
        self._last: object = None

    def started(self, line: str) -> None:
        click.echo(line, err=self._as_json)

    def looked(self, progress: "PipelineProgress") -> None:
        if time.monotonic() - self._at >= self._every_s:
            self._at = time.monotonic()
            self.print(progress)

    def print(self, progress: "PipelineProgress") -> None:
        from penstock.pipeline.progress import lines

        told = progress.as_json()
        told.pop("at_ms")
        if told == self._last:
            return
        self._last = told
        if self._as_json:
            return print_json(told)
        for line in lines(progress):
            click.echo(line)


def _print_status(each: "RunDirectory", progress: "PipelineProgress | None") -> None:
    runner = each.runner()
    metrics = f", metrics at http://{runner.metrics}/metrics" if runner is not None and runner.metrics else ""
    since = f" for {spoken(time.time_ns() // 1_000_000 - runner.started_ms)} (pid {runner.pid}{metrics})" if runner is not None else ""
    click.echo(f"{each.pipeline}: {_state(each)}{since}")
    if progress is None:
        return
    if progress.stages:
        head = ("stage", "state", "rows/s", "lag", "batch ms", "batches", "rows in", "rows out", "dead letters")
        rows = [
            (stage.name, stage.state, round(stage.rows_per_second), stage.lag, stage.batch_ms, stage.batches, stage.rows_in, stage.rows_out,
             stage.dead_letters)
            for stage in progress.stages.values()
        ]  # fmt: skip
        print_table(head, rows)
    for name, value in progress.counts.items():
        click.echo(f"{name}: {value:,.0f}")
    for stage in progress.stages.values():
        if stage.failure:
            click.echo(f"stage {stage.name} failed: {stage.failure}")


def _as_json(each: "RunDirectory", progress: "PipelineProgress | None") -> dict[str, object]:
    runner = each.runner()
    running = {"pid": runner.pid, "host": runner.host, "metrics": runner.metrics or None} if runner is not None else None
    return {"name": each.pipeline, "state": _state(each), "runner": running, "progress": None if progress is None else progress.as_json()}


def _state(each: "RunDirectory") -> str:
    """One whose last word was that it runs, and which nobody runs, was killed."""
    progress = each.progress()
    if each.is_running():
        return "running"
    if progress is None:
        return "-"
    return "killed" if progress.state == "running" else progress.state


def _print_job(name: str, as_json: bool) -> None:
    from penstock.pipeline.jobs import find
    from penstock.pipeline.session import require_spark

    require_spark(needs_java=False)  # A job's file imports it.
    job = find(name)
    if as_json:
        options = [{"name": option.name, "default": option.default, "help": option.help} for option in job.options]
        return print_json({"name": job.name, "summary": job.summary, "options": options})
    click.echo(f"{job.name}: {job.summary}")
    if job.options:
        print_table(("option", "default", "what it is"), [(option.name, option.default, option.help) for option in job.options])


def _metrics_place(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--metrics {text!r} must be HOST:PORT")
    return host or "127.0.0.1", int(port)
