"""Who runs a pipeline, as other processes see it: the lock counts, not the number on the card."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import EXPIRES_S, PATIENCE_S

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.progress import PipelineProgress, StageProgress
from penstock.pipeline.state import LOCK, RunDirectory, run_directories

HOLDER = """
import signal, sys, threading
from penstock.pipeline.state import RunDirectory
told = threading.Event()
signal.signal(signal.SIGTERM, (lambda *_: told.set()) if sys.argv[2] == "willing" else signal.SIG_IGN)
with RunDirectory(sys.argv[1], "orders").taken(metrics="127.0.0.1:1"):
    print("taken", flush=True)
    told.wait()
"""


@pytest.fixture
def holder(tmp_path: Path, request: pytest.FixtureRequest):
    running = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), getattr(request, "param", "willing")], stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None and running.stdout.readline() == "taken\n"
    yield running
    running.kill()
    running.wait()
    running.stdout.close()


@pytest.mark.invariant("pipeline.one-process")
def test_one_process_at_a_time(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    orders = RunDirectory(tmp_path, "orders")
    runner = orders.runner()
    assert runner is not None and runner.pid == holder.pid and runner.is_alive_here() and runner.metrics == "127.0.0.1:1"
    with pytest.raises(PipelineComplaint, match=rf"runs already \(pid {holder.pid}") as refused, orders.taken():
        pass
    assert "penstock pipeline stop orders" in refused.value.advice
    assert [each.pipeline for each in run_directories(tmp_path)] == ["orders"]


def test_stopping_returns_when_the_process_has_let_go(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    orders = RunDirectory(tmp_path, "orders")
    orders.stop(PATIENCE_S)
    assert not orders.is_running()
    assert holder.wait(PATIENCE_S) == 0
    with pytest.raises(PipelineComplaint, match="does not run"):
        orders.stop(PATIENCE_S)
    with orders.taken() as again:
        assert again.pid == os.getpid()


@pytest.mark.parametrize("holder", ["stubborn"], indirect=True)
def test_one_that_does_not_stop_is_told_of(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    with pytest.raises(PipelineComplaint, match=f"still runs after {EXPIRES_S} s .pid {holder.pid}"):
        RunDirectory(tmp_path, "orders").stop(EXPIRES_S)


@pytest.mark.invariant("pipeline.one-process")
def test_a_killed_process_leaves_nothing_that_looks_alive(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    orders = RunDirectory(tmp_path, "orders")
    assert not orders.is_running() and orders.runner() is None


@pytest.mark.invariant("pipeline.signals-only-lock-holder")
def test_a_number_that_belongs_to_somebody_else_by_now_is_not_signalled(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    """The lock is held, and the card still names the one before: its number is that of a stranger now."""
    orders = RunDirectory(tmp_path, "orders")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        card = json.loads((orders.path / LOCK).read_text())
        (orders.path / LOCK).write_text(json.dumps(card | {"pid": stranger.pid, "born": "1"}))
        with pytest.raises(PipelineComplaint, match="cannot be reached from here"):
            orders.stop(PATIENCE_S)
        stranger.communicate(b"\n")
    assert stranger.returncode == 0, "it was signalled"
    (orders.path / LOCK).write_text(json.dumps(card | {"host": "elsewhere"}))
    with pytest.raises(PipelineComplaint, match="on elsewhere"):
        orders.stop(PATIENCE_S)


def test_the_last_progress_can_be_read_after_the_end(tmp_path: Path) -> None:
    orders = RunDirectory(tmp_path, "orders")
    assert orders.progress() is None
    progress = PipelineProgress("orders", {"a": StageProgress("a", rows_in=5)}, "stopped", {}, 1, 2)
    with orders.taken():
        orders.write(progress)
    assert orders.progress() == progress
    (orders.path / "status.json").write_text("{")
    assert orders.progress() is None
