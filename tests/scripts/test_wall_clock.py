"""The check that no verdict depends on the speed of the machine: what it finds, and what it lets pass."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ("wall_clock.py", "source_names.py")
IMPORTS = """\
import asyncio, queue, signal, subprocess, threading, time
import other
import time as clock
from datetime import datetime
from subprocess import Popen
from time import monotonic, perf_counter as now, sleep as nap
from other import BOOT_S, LONG_S
from waiting import ASK_S, PATIENCE_S
SPAN, PER_SECOND = 4, 50
"""
OTHER = "BOOT_S = 5\nHALVES = BOOT_S * 2\nLONG_S = 60\n"
WAITING = "PATIENCE_S = 120\nASK_S = 0.1\n"


def check(project: Path, source: str = "", exceptions: str = "search 2, total 0\n", **files: str) -> list[str]:
    """Runs the check on a project with this test file; others are given by their names, with `__` for a slash."""
    texts = {"test_it.py": source, "wall_clock.txt": exceptions, "other.py": OTHER, "waiting.py": WAITING}
    texts |= {name.replace("__", "/").replace("_java", ".java"): text for name, text in files.items() if name.endswith("_java")}
    texts |= {f"{name.replace('__', '/')}.py": text for name, text in files.items() if not name.endswith("_java")}
    for name, text in texts.items():
        (project / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (project / "tests" / name).write_text(text)
    (project / "scripts").mkdir(exist_ok=True)
    for script in SCRIPTS:
        (project / "scripts" / script).write_text((ROOT / "scripts" / script).read_text())
    ended = subprocess.run([sys.executable, str(project / "scripts" / SCRIPTS[0])], capture_output=True, text=True, check=False)
    assert ended.returncode == int(bool(ended.stdout)), ended.stderr
    return ended.stdout.splitlines()


def in_function(source: str) -> str:
    lines = ["async def test_it(process, jobs, lock, client, poller, loop):", *source.splitlines()]
    return IMPORTS + "\n    ".join(lines) + "\n"


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("await asyncio.sleep(0.1)", "sleep"),
        ("time.sleep(pause)", "sleep"),
        ("nap(1)", "sleep"),
        ("pause = time.sleep\npause(1)", "sleep"),
        ("await asyncio.to_thread(time.sleep, 1)", "sleep"),
        ('subprocess.run(["sleep", "1"])', "sleep"),
        ('subprocess.run("sleep 0.5; true", shell=True)', "sleep"),
        ('subprocess.run([sys.executable, "-c", "import time; time.sleep(1)"])', "sleep"),
        ('run(f"import time; time.sleep({pause})")', "sleep"),
        ("async with asyncio.timeout(5): pass", "deadline"),
        ("process.wait(20)", "deadline"),
        ("process.wait(BOOT_S)", "deadline"),
        ("process.wait(other.HALVES)", "deadline"),
        ("process.wait(timeout=BOOT_S)", "deadline"),
        ("process.wait(SPAN * 2)", "deadline"),
        ("process.wait(SPAN + 20)", "deadline"),
        ("process.wait(5 if slow else LONG_S)", "deadline"),
        ("span = 5\nprocess.wait(span)", "deadline"),
        ("for span in (5, 60): process.wait(span)", "deadline"),
        ("def wait(span=5): process.wait(span)", "deadline"),
        ("threading.Event().wait(1 / PER_SECOND)", "deadline"),
        ("future.result(timeout=10)", "deadline"),
        ('process.wait(**{"timeout": 5})', "deadline"),
        ("subprocess.run(command, timeout=5)", "deadline"),
        ("client.produce(deadline_s=0.2)", "deadline"),
        ("client.receive(wait=2)", "deadline"),
        ("fetch(timeout_ms=29_999)", "deadline"),
        ('Client({"socket.timeout.ms": 5_000})', "deadline"),
        ('Client({"session.timeout.ms": "5000"})', "deadline"),
        ('client.ask({"timeoutMs": 5_000})', "deadline"),
        ('settings["session.timeout.ms"] = 5_000', "deadline"),
        ('client.set("session.timeout.ms", 5_000)', "deadline"),
        ("client.timeout_s = 5", "deadline"),
        ("client.session_ms = 5_000", "deadline"),
        ("PATIENCE_S = 2 * 10", "deadline"),
        ("def until(claim, seconds: float = 5.0): pass", "deadline"),
        ("def until(claim, *, within=5.0): pass", "deadline"),
        ("loop.call_later(5, stop)", "deadline"),
        ("threading.Timer(5, stop).start()", "deadline"),
        ("jobs.get(True, 5)", "deadline"),
        ("lock.acquire(True, 5)", "deadline"),
        ("signal.alarm(5)", "deadline"),
        ("signal.setitimer(signal.ITIMER_REAL, 5)", "deadline"),
        ("client.poll(1.0)", "deadline"),
        ("poller.poll(500)", "deadline"),
        ("client.flush(5)", "deadline"),
        ("client.consume(100, 0.02)", "deadline"),
        ("due = monotonic() + 5", "deadline"),
        ("due = int(time.time() * 1000) + 5", "deadline"),
        ("assert time.monotonic() - began < 2", "clock"),
        ("began = now()\nassert now() - began < 2", "clock"),
        ("began = clock.time()\ntook = clock.time() - began\nassert took < 2", "clock"),
        ("assert (datetime.now() - began).total_seconds() < 2", "clock"),
        ("while loop.time() < due: pass", "clock"),
    ],
)
def test_a_place_where_the_real_clock_could_decide_is_found(tmp_path: Path, source: str, kind: str):
    (line,) = check(tmp_path, in_function(source))
    assert line.startswith("tests/test_it.py:") and f": {kind}: " in line


@pytest.mark.parametrize(
    "source",
    [
        "await asyncio.sleep(0)",
        "process.wait(PATIENCE_S)",
        "client.poll(ASK_S)",
        "client.poll(2 * ASK_S)",
        "process.wait(LONG_S)",
        "future.result(timeout=30)",
        "fetch(timeout_ms=30_000)",
        "poll(max_records=5)",
        'given.get("limit", 5)',
        'start({"group.min.session.timeout.ms": 100})',
        'subprocess.run(["sleep", "1000"])',
        '"""Calls time.sleep(1)."""',
        "began = monotonic()\nassert monotonic() - began < PATIENCE_S",
        "print(time.monotonic() - began)",
    ],
)
def test_what_is_no_wait_and_waits_of_thirty_seconds_and_more_are_let_pass(tmp_path: Path, source: str):
    assert check(tmp_path, in_function(source)) == []


SLEEPS = "async def test_it():\n    await asyncio.sleep(1)\n"
REAL = "import threading, time, subprocess\nstopping = threading.Event()\n" + SLEEPS
REAL += "    time.sleep(1)\n    subprocess.run(command, timeout=5)\n    stopping.wait(5)\n    assert time.monotonic() < due\n"


def test_an_exception_needs_its_reason_and_its_count(tmp_path: Path):
    assert check(tmp_path, SLEEPS, "search 2, total 1\ntests/test_it.py | test_it | sleep | 1 | the pause is the point\n") == []
    twice = SLEEPS + "    await asyncio.sleep(1)\n"
    assert len(check(tmp_path, twice, "search 2, total 1\ntests/test_it.py | test_it | sleep | 1 | once\n")) == 2


def test_a_file_in_virtual_time_is_let_pass_but_for_what_is_never_virtual(tmp_path: Path):
    exceptions = "search 2, total 1\ntests/ | virtual | the loop of the simulator\n"
    assert check(tmp_path, SLEEPS, exceptions) == []
    found = check(tmp_path, REAL, exceptions)
    assert [line.partition(" ")[0] for line in found] == [f"tests/test_it.py:{number}" for number in (5, 6, 7, 8)]


def test_coroutines_of_a_file_in_virtual_time_are_let_pass_and_nothing_else(tmp_path: Path):
    conftest = "def is_virtual(item): return getattr(item.module, 'VIRTUAL_TIME', False)\n"
    virtual = "VIRTUAL_TIME = True\n" + SLEEPS
    assert check(tmp_path, "", broker__queues__test_it=virtual, broker__conftest=conftest) == []
    assert len(check(tmp_path, "", broker__queues__test_it=virtual.replace("True", "False"))) == 1
    assert len(check(tmp_path, "", broker__queues__test_it="VIRTUAL_TIME = True\ndef test_it():\n    client.wait(timeout=1)\n")) == 1
    in_class = "VIRTUAL_TIME = True\nclass TestIt:\n    def test_it(self):\n        client.wait(timeout=1)\n"
    assert len(check(tmp_path, "", broker__queues__test_it=in_class)) == 1
    assert len(check(tmp_path, "", broker__queues__test_it="VIRTUAL_TIME = True\n" + REAL)) == 4


def test_virtual_time_is_believed_only_below_a_conftest_that_reads_it(tmp_path: Path):
    (line,) = check(tmp_path, "VIRTUAL_TIME = True\n" + SLEEPS, broker__conftest="VIRTUAL_TIME\n")
    assert line.startswith("tests/test_it.py:3 ")


@pytest.mark.parametrize(
    ("imports", "call", "count"),
    [
        ("from serving import virtually", "virtually(scenario)", 1),
        ("from penstock.simulator.world import World", "with World(1) as world: world.start(scenario)", 1),
        ("from elsewhere import World", "World(1).start(scenario)", 2),
    ],
)
def test_only_asyncios_time_is_virtual_inside_one_that_runs_a_simulated_world(tmp_path: Path, imports: str, call: str, count: int):
    inner = "    async def scenario():\n        await asyncio.sleep(1)\n        time.sleep(1)\n"
    assert len(check(tmp_path, f"{imports}\nimport time\ndef test_it():\n{inner}    {call}\n")) == count
    assert len(check(tmp_path, f"{imports}\nimport time\nasync def test_it():\n{inner}    {call}\n")) == 2, "it runs in real time itself"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Thread.sleep(5);", "sleep"),
        ("consumer.poll(Duration.ofMillis(200));", "deadline"),
        ("consumer.poll(Duration.ofSeconds(WAIT));", "deadline"),
        ("future.get(20, TimeUnit.SECONDS);", "deadline"),
        ('Map.of("linger.ms", 5, "request.timeout.ms", 10_000);', "deadline"),
        ('configure("session.timeout.ms", "6000");', "deadline"),
        ("long deadline = System.nanoTime() + 20_000_000_000L;", "deadline"),
        ("if (System.currentTimeMillis() - began > 5_000) return;", "deadline"),
    ],
)
def test_short_waits_of_java_programs_are_found(tmp_path: Path, line: str, kind: str):
    (found,) = check(tmp_path, "", system__java__Program_java=f"static final int WAIT = 5;\n{line}\n")
    assert found.startswith("tests/system/java/Program.java:2 (file): ") and f": {kind}: " in found


@pytest.mark.parametrize(
    "line",
    [
        "consumer.poll(Waiting.ASK);",
        "future.get(30, TimeUnit.SECONDS);",
        'Map.of("linger.ms", 5, "request.timeout.ms", 30000);',
        "admin.close(Duration.ZERO);",
        "long sent = System.currentTimeMillis() - 60_000;",
        "work();  // Not Thread.sleep(5).",
    ],
)
def test_other_lines_of_java_programs_are_let_pass(tmp_path: Path, line: str):
    assert check(tmp_path, "", system__java__Program_java=line, system__java__Waiting_java="Thread.sleep(5);") == []


@pytest.mark.parametrize(
    ("exceptions", "told"),
    [
        ("search 2, total 1\ntests/test_it.py | test_it | sleep | 1 | gone by now\n", "lower or remove the entry"),
        ("search 2, total 1\ntests/test_it.py | virtual | gone by now\n", "remove the entry"),
        ("search 2, total 3\n", "`search 2, total 3` must be `search 2, total 0`"),
        ("search 1, total 0\n", "`search 1, total 0` must be `search 2, total 0`"),
    ],
)
def test_the_list_of_exceptions_shrinks_with_the_tests(tmp_path: Path, exceptions: str, told: str):
    (line,) = check(tmp_path, "def test_it(): pass\n", exceptions)
    assert told in line


def test_the_list_of_exceptions_is_never_longer_than_it_was_committed(tmp_path: Path):
    def commit() -> None:
        for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
            subprocess.run(["git", "-C", str(tmp_path), *command], check=True)

    short, long = "search 2, total 0\n", "search 2, total 1\ntests/test_it.py | test_it | sleep | 1 | the pause is the point\n"
    for committed in (long.replace("search 2", "search 1"), long, short):
        check(tmp_path, "", committed)
        commit()
    assert check(tmp_path, "", short) == []
    (line,) = check(tmp_path, SLEEPS, long)
    assert line.endswith("the list may only shrink: it has 1 exceptions, and was committed with 0")
    commit()
    assert len(check(tmp_path, SLEEPS, long)) == 1, "a commit of the longer list makes no difference"


@pytest.mark.parametrize("is_ci", [True, False])
def test_a_history_that_is_cut_off_is_told_and_fails_in_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ci: bool):
    monkeypatch.setenv("CI", "true" if is_ci else "")
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    check(origin)
    commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"]
    for command in (["init", "-q"], ["add", "."], commit, commit):
        subprocess.run(["git", "-C", str(origin), *command], check=True)
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{origin}", str(clone)], check=True)
    ended = subprocess.run([sys.executable, str(clone / "scripts" / "wall_clock.py")], capture_output=True, text=True, check=False)
    assert ended.returncode == int(is_ci), ended.stderr
    assert "this clone is shallow" in (ended.stdout if is_ci else ended.stderr)
