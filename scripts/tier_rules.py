"""Checks what tests say about the tiers in which they run, without running them.

    python scripts/tier_rules.py

- `@pytest.mark.slow(stays="tests/….py::TestClass::test_name")`: the test that shows the same in `make test` exists, class included, and
  is not itself in another tier. In a file with such a mark every string that is the id of a test is taken for one, wherever it is.
- `pick(test=…, slow=…)` (tests/tiers.py): each test that depends on what was picked, directly or by names and fixtures of its file, has
  `@pytest.mark.repeats`, or is in another tier: else its many seeds would never run.
- `pytest.importorskip(…)`: the reason begins with `needs NAME:`, by which PENSTOCK_REQUIRE makes the skip a failure (tests/conftest.py).

Does not see what a test takes from another file. Used by `make check`; needs nothing but the standard library.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NODE_ID = re.compile(r"tests/[\w/]+\.py::[\w:]+(\[.*\])?")
NEEDS = re.compile(r"needs \w+: ")
ELSEWHERE = frozenset({"slow", "soak"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Test:
    line: int
    marks: frozenset[str]  # Those of its file and class, too.
    names: frozenset[str]  # What it refers to: names, and fixtures, which are its arguments.


@dataclass(slots=True)
class File:
    """What one file says."""

    tree: ast.Module
    tests: dict[str, Test] = field(default_factory=dict)  # By what follows the file in their ids.
    values: dict[str, ast.expr] = field(default_factory=dict)  # Of the names that the file assigns.

    def __post_init__(self) -> None:
        for statement in self.tree.body:
            if isinstance(statement, ast.Assign):
                self.values.update({target.id: statement.value for target in statement.targets if isinstance(target, ast.Name)})
        marks = self.marks_in(self.values.get("pytestmark"))
        for statement in self.tree.body:
            self._add(statement, "", marks, frozenset())

    def _add(self, node: ast.stmt, prefix: str, marks: frozenset[str], names: frozenset[str]) -> None:
        """Adds a test, or those of a class; `marks` and `names` are those of what is around it."""
        if isinstance(node, Function) and node.name.startswith("test"):
            self.tests[prefix + node.name] = Test(node.lineno, marks | self._decorations(node), names | names_in(node))
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            own = [part for part in node.body if not (isinstance(part, Function) and part.name.startswith("test"))]
            shared = names.union(*map(names_in, own), *map(names_in, node.decorator_list))
            for part in node.body:
                self._add(part, f"{prefix}{node.name}::", marks | self._decorations(node), shared)
        elif isinstance(node, ast.Assign) and not prefix:  # `TestLog = pytest.mark.repeats(Log.TestCase)`
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id.startswith("Test"):
                    self.tests[target.id] = Test(node.lineno, marks | self.marks_in(node.value), names_in(node) | {target.id})

    def _decorations(self, node: Function | ast.ClassDef) -> frozenset[str]:
        return frozenset[str]().union(*map(self.marks_in, node.decorator_list))

    def marks_in(self, node: ast.expr | None) -> frozenset[str]:
        """Returns the names of the marks that an expression puts on a test; not of those on some parameters unless they are on all."""
        match node:
            case ast.Name(id=name) if name in self.values:
                return self.marks_in(self.values[name])
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return frozenset[str]().union(*map(self.marks_in, elements))
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[_, parameters, *_]):
                return self._marks_of_all(parameters)
            case ast.Call(func=function):
                return self.marks_in(function)
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="pytest"), attr="mark"), attr=name):
                return frozenset({name})
        return frozenset()

    def _marks_of_all(self, parameters: ast.expr) -> frozenset[str]:
        """Returns ELSEWHERE if each parameter is in another tier, whichever."""
        match parameters:
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                pass
            case ast.ListComp(elt=element):
                elements = [element]
            case _:
                return frozenset()
        return ELSEWHERE if elements and all(self._is_elsewhere(element) for element in elements) else frozenset()

    def _is_elsewhere(self, parameter: ast.expr) -> bool:
        keywords = parameter.keywords if isinstance(parameter, ast.Call) else []
        return any(keyword.arg == "marks" and self.marks_in(keyword.value) & ELSEWHERE for keyword in keywords)


def names_in(node: ast.AST) -> frozenset[str]:
    parts = list(ast.walk(node))
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return frozenset(names | {part.arg for part in parts if isinstance(part, ast.arg)})


def problems_in(root: Path) -> Iterator[str]:
    paths = sorted((root / "tests").rglob("*.py"))
    files = {path.relative_to(root).as_posix(): File(ast.parse(path.read_text())) for path in paths}
    for path, file in files.items():
        for line, problem in sorted({*wrong_stays(file, files), *unmarked_picks(file), *skips_without_a_name(file)}):
            yield f"{path}:{line} {problem}"


def wrong_stays(file: File, files: dict[str, File]) -> Iterator[tuple[int, str]]:
    calls = [node for node in ast.walk(file.tree) if isinstance(node, ast.Call) and "slow" in file.marks_in(node.func)]
    called = {id(call.func) for call in calls if [keyword.arg for keyword in call.keywords] == ["stays"]}
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Attribute) and "slow" in file.marks_in(node) and id(node) not in called:
            yield node.lineno, '@pytest.mark.slow(stays="file::test") must name a test that stays in `make test`'
        if called and isinstance(node, ast.Constant) and isinstance(node.value, str) and NODE_ID.fullmatch(node.value):
            where, _, name = node.value.partition("[")[0].partition("::")
            test = files[where].tests.get(name) if where in files else None
            if test is None:
                yield node.lineno, f"there is no test {node.value}: correct the id, class included"
            elif test.marks & ELSEWHERE:
                yield node.lineno, f"{node.value} does not stay in `make test`: it is marked {' or '.join(sorted(test.marks & ELSEWHERE))}"


def unmarked_picks(file: File) -> Iterator[tuple[int, str]]:
    picked = picked_names(file.tree)
    for name, test in file.tests.items():
        used = sorted(test.names & picked)
        if used and not test.marks & (ELSEWHERE | {"repeats"}):
            yield test.line, f"{name} depends on {used[0]}, more of which would run in `make test-slow`, and has no @pytest.mark.repeats"


def picked_names(tree: ast.Module) -> frozenset[str]:
    """Returns `pick`, if the file imports it from tiers, and the names of the file that are made with it, in however many steps."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "tiers"]
    picked = frozenset(name.asname or name.name for node in imports for name in node.names if name.name == "pick")
    while True:
        more = picked.union(*(made_by(statement) for statement in tree.body if names_in(statement) & picked))
        if more == picked:
            return picked
        picked = more


def made_by(statement: ast.stmt) -> set[str]:
    """Returns the names that a statement of a module makes or changes; none for a test."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return set() if name.lower().startswith("test") else {name}
        case ast.Assign(targets=targets):
            return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
    return set()


def skips_without_a_name(file: File) -> Iterator[tuple[int, str]]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip":
            reasons = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
            if not any(isinstance(reason, ast.Constant) and NEEDS.match(str(reason.value)) for reason in reasons):
                yield node.lineno, 'pytest.importorskip must say what is needed: reason="needs spark: pyspark is not installed"'


def main(root: Path = ROOT) -> int:
    problems = list(problems_in(root))
    print(*problems, sep="\n", end="\n" if problems else "")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
