"""The check of invariants fails for a rule without a test, for an id that no rule has, and for a defect that names no rule."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = "scripts/invariants.py"

RULES = """\
# Invariants

## The log

| id | rule |
|---|---|
| `log.ack-after-flush` | A record is acknowledged only after it is flushed ([limits](status.md)). |
| `log.torn-tail` | Recovery cuts a torn tail. |
"""
TESTS = """\
import pytest

pytestmark = [pytest.mark.timeout(5), pytest.mark.invariant("log.torn-tail")]


@pytest.mark.invariant("log.ack-after-flush", "log.torn-tail")
def test_a_power_cut() -> None: ...


class TestLog:
    @pytest.mark.invariant("log.ack-after-flush")
    async def test_a_kill(self) -> None: ...
"""
VARIANTS = """\
@breaks("log.ack-after-flush")
def acknowledges_early() -> Patches:
    return _patches()


def _patches() -> Patches: ...
"""
IN_TESTS = """\
@breaks("log.torn-tail")
def tails_stay(patch: pytest.MonkeyPatch) -> None: ...


BREAKS: list[Break] = [tails_stay]
DEFECTS: dict[str, Defect] = breaks("log.torn-tail")({"cuts too much": (Log, "cut", None)})
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with this one's script, in which everything is as it should be."""
    for path, text in {
        SCRIPT: (ROOT / SCRIPT).read_text(),
        "scripts/tier_rules.py": (ROOT / "scripts/tier_rules.py").read_text(),
        "docs/invariants.md": RULES,
        "tests/log/test_log.py": TESTS,
        "tests/log/test_model.py": IN_TESTS,
        "src/penstock/simulator/variants.py": VARIANTS,
        "docs/reference/invariants.md": "",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert run(tmp_path).returncode == 0
    return tmp_path


def run(project: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(project / SCRIPT), *arguments], capture_output=True, text=True, check=False)


def change(project: Path, path: str, before: str, after: str) -> None:
    text = (project / path).read_text()
    assert before in text
    (project / path).write_text(text.replace(before, after))


def complaints(project: Path) -> str:
    """Writes the page first, so that only the other complaints are left."""
    run(project)
    ended = run(project, "--check")
    assert (ended.returncode, ended.stdout) == (1, "")
    return ended.stderr


def test_the_page_lists_tests_and_defects_with_their_files(project: Path) -> None:
    assert (run(project, "--check").returncode, run(project, "--check").stderr) == (0, "")
    page = (project / "docs/reference/invariants.md").read_text()
    _, flush, tail = page.split("\n### ")
    assert "only after it is flushed ([limits](../status.md))." in flush
    assert "- `tests/log/test_log.py`: `test_a_power_cut`, `TestLog::test_a_kill`\n" in flush
    assert "Planted defects:\n\n- `src/penstock/simulator/variants.py`: `acknowledges_early`\n" in flush
    assert "- `tests/log/test_log.py`\n" in tail, "the whole file is marked"
    assert "Planted defects:\n\n- `tests/log/test_model.py`: `tails_stay`, `cuts too much`\n" in tail
    assert "2 rules, 3 planted defects" in page


def test_a_rule_without_a_test_is_refused(project: Path) -> None:
    change(project, "docs/invariants.md", "| `log.torn-tail`", "| `log.new-rule` | Something new. |\n| `log.torn-tail`")
    assert complaints(project).startswith("docs/invariants.md: no test shows log.new-rule\n  mark one that does")


def test_a_mark_on_what_is_no_test_shows_nothing(project: Path) -> None:
    change(project, "docs/invariants.md", "| `log.torn-tail`", "| `log.new-rule` | Something new. |\n| `log.torn-tail`")
    change(project, "tests/log/test_log.py", "class", '@pytest.mark.invariant("log.new-rule")\ndef helper(): ...\n\n\nclass')
    assert "no test shows log.new-rule" in complaints(project)


TESTS_OF_A_NEW_RULE = {
    "a file that pytest does not collect": ("tests/log/scene.py", "{mark}\ndef test_it(): ...\n", "no test shows"),
    "a class that pytest does not collect": (
        "tests/log/test_it.py",
        "class Log:\n    {mark}\n    def test_it(self): ...\n",
        "no test shows",
    ),
    "soak": ("tests/log/test_it.py", "{mark}\n@pytest.mark.soak\ndef test_it(): ...\n", "only tests that `make test` leaves out show"),
    "slow": (
        "tests/log/test_it.py",
        "{mark}\n@pytest.mark.slow(stays=A)\ndef test_it(): ...\n",
        "only tests that `make test` leaves out show",
    ),
    "a class for soak": (
        "tests/log/test_it.py",
        "{mark}\n@pytest.mark.soak\nclass TestIt:\n    def test_it(self): ...\n",
        "only tests that `make test` leaves out show",
    ),
    "a file for soak": (
        "tests/log/test_it.py",
        'pytestmark = [pytest.mark.soak, pytest.mark.invariant("log.new-rule")]\ndef test_it(): ...\n',
        "only tests that `make test` leaves out show",
    ),
}


@pytest.mark.parametrize(("path", "test", "complaint"), TESTS_OF_A_NEW_RULE.values(), ids=TESTS_OF_A_NEW_RULE)
def test_a_rule_needs_a_test_that_make_test_runs(project: Path, path: str, test: str, complaint: str) -> None:
    change(project, "docs/invariants.md", "| `log.torn-tail`", "| `log.new-rule` | Something new. |\n| `log.torn-tail`")
    (project / path).write_text("import pytest\n" + test.format(mark='@pytest.mark.invariant("log.new-rule")'))
    assert complaints(project).startswith(f"docs/invariants.md: {complaint} log.new-rule")
    (project / "tests/log/test_other.py").write_text('@pytest.mark.invariant("log.new-rule")\ndef test_other(): ...\n')
    run(project)
    assert run(project, "--check").returncode == 0, "another test shows it"


@pytest.mark.parametrize("path", ["tests/log/test_log.py", "tests/log/test_model.py", "src/penstock/simulator/variants.py"])
def test_an_id_that_no_rule_has_is_refused(project: Path, path: str) -> None:
    change(project, path, '("log.', '("log.tron-tail", "log.')
    told = complaints(project)
    assert told.startswith(path)
    assert "names log.tron-tail, which docs/invariants.md does not have\n  correct the id" in told


@pytest.mark.parametrize(
    ("path", "mark", "instead", "name"),
    [
        ("src/penstock/simulator/variants.py", '@breaks("log.ack-after-flush")\n', "", "acknowledges_early"),
        ("tests/log/test_model.py", '@breaks("log.torn-tail")\n', "", "tails_stay"),
        ("tests/log/test_model.py", 'breaks("log.torn-tail")({"cuts too much"', '({"cuts too much"', "cuts too much"),
    ],
)
def test_a_defect_that_names_no_rule_is_refused(project: Path, path: str, mark: str, instead: str, name: str) -> None:
    change(project, path, mark, instead)
    assert f"{path}::{name} is a planted defect that names no rule\n  name the rule that it breaks" in complaints(project)


def test_an_id_that_is_no_plain_string_is_refused(project: Path) -> None:
    change(project, "tests/log/test_log.py", '("log.ack-after-flush")', "(RULE)")
    assert "tests/log/test_log.py::TestLog::test_a_kill has the mark without an id" in complaints(project)


@pytest.mark.parametrize(
    ("id", "complaint"),
    [("log.torn-tail", "the id log.torn-tail is there 2 times"), ("TornTail", "the id TornTail is not of the form area.short-name")],
)
def test_an_id_is_unique_and_well_formed(project: Path, id: str, complaint: str) -> None:
    change(project, "docs/invariants.md", "| `log.torn-tail`", f"| `{id}` | The same again. |\n| `log.torn-tail`")
    assert complaint in complaints(project)


def test_a_page_that_is_out_of_date_is_refused(project: Path) -> None:
    change(project, "docs/invariants.md", "cuts a torn tail", "cuts off a torn tail")
    ended = run(project, "--check")
    assert ended.returncode == 1
    assert ended.stderr == "docs/reference/invariants.md is out of date\n  write it again: python scripts/invariants.py\n"
