"""Checks that every rule of docs/invariants.md has a test in `make test`, and writes the page that lists tests and planted defects by rule.

    python scripts/invariants.py [--check]

Rules are the rows `| `area.short-name` | text |` of docs/invariants.md. A test names the rules that it shows with
`@pytest.mark.invariant("area.short-name")`, a whole file with `pytestmark`. What pytest does not collect shows nothing. What runs only in
`make test-slow` or `make soak` (as tier_rules.py reads it) is listed, and another test must show the rule. A planted defect names the
rules that it breaks with `@breaks("area.short-name")` (src/penstock/simulator/defects.py). All of it is read from the source with `ast`:
no test is imported.

What counts as a planted defect, so that one without a rule is found:
- a public function without arguments that returns `Patches`;
- a function in a list `BREAKS` of its module;
- an entry of a dictionary `DEFECTS` of its module, which is marked as a whole: `DEFECTS = breaks("area.short-name")({...})`.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tier_rules import ELSEWHERE, File

ROOT = Path(__file__).resolve().parent.parent
RULES = Path("docs/invariants.md")
REFERENCE = Path("docs/reference/invariants.md")
TESTS = Path("tests")
SIMULATOR = Path("src/penstock/simulator")

MARK = "pytest.mark.invariant"
_ROW = re.compile(r"^\| `([^`]+)` \| (.+) \|$")
_ID = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*")
_RELATIVE_LINK = re.compile(r"\]\((?!https?:)")
_HINTS = ("mark.invariant", "breaks(", "Patches", "BREAKS", "DEFECTS")  # A file without any of these has nothing to read.

HEAD = """\
# Tests and planted defects of each invariant

<!-- Made by `python scripts/invariants.py` from docs/invariants.md and the marks in tests and planted defects; do not edit. -->

For each rule of [invariants.md](../invariants.md): the tests that show it (`@pytest.mark.invariant`), and the planted defects that break it
(`@breaks`) and must be caught. A file without names carries the mark as a whole. {rules} rules, {defects} planted defects.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    id: str
    text: str
    heading: str


@dataclass(frozen=True, slots=True)
class Marked:
    """A test or a planted defect, and the ids of the rules that it names."""

    file: str
    name: str  # Empty for a whole file.
    ids: tuple[str, ...]
    tiers: frozenset[str] = frozenset()  # Of a test those in which alone it runs: slow, soak.

    @property
    def place(self) -> str:
        return f"{self.file}::{self.name}" if self.name else self.file


@dataclass(frozen=True, slots=True)
class Catalogue:
    rules: list[Rule]
    tests: list[Marked]
    defects: list[Marked]


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Writes the reference page, or with `--check` compares it; returns the exit code."""
    catalogue = read(root)
    problems = list(problems_of(catalogue))
    page, path = page_of(catalogue), root / REFERENCE
    if "--check" not in arguments:
        path.write_text(page, encoding="utf-8")
    elif not path.exists() or path.read_text(encoding="utf-8") != page:
        problems.append(f"{REFERENCE} is out of date\n  write it again: python scripts/invariants.py")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def problems_of(catalogue: Catalogue) -> Iterator[str]:
    """Yields a message for each thing that is wrong, with what to do about it."""
    times = Counter(rule.id for rule in catalogue.rules)
    shown = {id for test in catalogue.tests for id in test.ids if not test.tiers}
    seldom = {id: test for test in catalogue.tests for id in test.ids if id not in shown}
    for id, count in times.items():
        if not _ID.fullmatch(id):
            yield f"{RULES}: the id {id} is not of the form area.short-name\n  use lower case letters, digits and hyphens"
        if count > 1:
            yield f"{RULES}: the id {id} is there {count} times\n  give each rule an id of its own"
        if id in seldom:
            place = seldom[id].place
            yield f"{RULES}: only tests that `make test` leaves out show {id}, such as {place}\n  mark one that stays there, or write it"
        elif id not in shown:
            yield f'{RULES}: no test shows {id}\n  mark one that does, or write it: @pytest.mark.invariant("{id}")'
    for marked in (*catalogue.tests, *catalogue.defects):
        for id in marked.ids:
            if id not in times:
                yield f"{marked.place} names {id}, which {RULES} does not have\n  correct the id, or add the rule to the page"
    for test in catalogue.tests:
        if not test.ids:
            yield f"{test.place} has the mark without an id\n  name the rule as a plain string: @{MARK}(\"area.short-name\")"
    for defect in catalogue.defects:
        if not defect.ids:
            yield f"{defect.place} is a planted defect that names no rule\n  name the rule that it breaks: @breaks(\"area.short-name\")"


# Reading.


def read(root: Path) -> Catalogue:
    tests: list[Marked] = []
    defects: list[Marked] = []
    for path in sorted([*(root / TESTS).rglob("*.py"), *(root / SIMULATOR).rglob("*.py")]):
        source = path.read_text(encoding="utf-8")
        if any(hint in source for hint in _HINTS):
            module, file = ast.parse(source), path.relative_to(root).as_posix()
            tests += tests_in(source, file) if path.name.startswith("test_") else []
            defects += defects_in(module, file)
    return Catalogue(rules_in((root / RULES).read_text(encoding="utf-8")), tests, defects)


def rules_in(page: str) -> list[Rule]:
    rules, heading = [], ""
    for line in page.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif row := _ROW.match(line):
            rules.append(Rule(row[1], row[2].strip(), heading))
    return rules


def tests_in(source: str, file: str) -> Iterator[Marked]:
    tests = File(source)
    for node in tests.tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets):
            marks = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            yield from _marked(marks, file, "", tests)
        elif isinstance(node, ast.ClassDef):
            yield from _marked(node.decorator_list, file, node.name, tests)
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from _marked(method.decorator_list, file, f"{node.name}::{method.name}", tests)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _marked(node.decorator_list, file, node.name, tests)


def _marked(marks: Iterable[ast.expr], file: str, name: str, tests: File) -> Iterator[Marked]:
    """Yields the marks on a test, on a class of some or on their file; none on what is no test."""
    tiers = [test.marks & ELSEWHERE for id, test in tests.tests.items() if not name or id == name or id.startswith(f"{name}::")]
    for mark in marks:
        if tiers and ast.unparse(mark.func if isinstance(mark, ast.Call) else mark) == MARK:
            yield Marked(file, name, _ids(mark), min(tiers, key=len))


def defects_in(module: ast.Module, file: str) -> Iterator[Marked]:
    listed = _names_in_breaks(module)
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            marks = [mark for mark in node.decorator_list if _is_breaks(mark)]
            if marks or node.name in listed or _makes_patches(node):
                yield Marked(file, node.name, tuple(id for mark in marks for id in _ids(mark)))
        elif (defects := _assigned(node, "DEFECTS")) is not None:
            mark = defects.func if isinstance(defects, ast.Call) and _is_breaks(defects.func) else None
            entries = defects.args[0] if isinstance(defects, ast.Call) and defects.args else defects
            ids = () if mark is None else _ids(mark)
            for key in entries.keys if isinstance(entries, ast.Dict) else []:
                if isinstance(key, ast.Constant):
                    yield Marked(file, str(key.value), ids)


def _makes_patches(node: ast.FunctionDef) -> bool:
    has_arguments = bool(node.args.args or node.args.posonlyargs or node.args.kwonlyargs)
    returns = "" if node.returns is None else ast.unparse(node.returns)
    return returns == "Patches" and not has_arguments and not node.name.startswith("_")


def _names_in_breaks(module: ast.Module) -> set[str]:
    lists = (_assigned(node, "BREAKS") for node in module.body)
    return {each.id for found in lists if isinstance(found, ast.List | ast.Tuple) for each in found.elts if isinstance(each, ast.Name)}


def _assigned(node: ast.stmt, name: str) -> ast.expr | None:
    """Returns the value if this statement assigns it to that name."""
    if isinstance(node, ast.AnnAssign):
        targets: list[ast.expr] = [node.target]
    elif isinstance(node, ast.Assign):
        targets = node.targets
    else:
        return None
    return node.value if any(isinstance(target, ast.Name) and target.id == name for target in targets) else None


def _is_breaks(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "breaks"


def _ids(mark: ast.expr) -> tuple[str, ...]:
    """Returns the ids that a mark names as plain strings; others cannot be read and count as missing."""
    arguments = mark.args if isinstance(mark, ast.Call) else []
    plain = [each.value for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return tuple(plain) if len(plain) == len(arguments) else ()


# Writing.


def page_of(catalogue: Catalogue) -> str:
    tests, defects = _by_rule(catalogue.tests), _by_rule(catalogue.defects)
    text = HEAD.format(rules=len(catalogue.rules), defects=len(catalogue.defects))
    for heading, rules in groupby(catalogue.rules, key=lambda rule: rule.heading):
        text += f"\n## {heading}\n"
        for rule in rules:
            text += f"\n### {rule.id}\n\n{_RELATIVE_LINK.sub('](../', rule.text)}\n\n" + _places(tests[rule.id])
            if defects[rule.id]:
                text += "\nPlanted defects:\n\n" + _places(defects[rule.id])
    return text


def _by_rule(marked: Iterable[Marked]) -> defaultdict[str, list[Marked]]:
    found: defaultdict[str, list[Marked]] = defaultdict(list)
    for each in marked:
        for id in dict.fromkeys(each.ids):
            found[id].append(each)
    return found


def _places(marked: Iterable[Marked]) -> str:
    """One line for each file, with the names in it unless the whole file is marked."""
    lines = ""
    for file, some in groupby(marked, key=lambda each: each.file):
        names = [each.name for each in some]
        lines += f"- `{file}`\n" if "" in names else f"- `{file}`: {', '.join(f'`{name}`' for name in names)}\n"
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
