"""`penstock pipeline` as a person uses it: what it says without Spark or Java, what it lists, and a run from start to Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from job_runs import SHOP
from waiting import PATIENCE_S, until

from penstock.cli.root import run
from penstock.pipeline.state import RunDirectory


@dataclass(frozen=True, slots=True)
class Told:
    code: int
    out: str
    err: str


Cli = Callable[..., Told]
until_late = partial(until, every_s=0.2)  # For what takes seconds: more looks would only be a burden beside it.


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Runs `penstock pipeline` in this process, whose directory is `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # The directory of jobs is put there.

    def penstock(*arguments: str, **environment: str) -> Told:
        with monkeypatch.context() as changed:
            for name, value in environment.items():
                changed.setenv(name, value)
            return Told(run(["pipeline", *arguments]), *capfd.readouterr())

    yield penstock
    sys.modules.pop("shop", None)


def in_a_process(*arguments: str, cwd: Path, **environment: str) -> Told:
    command = [sys.executable, "-m", "penstock", "pipeline", *arguments]
    done = subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False)
    return Told(done.returncode, done.stdout, done.stderr)


def test_without_spark_it_says_what_to_install(tmp_path: Path) -> None:
    blocker = "import sys\nclass No:\n def find_spec(self, name, *rest):\n  if name == 'pyspark': raise ModuleNotFoundError(name=name)\n"
    (tmp_path / "sitecustomize.py").write_text(f"{blocker}sys.meta_path.insert(0, No())\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    told = in_a_process("run", "orders", cwd=tmp_path, PYTHONPATH=path)
    assert told.code == 1 and "Traceback" not in told.err
    assert "pyspark is not installed" in told.err and "pip install 'penstock[spark]'" in told.err
    listed = in_a_process("list", "--directory", str(tmp_path), cwd=tmp_path, PYTHONPATH=path)
    assert listed.code == 0 and "orders" in listed.out, "what does not need Spark works without it"


@pytest.mark.needs("spark")
def test_without_java_it_says_what_to_install(cli: Cli, tmp_path: Path) -> None:
    told = cli("run", "orders", JAVA_HOME=str(tmp_path / "nowhere"))
    assert told.code == 1 and "there is no bin/java in it" in told.err and "Traceback" not in told.err
    told = cli("run", "orders", PATH=str(tmp_path), JAVA_HOME="")
    assert told.code == 1 and "Traceback" not in told.err
    assert "Java 17, 21 or 25" in told.err and "apt-get install openjdk-17-jre-headless" in told.err


@pytest.mark.needs("spark")
def test_a_java_that_ends_at_once_is_told_in_words(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho too old >&2\nexit 3\n")
    java.chmod(0o755)
    told = in_a_process("run", "orders", "--directory", str(tmp_path), cwd=tmp_path, JAVA_HOME=str(tmp_path))
    assert told.code == 1 and "Traceback" not in told.err, told.err
    assert "the start of Spark failed" in told.err and f"{tmp_path}/orders/spark.log" in told.err
    assert "too old" in (tmp_path / "orders" / "spark.log").read_text()


@pytest.mark.needs("spark")
def test_a_job_is_refused_by_name_before_spark_starts(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP + "number = 7\n")
    directory = ("--directory", str(tmp_path / "state"))
    for job, problem in {
        "oders": "there is no job 'oders'",
        "shop:nothing": "the module 'shop' has no 'nothing'",
        "shoop:JOB": "needs a module that is not there: shoop",
        "shop:number": "is a int",
        "shop:JOB": "needs the option 'raw': the topic to read",
    }.items():
        told = cli("run", job, *directory)
        assert told.code == 1 and problem in told.err and "Traceback" not in told.err, told.err
    told = cli("run", "shop:JOB", "--set", "raw=a", "--set", "colour=red", *directory)
    assert "has no option 'colour'" in told.err and "it takes: raw" in told.err
    assert cli("run", "shop:JOB", "--metrics", "nowhere").code == 2
    shown = cli("list", "shop:JOB")
    assert "shop: shouts" in shown.out and "the topic to read" in shown.out
    assert not (tmp_path / "state").exists(), "nothing was begun"


def test_what_was_never_run_has_no_status_and_cannot_be_stopped(cli: Cli, tmp_path: Path) -> None:
    told = cli("status", "orders", "--directory", str(tmp_path))
    assert told.code == 1 and "was ever run" in told.err and "penstock pipeline run orders" in told.err
    assert "does not run" in cli("stop", "orders", "--directory", str(tmp_path)).err
    listed = json.loads(cli("list", "--json", "--directory", str(tmp_path)).out)
    shipped = ("orders", "archive", "replay", "snapshot", "traffic", "dead-letters")
    assert {row["name"]: row["state"] for row in listed} == dict.fromkeys(shipped, "-")


HOLDER = """
import signal, sys
from penstock.pipeline.progress import PipelineProgress, StageProgress
from penstock.cli.root import run
from penstock.pipeline.state import RunDirectory
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
place = RunDirectory(sys.argv[1], "orders")
with place.taken():
    place.write(PipelineProgress("orders", {"valid": StageProgress("valid", "running", rows_in=7)}))
    print("taken", flush=True)
    signal.sigwait([signal.SIGTERM])
"""


def test_what_another_process_runs_is_shown_and_stopped_and_what_was_killed_is_told_of(cli: Cli, tmp_path: Path) -> None:
    place = ("--directory", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "taken\n"
        shown = cli("status", "orders", *place).out.splitlines()
        stopped = cli("stop", "orders", *place)
    assert holder.returncode == 0 and stopped.out == "the pipeline orders has stopped\n"
    assert (
        shown[0].startswith("orders: running for ") and f"(pid {holder.pid})" in shown[0] and shown[2].split()[:2] == ["valid", "running"]
    )
    left = cli("status", *place).out.splitlines()
    assert left[0] == "orders: killed", "its last word was that it runs, and nobody runs it"


@pytest.mark.needs("spark")
@pytest.mark.paired  # It has a Spark of its own.
def test_a_run_shows_its_progress_and_ends_cleanly_at_ctrl_c(cli: Cli, spark_settings, node, topics, tmp_path: Path) -> None:
    from spark_home import byte_compiled_home

    (tmp_path / "shop.py").write_text(SHOP)
    raw, place = topics.create(), ("--directory", str(tmp_path / "state"))
    topics.write_values(raw, 3)
    settings = [text for name, value in spark_settings.items() for text in ("--conf", f"{name}={value}")]
    asked = ["run", "shop:JOB", "--set", f"raw={raw}", *settings, "--master", "local[2,3]", "--metrics", "127.0.0.1:0", "--every", "0.5"]
    command = [sys.executable, "-m", "penstock", "pipeline", *asked, *place, "--bootstrap", node.bootstrap]
    with byte_compiled_home(tmp_path), open(tmp_path / "out", "w+") as out, open(tmp_path / "err", "w+") as err:
        running = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=err, start_new_session=True)
        try:
            until_late(lambda: "Spark" in (tmp_path / "out").read_text(), "Spark has started")
            until_late(lambda: f"{raw}.loud" in topics.names() and len(topics.values(f"{raw}.loud")) == 3, "something comes out")
            until_late(lambda: re.search(r"\b3 in +3 out", (tmp_path / "out").read_text()) is not None, "progress is printed")
            status = RunDirectory(tmp_path / "state", "shop")
            until_late(lambda: (last := status.progress()) is not None and last.stages["loud"].rows_out == 3, "the status follows")
            (told,) = json.loads(cli("status", "--json", *place).out)
            page = urllib.request.urlopen(f"http://{told['runner']['metrics']}/metrics").read().decode()
            refused = cli("run", "shop:JOB", "--set", f"raw={raw}", *place)
            os.killpg(running.pid, signal.SIGINT)  # As a terminal does: to everybody in front of it.
            assert running.wait(PATIENCE_S) == 0
        finally:
            running.kill()
            running.wait()
    assert told["state"] == "running" and told["runner"]["pid"] == running.pid and told["progress"]["stages"]["loud"]["rows_out"] == 3
    assert 'penstock_pipeline_rows_written_total{pipeline="shop",stage="loud"} 3\n' in page
    assert f"runs already (pid {running.pid}" in refused.err and refused.code == 1
    assert (tmp_path / "err").read_text() == "", "what Spark says goes to its log"
    shown = cli("status", "shop", *place).out.splitlines()
    assert shown[0] == "shop: stopped" and shown[2].split()[:2] == ["loud", "stopped"]
    assert sum(topics.committed("shop.loud", raw).values()) in (0, 3)
