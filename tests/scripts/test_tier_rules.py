"""The check of tiers: what stays of a slow test is there, picked numbers run in both tiers, and a skipped import says what is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAYING = """
import pytest

def test_stays(): pass

@pytest.mark.soak
def test_for_hours(): pass

@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.slow(stays="tests/test_staying.py::test_stays")) for seed in (1, 2)])
def test_slow_throughout(seed): pass

@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow(stays="tests/test_staying.py::test_stays"))])
def test_slow_in_part(seed): pass

class TestIn:
    def test_a_class(self): pass

@pytest.mark.soak
class TestLong:
    def test_in_it(self): pass
"""


def check(project: Path, source: str) -> list[str]:
    for path, text in {"tests/test_staying.py": STAYING, "tests/test_it.py": "import pytest\nfrom tiers import pick\n" + source}.items():
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_text(text)
    script = project / "scripts" / "tier_rules.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text((ROOT / "scripts" / "tier_rules.py").read_text())
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert ended.returncode == int(bool(ended.stdout)), ended.stderr
    return ended.stdout.splitlines()


def slow(stays: str) -> str:
    return f'@pytest.mark.slow(stays="tests/test_staying.py::{stays}")\ndef test_slow(): pass\n'


@pytest.mark.parametrize("stays", ["test_stays", "test_stays[1-a]", "TestIn::test_a_class", "test_slow_in_part"])
def test_a_slow_test_names_one_that_stays(tmp_path: Path, stays: str):
    assert check(tmp_path, slow(stays)) == []


@pytest.mark.parametrize(
    ("stays", "told"),
    [
        ("test_gone", "there is no test"),
        ("test_a_class", "there is no test"),
        ("TestOther::test_a_class", "there is no test"),
        ("test_for_hours", "does not stay in `make test`: it is marked soak"),
        ("TestLong::test_in_it", "does not stay in `make test`: it is marked soak"),
        ("test_slow_throughout", "does not stay in `make test`: it is marked slow or soak"),
    ],
)
def test_a_test_that_does_not_stay_is_refused(tmp_path: Path, stays: str, told: str):
    (line,) = check(tmp_path, slow(stays))
    assert line.startswith("tests/test_it.py:3 ") and told in line


@pytest.mark.parametrize("mark", ["pytest.mark.slow", "pytest.mark.slow()", 'pytest.mark.slow("tests/test_staying.py::test_stays")'])
def test_a_slow_test_that_names_none_is_refused(tmp_path: Path, mark: str):
    (line,) = check(tmp_path, f"@{mark}\ndef test_slow(): pass\n")
    assert "must name a test that stays" in line


def test_an_id_that_reaches_the_mark_through_a_table_is_read_too(tmp_path: Path):
    source = """
KEPT = {7: "tests/test_staying.py::test_gone"}

@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.slow(stays=stays)) for seed, stays in KEPT.items()])
def test_kept(seed): pass
"""
    (line,) = check(tmp_path, source)
    assert "there is no test tests/test_staying.py::test_gone" in line


PICKING = {
    "a parameter": '@pytest.mark.parametrize("seed", range(pick(test=1, slow=2)))\ndef test_seed(seed): pass\n',
    "its own lines": "def test_seed():\n    range(pick(test=1, slow=2))\n",
    "a constant": "SEEDS = pick(test=1, slow=2)\nMANY = range(SEEDS)\ndef test_seed():\n    walk(MANY)\n",
    "a mark": 'both = pytest.mark.parametrize("seed", range(pick(test=1, slow=2)))\n@both\ndef test_seed(seed): pass\n',
    "a function": "def walk():\n    range(pick(test=1, slow=2))\ndef test_seed(): walk()\n",
    "a fixture": "@pytest.fixture\ndef seeds():\n    return pick(test=1, slow=2)\ndef test_seed(seeds): pass\n",
    "a method": "class TestIn:\n    def walk(self): pick(test=1, slow=2)\n    def test_seed(self): self.walk()\n",
}


@pytest.mark.parametrize("picking", PICKING.values(), ids=PICKING)
def test_a_test_that_depends_on_what_was_picked_must_repeat_whatever_its_neighbours_do(tmp_path: Path, picking: str):
    neighbour = "@pytest.mark.repeats\ndef test_neighbour(): pick(test=1, slow=2)\ndef test_other(): pass\n"
    (line,) = check(tmp_path, neighbour + picking)
    assert "test_seed depends on " in line and "no @pytest.mark.repeats" in line
    for mark in ("pytest.mark.repeats", 'pytest.mark.slow(stays="tests/test_staying.py::test_stays")', "pytest.mark.soak"):
        assert check(tmp_path, f"{neighbour}pytestmark = [{mark}]\n{picking}") == []


def test_a_state_machine_with_picked_settings_must_repeat(tmp_path: Path):
    source = "Log.TestCase.settings = settings(max_examples=pick(test=1, slow=2))\nTestLog = {}(Log.TestCase)\n"
    (line,) = check(tmp_path, source.format(""))
    assert "TestLog depends on Log" in line
    assert check(tmp_path, source.format("pytest.mark.repeats")) == []


def test_a_skipped_import_says_what_is_needed(tmp_path: Path):
    (line,) = check(tmp_path, 'pytest.importorskip("pyspark")\n')
    assert "must say what is needed" in line
    assert check(tmp_path, 'pytest.importorskip("pyspark", reason="needs spark: not installed")\n') == []
