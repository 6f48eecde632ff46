"""The check of tiers: picked numbers run in both."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def check(project: Path, source: str, **helpers: str) -> list[str]:
    """Runs the check on a project with this test file, and with helpers by their names."""
    files = {"test_it": "import pytest\nfrom tiers import pick\n" + source, **helpers}
    for path, text in {f"tests/{name}.py": text for name, text in files.items()}.items():
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_text(text)
    script = project / "scripts" / "tier_rules.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text((ROOT / "scripts" / "tier_rules.py").read_text())
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert ended.returncode == int(bool(ended.stdout)), ended.stderr
    return ended.stdout.splitlines()


PICKING = {
    "a parameter": '@pytest.mark.parametrize("seed", range(pick(test=1, slow=2)))\ndef test_seed(seed): pass\n',
    "its own lines": "def test_seed():\n    range(pick(test=1, slow=2))\n",
    "the module": "import tiers\ndef test_seed():\n    range(tiers.pick(test=1, slow=2))\n",
    "the module by another name": "import tiers as t\nSEEDS = t.pick(test=1, slow=2)\ndef test_seed():\n    walk(SEEDS)\n",
    "a condition": "if FAST:\n    SEEDS = pick(test=1, slow=2)\nelse:\n    SEEDS = 1\ndef test_seed():\n    walk(SEEDS)\n",
    "a loop": "for _ in (1, 2):\n    SEEDS = pick(test=1, slow=2)\ndef test_seed():\n    walk(SEEDS)\n",
    "a list that grows": "SEEDS = []\nSEEDS.append(pick(test=1, slow=2))\ndef test_seed():\n    walk(SEEDS)\n",
    "a fixture for all": "@pytest.fixture(autouse=True)\ndef seeds():\n    return pick(test=1, slow=2)\ndef test_seed(): pass\n",
    "a hook": "def pytest_generate_tests(metafunc): metafunc.parametrize('s', range(pick(test=1, slow=2)))\ndef test_seed(s): pass\n",
    "a fixture by its name": "@pytest.fixture\ndef seeds():\n    return pick(test=1, slow=2)\n"
    "@pytest.mark.usefixtures('seeds')\ndef test_seed(): pass\n",
    "a constant": "SEEDS = pick(test=1, slow=2)\nMANY = range(SEEDS)\ndef test_seed():\n    walk(MANY)\n",
    "a mark": 'both = pytest.mark.parametrize("seed", range(pick(test=1, slow=2)))\n@both\ndef test_seed(seed): pass\n',
    "a function": "def walk():\n    range(pick(test=1, slow=2))\ndef test_seed(): walk()\n",
    "a fixture": "@pytest.fixture\ndef seeds():\n    return pick(test=1, slow=2)\ndef test_seed(seeds): pass\n",
    "a method": "class TestIn:\n    def walk(self): pick(test=1, slow=2)\n    def test_seed(self): self.walk()\n",
}


@pytest.mark.parametrize("picking", PICKING.values(), ids=PICKING)
def test_a_test_that_depends_on_what_was_picked_must_repeat_whatever_its_neighbours_do(tmp_path: Path, picking: str):
    neighbour = "@pytest.mark.repeats\ndef test_neighbour(): pick(test=1, slow=2)\n"
    (line,) = check(tmp_path, neighbour + picking)
    assert "test_seed depends on " in line and "no @pytest.mark.repeats" in line
    for mark in ("pytest.mark.repeats", 'pytest.mark.slow(stays="tests/test_staying.py::test_stays")', "pytest.mark.soak"):
        assert check(tmp_path, f"{neighbour}pytestmark = [{mark}]\n{picking}") == []


def test_a_state_machine_with_picked_settings_must_repeat(tmp_path: Path):
    source = "Log.TestCase.settings = settings(max_examples=pick(test=1, slow=2))\nTestLog = {}(Log.TestCase)\n"
    (line,) = check(tmp_path, source.format(""))
    assert "TestLog depends on Log" in line
    assert check(tmp_path, source.format("pytest.mark.repeats")) == []


def test_a_pick_on_which_no_test_depends_is_refused(tmp_path: Path):
    (line,) = check(tmp_path, "SEEDS = pick(test=1, slow=2)\n@pytest.mark.repeats\ndef test_other(): pass\n")
    assert line.startswith("tests/test_it.py:3 no test depends on what is picked here")


@pytest.mark.parametrize("name", ["seeds", "conftest"])
def test_a_helper_picks_nothing_but_how_heavy_a_load_is(tmp_path: Path, name: str):
    picking = "from tiers import pick\nSEEDS = pick(test=1, slow=2)"
    test = "from seeds import SEEDS\ndef test_seed(): walk(SEEDS)\n"
    (line,) = check(tmp_path, test, **{name: picking})
    assert line.startswith(f"tests/{name}.py:2 a helper picks, unseen by the tests that use it")
    assert check(tmp_path, test, **{name: f"{picking}  # tiers: the load only\n"}) == []


def test_what_was_picked_is_not_taken_from_another_file_of_tests(tmp_path: Path):
    other = "import pytest\nfrom tiers import pick\nFEW = 2\nSEEDS = range(pick(test=1, slow=2))\n"
    other += "@pytest.mark.repeats\ndef test_other(): walk(SEEDS)\n"
    (line,) = check(tmp_path, "from test_other import FEW, SEEDS\ndef test_seed(): walk(SEEDS)\n", test_other=other)
    assert line.startswith("tests/test_it.py:3 SEEDS depends on a pick in test_other")
