"""The suite's own rules: what each tier runs, what a skip means, and what a failure prints."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE_S, until

pytestmark = pytest.mark.paired  # Each starts pytest, most of them with workers.

ROOT = Path(__file__).parents[2]

TESTS = """
import os

import pytest

@pytest.mark.needs("moon")
def test_on_the_moon(): pass

def test_on_earth(): pass

@pytest.mark.needs("java")
def test_in_a_jvm(): pass

@pytest.mark.slow(stays="tests/test_places.py::test_on_earth")
def test_on_many_earths(): pass

@pytest.mark.soak(only_here="it takes hours")
def test_for_hours(): pass
"""
LONG = """
import pytest

@pytest.mark.soak(only_here="it takes hours")
def test_long(): pass
"""
REPEATED = """
import pytest
from tiers import pick

@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(pick(test=2, slow=5)))
def test_seed(seed): pass
"""
FAILING = """
import os

os.write(2, b"a line of a client library, while no test runs\\n")

def test_breaks():
    os.write(2, b"a line of a client library, in a test\\n")
    assert False
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with this one's rules, on a machine that can look for the moon and does not find it."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "tests").mkdir()
    for module in ("conftest.py", "account.py", "all_loops.py", "schedule.py", "tier_marks.py", "tiers.py", "waiting.py", "whole_files.py"):
        shutil.copy(ROOT / "tests" / module, tmp_path / "tests")
    machine = (ROOT / "tests" / "machine.py").read_text() + '\n\nPROBES["moon"] = lambda: "it is too far"\nPROBES["java"] = lambda: None\n'
    (tmp_path / "tests" / "machine.py").write_text(machine)
    (tmp_path / "tests" / "test_places.py").write_text(TESTS)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(project: Path, *arguments: str, require: str = "", workers: int = 0) -> "subprocess.CompletedProcess[str]":
    command, environment = suite(*arguments, require=require, workers=workers)
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def suite(*arguments: str, require: str = "", workers: int = 0) -> tuple[list[str], dict[str, str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "PYTEST_", "PYTHONPATH"))}
    return [sys.executable, "scripts/suite.py", "--workers", str(workers), *arguments], kept | {"PENSTOCK_REQUIRE": require}


def test_the_account_names_the_reason_of_a_skip(project: Path):
    ended = run(project)
    assert ended.returncode == 0, ended.stdout
    assert "skipped, and why\n    1  needs moon: it is too far\n" in ended.stdout
    assert ended.stdout.endswith("2 passed, 0 failed, 1 skipped\n")


def test_a_skip_is_a_failure_where_the_machine_must_have_it(project: Path):
    ended = run(project, require="moon")
    assert ended.returncode == 1
    assert "this machine must have moon (PENSTOCK_REQUIRE): it is too far" in ended.stdout
    assert "nothing was skipped" in ended.stdout
    assert ended.stdout.endswith("2 passed, 1 failed, 0 skipped\n")


def test_an_unknown_requirement_is_refused(project: Path):
    ended = run(project, require="mon")
    assert ended.returncode not in (0, 1)
    assert "PENSTOCK_REQUIRE names mon" in ended.stdout


MISSPELT = ['@pytest.mark.needs("mon")\ndef test_it(): pass\n', 'def test_it(): pytest.skip("needs the moon: it is too far")\n']


@pytest.mark.parametrize("test", MISSPELT)
def test_a_test_that_needs_what_has_no_probe_fails(project: Path, test: str):
    (project / "tests" / "test_places.py").write_text(f"import pytest\n\n{test}")
    ended = run(project)
    assert ended.returncode == 1
    assert "; known are browser, cc, fuse, java, moon, netns, pycurl, spark" in ended.stdout
    assert ended.stdout.endswith("0 passed, 1 failed, 0 skipped\n")


@pytest.mark.parametrize("tier", ["slow", "soak"])
def test_repeated_and_long_tests_run_in_their_own_tier_alone(project: Path, tier: str):
    assert run(project, "--tier", tier).stdout.endswith("1 passed, 0 failed, 0 skipped\n")


def test_the_fast_tier_leaves_out_what_starts_a_jvm_and_what_was_measured_to_take_long(project: Path):
    assert run(project, "--tier", "fast").stdout.endswith("1 passed, 0 failed, 1 skipped\n")
    recorded = {"files": {}, "tests": {"tests/test_places.py::test_on_earth": 3.0}}
    (project / "tests" / "durations.json").write_text(json.dumps(recorded))
    assert run(project, "--tier", "fast").stdout.endswith("0 passed, 0 failed, 1 skipped\n")


def test_a_test_that_repeats_runs_in_two_tiers_and_more_often_in_the_slow_one(project: Path):
    (project / "tests" / "test_places.py").write_text(REPEATED)
    assert run(project).stdout.endswith("2 passed, 0 failed, 0 skipped\n")
    assert run(project, "--tier", "slow").stdout.endswith("5 passed, 0 failed, 0 skipped\n")


UNIMPORTABLE = """
import pytest

pytest.importorskip("rocket", reason="needs moon: there is no rocket")

def test_a_flight(): pass
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_cannot_be_imported_here_is_a_skip_or_a_failure_where_the_machine_must_have_it(project: Path, workers: int):
    for name in ("test_flights.py", "test_landings.py"):
        (project / "tests" / name).write_text(UNIMPORTABLE)
    ended = run(project, workers=workers)
    assert ended.returncode == 0, ended.stdout
    assert "\n    2  needs moon: there is no rocket\n" in ended.stdout
    assert ended.stdout.endswith("2 passed, 0 failed, 3 skipped\n")
    ended = run(project, require="moon", workers=workers)
    assert ended.returncode != 0
    assert "tests/test_landings.py: this machine must have moon (PENSTOCK_REQUIRE): there is no rocket" in ended.stdout
    assert "one alone:\n  .venv/bin/pytest tests/test_" in ended.stdout and "needs moon" not in ended.stdout


NAMED = """
import pytest
from tiers import pick

class TestLog:
    @pytest.mark.soak(only_here="it takes hours")
    @pytest.mark.parametrize("hours", [1, 2])
    def test_for_hours(self, hours): assert pick(test=1, slow=2) == 1

    @pytest.mark.soak(only_here="it takes hours")
    def test_for_hours_and_hours(self): pass

def test_plain(): pass
"""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "name, count",
    [("TestLog::test_for_hours", 2), ("TestLog::test_for_hours[2]", 1), ("TestLog", 3), ("test_plain", 1)],
)
def test_a_test_that_is_named_runs_whatever_its_tier_and_the_others_in_theirs(project: Path, name: str, count: int, workers: int):
    (project / "tests" / "test_named.py").write_text(NAMED)
    ended = run(project, f"./tests/test_named.py::{name}", "tests/test_places.py", workers=workers)
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.endswith(f"\n{count + 2} passed, 0 failed, 1 skipped\n")


def test_a_test_that_is_named_runs_in_a_file_that_picks_for_another(project: Path):
    (project / "tests" / "test_places.py").write_text(f"{REPEATED}\ndef test_plain(): pass\n")
    assert run(project, "tests/test_places.py::test_plain").stdout.endswith("\n1 passed, 0 failed, 0 skipped\n")
    assert run(project, "--tier", "slow", "tests/test_places.py::test_plain").stdout.endswith("\n1 passed, 0 failed, 0 skipped\n")


def test_a_failure_says_how_to_run_it_alone_and_shows_the_lines_of_that_test_only(project: Path):
    (project / "tests" / "test_failing.py").write_text(FAILING)
    ended = run(project, workers=2)
    assert ended.returncode == 1
    assert "\nfailed; one alone:\n  .venv/bin/pytest tests/test_failing.py::test_breaks\n" in ended.stdout
    assert "a line of a client library, in a test" in ended.stdout
    assert "while no test runs" not in ended.stdout + ended.stderr
    assert ended.stdout.endswith("2 passed, 1 failed, 1 skipped\n")


CHATTY = """
import pytest

@pytest.fixture
def room():
    for number in range(100): print("setup", number)
    yield
    for number in range(100): print("teardown", number)

def test_breaks(room):
    for number in range(60): print("call", number)
    assert False
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failure_shows_the_last_lines_that_were_captured_and_all_of_them_alone(project: Path, workers: int):
    (project / "tests" / "test_chatty.py").write_text(CHATTY)
    ended = run(project, workers=workers)
    left_out = "(40 lines before these are left out; the test alone shows them)"
    for phase, first in (("setup", 40), ("call", 0), ("teardown", 40)):
        said = f"{left_out}\n{phase} {first}\n" if first else f"{phase} {first}\n"
        assert f" Captured stdout {phase} " in ended.stdout
        assert f"-\n{said}" in ended.stdout and f"\n{phase} {59 + first}\n" in ended.stdout
    command, environment = [sys.executable, "-m", "pytest", "tests/test_chatty.py::test_breaks"], suite()[1]
    alone = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert "\nsetup 0\n" in alone.stdout and "\nteardown 0\n" in alone.stdout and "left out" not in alone.stdout


def test_a_failure_in_another_tier_names_that_tier_too(project: Path):
    (project / "tests" / "test_places.py").write_text(REPEATED.replace("(seed): pass", "(seed): assert seed < 4"))
    ended = run(project, "--tier", "slow")
    assert "\nfailed; one alone:\n  .venv/bin/pytest --tier slow 'tests/test_places.py::test_seed[4]'\n" in ended.stdout


def test_there_is_one_summary_and_no_word_about_workers(project: Path):
    ended = run(project, workers=2)
    assert ended.stdout.lstrip().startswith("seconds, and where\n") and ended.stdout.count(" passed") == 1


def test_a_run_can_be_recorded_for_the_next(project: Path):
    (project / "tests" / "test_places.py").write_text("def test_on_earth(): pass\n")
    assert run(project, "--record", workers=2).returncode == 0
    recorded = json.loads((project / "tests" / "durations.json").read_text())
    assert set(recorded["files"]) == {"tests/test_places.py"}


@pytest.mark.parametrize("part", [["tests"], ["--tier", "fast"], ["--tier", "slow"]])
def test_a_part_of_the_suite_is_not_recorded(project: Path, part: list[str]):
    (project / "tests" / "test_places.py").write_text("def test_on_earth(): pass\n")
    ended = run(project, "--record", *part)
    assert ended.returncode == 2 and "record it without --tier and without paths" in ended.stderr
    assert not (project / "tests" / "durations.json").exists()


@pytest.mark.parametrize("require", ["", "moon"])
def test_a_run_that_skips_or_fails_is_not_recorded(project: Path, require: str):
    ended = run(project, "--record", require=require)
    assert ended.returncode == 1
    assert ended.stdout.endswith("durations.json is as before: it is recorded only where all tests run and pass\n")
    assert not (project / "tests" / "durations.json").exists()


@pytest.mark.parametrize("given, is_recorded", [("", False), ("RECORD=0", False), ("RECORD=no", False), ("RECORD=1", True)])
def test_make_records_only_if_it_is_asked_to(given: str, is_recorded: bool):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "RECORD"))}
    command = ["make", "--dry-run", "test", *given.split()]
    told = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, check=True).stdout
    assert ("scripts/suite.py --record" in told) == is_recorded


IN_TURN = """
import os
import sys
from pathlib import Path

import pytest

SAID = Path(os.environ["SAID"])
ME = Path(__file__).stem

def say(what): SAID.open("a").write(f"{os.getpid()} {ME} {what}\\n")

say("imported")

@pytest.fixture(scope="module", autouse=True)
def room():
    say("opened")
    yield
    say("closed")

@pytest.mark.parametrize("number", [1, 2])
def test_number(number): say(number)

@pytest.mark.slow(stays="tests/test_places.py::test_on_earth")
def test_in_another_tier(): pass
"""
SESSION = """
import pytest

@pytest.fixture(scope="session", autouse=True)
def house(tmp_path_factory):
    yield
    assert False, "the house fell down"
"""


def test_each_file_is_collected_and_run_by_one_worker_from_its_beginning_to_its_end(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SAID", str(project / "said.txt"))
    names = [f"{room}/test_{number}.py" for room in ("east", "west/deep") for number in range(3)]
    for place, name in enumerate(names):
        (project / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (project / "tests" / name).with_stem(f"test_{place}_turns").write_text(IN_TURN)
    (project / "tests" / "east" / "test_elsewhere.py").write_text(LONG)
    (project / "tests" / "test_places.py").write_text("def test_on_earth(): pass\n")
    ended = run(project, "--record", workers=2)
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.endswith("13 passed, 0 failed, 0 skipped\n")
    said = [line.split(" ") for line in (project / "said.txt").read_text().splitlines()]
    for place in range(len(names)):
        turns = [(pid, what) for pid, file, what in said if file == f"test_{place}_turns"]
        assert [what for _, what in turns] == ["imported", "opened", "1", "2", "closed"]
        assert len({pid for pid, _ in turns}) == 1
    assert len(json.loads((project / "tests" / "durations.json").read_text())["files"]) == 1 + len(names)


def test_a_failure_after_the_last_test_is_told(project: Path):
    (project / "tests" / "east").mkdir()
    (project / "tests" / "east" / "conftest.py").write_text(SESSION)
    (project / "tests" / "east" / "test_all_is_well.py").write_text("def test_all_is_well(): pass\n")
    ended = run(project, workers=2)
    assert ended.returncode == 1
    assert "ERROR at teardown of tests/east/test_all_is_well.py _" in ended.stdout and "the house fell down" in ended.stdout
    assert "one alone:\n  .venv/bin/pytest tests/east/test_all_is_well.py\n" in ended.stdout


def test_a_file_that_cannot_be_imported_fails_and_the_others_run(project: Path):
    (project / "tests" / "test_broken.py").write_text("import nowhere\n")
    ended = run(project, workers=2)
    assert ended.returncode == 1
    assert "No module named 'nowhere'" in ended.stdout
    assert "one alone:\n  .venv/bin/pytest tests/test_broken.py\n" in ended.stdout
    assert ended.stdout.endswith("2 passed, 1 failed, 1 skipped\n")


DYING = """
import os

with open("begun.txt", "a") as begun:
    begun.write("once ")

def test_dies(): os._exit(3)
"""


def test_a_file_that_ends_its_worker_is_told_and_not_begun_again_and_the_others_run(project: Path):
    (project / "tests" / "test_dying.py").write_text(DYING)
    for number in range(6):
        (project / "tests" / f"test_well_{number}.py").write_text("def test_all_is_well(): pass\n")
    ended = run(project, workers=2)
    assert ended.returncode == 1
    assert "one alone:\n  .venv/bin/pytest tests/test_dying.py::test_dies\n" in ended.stdout
    assert "\n1 of 8 files did not run, or not to their end:\n  tests/test_dying.py\n" in ended.stdout
    assert (project / "begun.txt").read_text() == "once "
    assert ended.stdout.endswith("8 passed, 1 failed, 1 skipped\n")


CRASHING = r"""
import ctypes
import os

os.write(2, b"not text: \xff\n")

def test_passes(): pass

def test_crashes(): ctypes.string_at(0)

def test_comes_after(): pass
"""


def test_a_crash_is_told_with_its_test_and_its_trace_also_where_one_file_runs(project: Path):
    (project / "tests" / "test_crashing.py").write_text(CRASHING)
    ended = run(project, "tests/test_crashing.py", workers=4)
    assert ended.returncode == 1
    assert "Segmentation fault" in ended.stdout and "in test_crashes\n" in ended.stdout
    assert "_ tests/test_crashing.py::test_crashes _" in ended.stdout, "the headline of the report"
    assert "one alone:\n  .venv/bin/pytest tests/test_crashing.py::test_crashes\n" in ended.stdout
    assert "\n1 of 1 files did not run, or not to their end:\n  tests/test_crashing.py\n" in ended.stdout
    assert ended.stdout.endswith("\n1 passed, 1 failed, 0 skipped\n")


def test_a_crash_without_workers_is_told_with_its_trace(project: Path):
    (project / "tests" / "test_crashing.py").write_text(CRASHING)
    ended = run(project, workers=0)
    assert ended.returncode not in (0, 5)
    assert "Segmentation fault" in ended.stdout and "in test_crashes\n" in ended.stdout
    assert "and told nothing of what it ran" in ended.stdout


def test_a_worker_that_dies_between_tests_makes_the_run_a_failure(project: Path):
    with (project / "tests" / "conftest.py").open("a") as conftest:
        conftest.write("\ndef pytest_collection():\n    if os.environ.get('PYTEST_XDIST_WORKER') == 'gw0': os._exit(3)\n")
    (project / "tests" / "test_well.py").write_text("def test_all_is_well(): pass\n")
    ended = run(project, workers=2)
    assert ended.returncode == 1
    assert "a worker died" in ended.stdout
    assert ended.stdout.endswith("\n3 passed, 0 failed, 1 skipped\n")


def test_files_that_did_not_run_because_too_many_workers_died_are_told(project: Path):
    suite = project / "scripts" / "suite.py"
    suite.write_text(suite.read_text().replace("RESTARTS = 16", "RESTARTS = 1"))
    for number in range(2):
        (project / "tests" / f"test_dying_{number}.py").write_text(DYING)
    for number in range(20):
        (project / "tests" / f"test_well_{number:02}.py").write_text("def test_all_is_well(): pass\n")
    (project / "tests" / "test_places.py").unlink()
    ended = run(project, workers=1)
    assert ended.returncode == 1
    assert "\n22 of 22 files did not run, or not to their end:\n  tests/test_dying_0.py\n" in ended.stdout
    assert "\n  tests/test_well_12.py\n  …\n" in ended.stdout
    assert ended.stdout.endswith("\n0 passed, 2 failed, 0 skipped\n")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_leaves_out_tests_is_a_failure_even_if_it_is_well_to_pytest(project: Path, workers: int):
    (project / "tests" / "test_leaving.py").write_text("import pytest\n\ndef test_leaves(): pytest.exit('enough', returncode=0)\n")
    ended = run(project, workers=workers)
    assert ended.returncode != 0
    assert "did not run, or not to their end:\n  tests/test_leaving.py\n" in ended.stdout


DYING_NEXT = """
import os
from pathlib import Path

from waiting import until

def test_dies():
    until(Path("gw2").exists)
    os._exit(3)
"""
NOT_COLLECTED_BEFORE_THE_NEXT_DEATH = """

from waiting import until

def pytest_collection():
    me = os.environ.get("PYTEST_XDIST_WORKER")
    if me in ("gw2", "gw3"):
        Path(me).touch()
        until(Path("gw3").exists)
"""


def test_a_worker_that_dies_before_the_replacement_of_another_has_collected_is_replaced_too(project: Path):
    with (project / "tests" / "conftest.py").open("a") as conftest:
        conftest.write(NOT_COLLECTED_BEFORE_THE_NEXT_DEATH)
    (project / "tests" / "test_dying.py").write_text(DYING)
    (project / "tests" / "test_dying_next.py").write_text(DYING_NEXT)
    for number in range(6):
        (project / "tests" / f"test_well_{number}.py").write_text("def test_all_is_well(): pass\n")
    ended = run(project, workers=2)
    assert ended.returncode == 1
    assert ended.stdout.endswith("8 passed, 2 failed, 1 skipped\n")


TAKEN_DOWN = """
import signal
from pathlib import Path

import pytest
from waiting import until

@pytest.fixture
def node():
    yield
    Path("taking-down").touch()
    until(Path("may-end").exists)
    Path("taken-down").touch()

def test_hangs(node):
    Path("begun").touch()
    signal.pause()
"""


@pytest.fixture
def hanging(project: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A run with a test that hangs, all of whose processes get Ctrl-C as from a terminal; what it prints is in out.txt."""
    (project / "tests" / "test_hanging.py").write_text(TAKEN_DOWN)
    (project / "tests" / "test_places.py").unlink()
    account = project / "tests" / "account.py"
    account.write_text(account.read_text().replace("REPEATED_S = 0.2, 30.0", "REPEATED_S = 0.2, 0.2"))
    command, environment = suite("tests", workers=2)
    with (project / "out.txt").open("wb") as out:
        process = subprocess.Popen(command, cwd=project, env=environment, stdout=out, stderr=out, start_new_session=True)
    until((project / "begun").exists, "the test begins")
    until(lambda: " 0 tests, 0 of 1 files  test_hanging\n" in (project / "out.txt").read_text(), "a line names it, and comes without news")
    yield process
    (project / "may-end").touch()
    process.wait(PATIENCE_S)


@pytest.mark.parametrize("is_from_a_terminal", [True, False])
def test_a_run_that_is_interrupted_takes_down_what_it_started_and_prints_the_account(
    project: Path, hanging: "subprocess.Popen[bytes]", is_from_a_terminal: bool
):
    (project / "may-end").touch()
    if is_from_a_terminal:
        os.killpg(hanging.pid, signal.SIGINT)
    else:
        hanging.terminate()
    assert hanging.wait(PATIENCE_S) == 2
    assert (project / "taken-down").exists()
    told = (project / "out.txt").read_text()
    assert "\nwas running:\n  tests/test_hanging.py::test_hangs\n" in told
    assert "\n1 of 1 files did not run, or not to their end:\n  tests/test_hanging.py\n" in told
    assert told.endswith("\n0 passed, 0 failed, 0 skipped\n")


def test_a_second_interrupt_does_not_wait(project: Path, hanging: "subprocess.Popen[bytes]"):
    os.killpg(hanging.pid, signal.SIGINT)
    until((project / "taking-down").exists, "the fixture is torn down")
    os.killpg(hanging.pid, signal.SIGINT)
    assert hanging.wait(PATIENCE_S) not in (0, 1)
    assert not (project / "taken-down").exists()


def test_a_run_says_where_it_is_though_no_test_begins_or_ends(project: Path, hanging: "subprocess.Popen[bytes]"):
    lines = (project / "out.txt").read_text().count("\n")
    until(lambda: (project / "out.txt").read_text().count("\n") > lines + 2, "the line comes again and again")
    (project / "may-end").touch()
    hanging.terminate()


ODD = """
import pytest

@pytest.fixture
def spoilt():
    yield
    assert False

def test_ends_badly(spoilt): pass

@pytest.mark.parametrize("number", range(60))
def test_number(number): assert False, f"report {number}."

@pytest.mark.skip("only on the moon")
def test_there(): assert False
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_each_test_counts_once_and_of_very_many_failures_some_are_shown(project: Path, workers: int):
    (project / "tests" / "test_odd.py").write_text(ODD)
    told = run(project, "tests/test_odd.py", workers=workers).stdout
    assert told.endswith("\n0 passed, 61 failed, 1 skipped\n")
    assert sum(f"AssertionError: report {number}." in told for number in range(60)) == 39, "the first report is that of the teardown"
    assert told.count("  .venv/bin/pytest tests/test_odd.py::") + told.count("  .venv/bin/pytest 'tests/test_odd.py::") == 40
    assert "\n  … and 21 more\n" in told
    assert "\n    1  only on the moon\n" in told


@pytest.mark.parametrize("workers", [0, 2])
def test_a_suite_without_tests_fails_and_says_so(project: Path, workers: int):
    (project / "tests" / "test_places.py").unlink()
    ended = run(project, workers=workers)
    assert ended.returncode == 5 and ended.stdout.endswith("\nno test of the tier `test` was found in tests\n")
    (project / "tests" / "test_long.py").write_text(LONG)
    ended = run(project, "--tier", "fast", "tests/test_long.py", workers=workers)
    assert ended.returncode == 5 and ended.stdout.endswith("\nno test of the tier `fast` was found in tests/test_long.py\n")
    ended = run(project, "scripts", workers=workers)
    assert ended.returncode == 5 and ended.stdout.endswith("no test of the tier `test` was found in scripts\n")


def test_a_path_that_does_not_exist_is_refused(project: Path):
    ended = run(project, "tests/test_places.py", "tests/nope", "tests/test_nope.py::test_x")
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.endswith("error: there is no tests/nope and no tests/test_nope.py::test_x\n")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_named_test_that_does_not_exist_is_refused(project: Path, workers: int):
    ended = run(project, "tests/test_places.py::test_nope", workers=workers)
    assert ended.returncode not in (0, 1)
    assert "not found" in ended.stdout and "tests/test_places.py::test_nope" in ended.stdout
