"""`penstock pipeline` as a person uses it: what it says without Spark or Java, what it lists, and a run from start to Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from penstock.pipeline.state import RunDirectory

SHOP = """
from penstock.pipeline import FromTopic, Job, JobOption, Pipeline, Stage, ToTopic

def shouted(frame, context):
    return frame.selectExpr("key", "cast(upper(cast(value as string)) as binary) AS value")

def pipeline(options):
    return Pipeline("shop", [Stage("loud", FromTopic(options["raw"]), shouted, ToTopic(options["raw"] + ".loud"))])

JOB = Job("shop", "shouts", (JobOption("raw", "the topic to read"),), build=pipeline)
"""
PATIENCE_SECONDS = 120.0


def penstock(*arguments: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "penstock", "pipeline", *arguments]
    return subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False)


def until(claim, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not claim():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_without_spark_it_says_what_to_install(tmp_path: Path) -> None:
    blocker = "import sys\nclass No:\n def find_spec(self, name, *rest):\n  if name == 'pyspark': raise ModuleNotFoundError(name=name)\n"
    (tmp_path / "sitecustomize.py").write_text(f"{blocker}sys.meta_path.insert(0, No())\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    told = penstock("run", "orders", cwd=tmp_path, PYTHONPATH=path)
    assert told.returncode == 1 and "Traceback" not in told.stderr
    assert "pyspark is not installed" in told.stderr and "pip install 'penstock[spark]'" in told.stderr
    listed = penstock("list", "--directory", str(tmp_path), cwd=tmp_path, PYTHONPATH=path)
    assert listed.returncode == 0 and "orders" in listed.stdout, "what does not need Spark works without it"


@pytest.mark.needs("spark")
def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    told = penstock("run", "orders", cwd=tmp_path, JAVA_HOME=str(tmp_path / "nowhere"))
    assert told.returncode == 1 and "there is no bin/java in it" in told.stderr and "Traceback" not in told.stderr
    told = penstock("run", "orders", cwd=tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert told.returncode == 1 and "Traceback" not in told.stderr
    assert "Java 17, 21 or 25" in told.stderr and "apt-get install openjdk-17-jre-headless" in told.stderr


@pytest.mark.needs("spark")
def test_a_java_that_ends_at_once_is_told_in_words(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho too old >&2\nexit 3\n")
    java.chmod(0o755)
    told = penstock("run", "orders", "--directory", str(tmp_path), cwd=tmp_path, JAVA_HOME=str(tmp_path))
    assert told.returncode == 1 and "Traceback" not in told.stderr, told.stderr
    assert "the start of Spark failed" in told.stderr and f"{tmp_path}/orders/spark.log" in told.stderr
    assert "too old" in (tmp_path / "orders" / "spark.log").read_text()


@pytest.mark.needs("spark")
def test_a_job_is_refused_by_name_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP + "number = 7\n")
    directory = ("--directory", str(tmp_path / "state"))
    for job, problem in {
        "oders": "there is no job 'oders'",
        "shop:nothing": "the module 'shop' has no 'nothing'",
        "shoop:JOB": "needs a module that is not there: shoop",
        "shop:number": "is a int",
        "shop:JOB": "needs the option 'raw': the topic to read",
    }.items():
        told = penstock("run", job, *directory, cwd=tmp_path)
        assert told.returncode == 1 and problem in told.stderr and "Traceback" not in told.stderr, told.stderr
    told = penstock("run", "shop:JOB", "--set", "raw=a", "--set", "colour=red", *directory, cwd=tmp_path)
    assert "has no option 'colour'" in told.stderr and "it takes: raw" in told.stderr
    assert penstock("run", "shop:JOB", "--metrics", "nowhere", cwd=tmp_path).returncode == 2
    shown = penstock("list", "shop:JOB", cwd=tmp_path)
    assert "shop: shouts" in shown.stdout and "the topic to read" in shown.stdout
    assert not (tmp_path / "state").exists(), "nothing was begun"


def test_what_was_never_run_has_no_status_and_cannot_be_stopped(tmp_path: Path) -> None:
    told = penstock("status", "orders", "--directory", str(tmp_path), cwd=tmp_path)
    assert told.returncode == 1 and "was ever run" in told.stderr and "penstock pipeline run orders" in told.stderr
    assert "does not run" in penstock("stop", "orders", "--directory", str(tmp_path), cwd=tmp_path).stderr
    listed = json.loads(penstock("list", "--json", "--directory", str(tmp_path), cwd=tmp_path).stdout)
    shipped = ("orders", "archive", "replay", "snapshot", "traffic", "dead-letters")
    assert {row["name"]: row["state"] for row in listed} == dict.fromkeys(shipped, "-")


HOLDER = """
import signal, sys, threading
from penstock.pipeline.progress import PipelineProgress, StageProgress
from penstock.pipeline.state import RunDirectory
told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
place = RunDirectory(sys.argv[1], "orders")
with place.taken():
    place.write(PipelineProgress("orders", {"valid": StageProgress("valid", "running", rows_in=7)}))
    print("taken", flush=True)
    told.wait()
"""


def test_what_another_process_runs_is_shown_and_stopped_and_what_was_killed_is_told_of(tmp_path: Path) -> None:
    place = ("--directory", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "taken\n"
        shown = penstock("status", "orders", *place, cwd=tmp_path).stdout.splitlines()
        stopped = penstock("stop", "orders", *place, cwd=tmp_path)
    assert holder.returncode == 0 and stopped.stdout == "the pipeline orders has stopped\n"
    assert (
        shown[0].startswith("orders: running for ") and f"(pid {holder.pid})" in shown[0] and shown[2].split()[:2] == ["valid", "running"]
    )
    left = penstock("status", *place, cwd=tmp_path).stdout.splitlines()
    assert left[0] == "orders: killed", "its last word was that it runs, and nobody runs it"


@pytest.mark.needs("spark")
@pytest.mark.paired  # It has a Spark of its own.
def test_a_run_shows_its_progress_and_ends_cleanly_at_ctrl_c(spark_settings, node, topics, tmp_path: Path) -> None:
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
            until(lambda: f"{raw}.loud" in topics.names() and len(topics.values(f"{raw}.loud")) == 3, "nothing came out")
            until(lambda: re.search(r"\b3 in +3 out", (tmp_path / "out").read_text()) is not None, "no progress was printed")
            status = RunDirectory(tmp_path / "state", "shop")
            until(lambda: (last := status.progress()) is not None and last.stages["loud"].rows_out == 3, "the status stayed behind")
            (told,) = json.loads(penstock("status", "--json", *place, cwd=tmp_path).stdout)
            page = urllib.request.urlopen(f"http://{told['runner']['metrics']}/metrics").read().decode()
            refused = penstock("run", "shop:JOB", "--set", f"raw={raw}", *place, cwd=tmp_path)
            os.killpg(running.pid, signal.SIGINT)  # As a terminal does: to everybody in front of it.
            assert running.wait(PATIENCE_SECONDS) == 0
        finally:
            running.kill()
            running.wait()
    assert told["state"] == "running" and told["runner"]["pid"] == running.pid and told["progress"]["stages"]["loud"]["rows_out"] == 3
    assert 'penstock_pipeline_rows_written_total{pipeline="shop",stage="loud"} 3\n' in page
    assert f"runs already (pid {running.pid}" in refused.stderr and refused.returncode == 1
    assert (tmp_path / "err").read_text() == "", "what Spark says goes to its log"
    shown = penstock("status", "shop", *place, cwd=tmp_path).stdout.splitlines()
    assert shown[0] == "shop: stopped" and shown[2].split()[:2] == ["loud", "stopped"]
    assert sum(topics.committed("shop.loud", raw).values()) in (0, 3)
