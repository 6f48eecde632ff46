"""What pytest refuses to collect: tests outside `make test` for which nothing stays there, however their marks are spelt."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.paired  # Each starts pytest.

ROOT = Path(__file__).parents[2]
MODULES = ("conftest", "account", "all_loops", "machine", "schedule", "tier_marks", "tiers", "waiting", "whole_files")
STAYING = """
import pytest

@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow(stays="tests/test_staying.py::test_stays"))])
def test_stays(seed): pass

@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_stays_before_hours(seed): pass

@pytest.mark.soak(only_here="it takes hours")
class TestLong:
    def test_in_it(self): pass
"""
IT = """
import pytest
from tiers import pick, pick_step

HERE = "tests/test_staying.py::"
"""
REFUSED = {
    "none": ("@pytest.mark.slow\ndef test_it(): pass\n", "write slow(stays="),
    "an argument": ("@pytest.mark.slow(HERE + 'test_stays')\ndef test_it(): pass\n", "write slow(stays="),
    "a keyword more": ("@pytest.mark.slow(stays=HERE + 'test_stays', why='')\ndef test_it(): pass\n", "write slow(stays="),
    "made of parts": ("@pytest.mark.slow(stays=HERE + 'test_gone')\ndef test_it(): pass\n", "test_gone is no test of `make test`"),
    "by another name": ("from pytest import mark as m\n@m.slow(stays=f'{HERE}test_gone')\ndef test_it(): pass\n", "test_gone is no test"),
    "by getattr": ("@getattr(pytest.mark, 'slow')(stays=HERE)\ndef test_it(): pass\n", "is no test of `make test`"),
    "in a dictionary": ("@pytest.mark.slow(**{'stays': HERE + 'test_in_it'})\ndef test_it(): pass\n", "test_in_it is no test"),
    "one that is soak": (
        "@pytest.mark.slow(stays=HERE + 'TestLong::test_in_it')\ndef test_it(): pass\n",
        "TestLong::test_in_it is no test",
    ),
    "itself": ("@pytest.mark.slow(stays='tests/test_it.py::test_it')\ndef test_it(): pass\n", "test_it is no test of `make test`"),
    "a slow parameter": ("@pytest.mark.slow(stays=HERE + 'test_stays[1]')\ndef test_it(): pass\n", "test_stays[1] is no test"),
    "a file that is not there": ("@pytest.mark.slow(stays='tests/test_no.py::test_x')\ndef test_it(): pass\n", "test_x is no test"),
    "soak alone": ("pytestmark = [pytest.mark.soak]\ndef test_it(): pass\n", "write soak(stays="),
    "soak without a reason": ("@pytest.mark.soak(only_here='')\ndef test_it(): pass\n", "write soak(stays="),
    "a skip": ("@pytest.mark.skipif(False, reason='later')\ndef test_it(): pass\n", "skipif must be a skip with a reason"),
    "what no machine has": ("@pytest.mark.skip('needs moon: too far')\ndef test_it(): pass\n", "skip must be a skip with a reason"),
    "a failure": ("@pytest.mark.xfail(reason='only on Linux')\ndef test_it(): pass\n", "xfail must be a skip with a reason"),
    "nothing picked": ("@pytest.mark.repeats\ndef test_it(): pass\nSEEDS = pick(test=0, slow=5)\n", "pick(test=0, slow=5)"),
    "less picked": ("@pytest.mark.repeats\ndef test_it(): pass\nSEEDS = pick(test=2, slow=1)\n", "pick(test=2, slow=1)"),
    "longer steps": ("@pytest.mark.repeats\ndef test_it(): pass\nSTEP = pick_step(test=1, slow=2)\n", "pick_step(test=1, slow=2)"),
}
TAKEN = """
@pytest.mark.slow(stays=HERE + "test_stays")
def test_it(): pass

@pytest.mark.soak(stays=HERE + "test_stays[0]")
def test_long(): pass

@pytest.mark.skipif(False, reason="needs java: not installed")
def test_in_java(): pass

@pytest.mark.skip("only on Linux")
def test_on_linux(): pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    for module in MODULES:
        shutil.copy(ROOT / "tests" / f"{module}.py", tmp_path / "tests")
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "test_staying.py").write_text(STAYING)
    return tmp_path


def run(project: Path, source: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    (project / "tests" / "test_it.py").write_text(IT + source)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "PYTEST_", "PYTHONPATH"))}
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=project, env=kept, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("case", REFUSED)
def test_a_mark_that_does_not_say_what_stays_is_not_collected(project: Path, case: str):
    source, told = REFUSED[case]
    ended = run(project, source, "--collect-only", "-qq", "tests")
    assert ended.returncode != 0 and told in ended.stdout + ended.stderr


def test_marks_that_say_so_are_collected(project: Path):
    ended = run(project, TAKEN, "--collect-only", "-qq", "--tier", "slow", "tests")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "tests/test_it.py: 1" in ended.stdout and "tests/test_staying.py: 1" in ended.stdout


def test_what_stays_in_a_file_that_was_not_collected_is_not_looked_up(project: Path):
    source = "@pytest.mark.slow(stays=HERE + 'test_gone')\ndef test_it(): pass\n"
    assert run(project, source, "--collect-only", "--tier", "slow", "tests/test_it.py").returncode == 0


CALLS = ["pytest.skip('later')", "pytest.importorskip('penstock.moon')", "pytest.skip('needs moon: far')", "pytest.xfail('later')"]


@pytest.mark.parametrize("call", CALLS)
def test_a_skip_for_no_good_reason_fails(project: Path, call: str):
    assert "1 failed" in run(project, f"def test_it(): {call}\n", "tests/test_it.py").stdout
    assert "1 skipped" in run(project, "def test_it(): pytest.skip('only on Linux')\n", "tests/test_it.py").stdout
