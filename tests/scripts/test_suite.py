"""The suite's own rules: a skip is told with its reason, and is a failure where the machine must have the thing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TESTS = """
import pytest

@pytest.mark.needs("moon")
def test_on_the_moon(): pass

def test_on_earth(): pass

@pytest.mark.serial
def test_alone(): pass

@pytest.mark.soak
def test_for_hours(): pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with this one's rules, on a machine that can look for the moon and does not find it."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    machine = (ROOT / "tests" / "machine.py").read_text() + '\n\nPROBES["moon"] = lambda: "it is too far"\n'
    (tmp_path / "tests" / "machine.py").write_text(machine)
    (tmp_path / "tests" / "test_places.py").write_text(TESTS)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(project: Path, *arguments: str, require: str = "") -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "PYTEST_", "PYTHONPATH"))}
    command = [sys.executable, "scripts/suite.py", *arguments]
    return subprocess.run(command, cwd=project, env=kept | {"PENSTOCK_REQUIRE": require}, capture_output=True, text=True, check=False)


def test_the_account_covers_both_parts_and_names_the_reason(project: Path):
    ended = run(project)
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.endswith("skipped, and why\n    1  needs moon: it is too far\n\n2 passed, 0 failed, 1 skipped\n")


def test_a_skip_is_a_failure_where_the_machine_must_have_it(project: Path):
    ended = run(project, require="moon")
    assert ended.returncode == 1
    assert "this machine must have moon (PENSTOCK_REQUIRE): it is too far" in ended.stdout
    assert ended.stdout.endswith("nothing was skipped\n\n2 passed, 1 failed, 0 skipped\n")


def test_a_requirement_that_nobody_knows_is_refused(project: Path):
    ended = run(project, require="mon")
    assert ended.returncode != 0
    assert "PENSTOCK_REQUIRE names mon" in ended.stderr + ended.stdout


def test_the_long_tests_run_when_asked_for_and_alone(project: Path):
    assert run(project, "--soak").stdout.endswith("1 passed, 0 failed, 0 skipped\n")


def test_a_suite_without_tests_does_not_pass(project: Path):
    (project / "tests" / "test_places.py").unlink()
    assert run(project).returncode != 0
