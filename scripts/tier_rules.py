"""Checks what tests pick for the tiers in which they run, without running them.

    python scripts/tier_rules.py [--collect]

- `pick(test=…, slow=…)` (tests/tiers.py): each test that depends on what was picked, directly or by names and fixtures of its file, has
  `@pytest.mark.repeats`, or is in another tier: else its many seeds would never run. A file that picks has such a test.
- What is picked stays in the file of the tests that depend on it: a helper or a conftest.py does not pick, and no file takes a picked name
  from another. A helper may pick how heavy a load is, for tests of either tier: it says so by the comment LOAD_ONLY behind the pick.

`--collect` lets pytest collect the whole suite, too: tests/tier_marks.py says what it checks.
Used by `make check`; needs nothing but the standard library, and pytest for `--collect`.
"""

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOAD_ONLY = "# tiers: the load only"
PICKS = ("pick", "pick_step")
ALWAYS_USED = "an autouse fixture"  # Stands for autouse fixtures and hooks: every test of their file depends on them.
ELSEWHERE = frozenset({"slow", "soak"})
RUNS_SLOW = ELSEWHERE | {"repeats"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Test:
    line: int
    marks: frozenset[str]  # Those of its file and class, too.
    names: frozenset[str]  # What it refers to: names, and fixtures, which are its arguments.


@dataclass(slots=True)
class File:
    """What one file says."""

    text: str
    tree: ast.Module = field(init=False)
    tests: dict[str, Test] = field(default_factory=dict)  # By what follows the file in their ids.
    values: dict[str, ast.expr] = field(default_factory=dict)  # Of the names that the file assigns.

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)
        for statement in statements_in(self.tree.body):
            if isinstance(statement, ast.Assign):
                self.values.update({target.id: statement.value for target in statement.targets if isinstance(target, ast.Name)})
        marks = self.marks_in(self.values.get("pytestmark"))
        for statement in statements_in(self.tree.body):
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
    """Returns what is referred to: names, attributes of names, and fixtures, which are arguments."""
    names = {ALWAYS_USED}
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name) | ast.arg(arg=name):
                names.add(name)
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                names.add(f"{owner}.{name}")
            case ast.Call(func=ast.Attribute(attr="usefixtures" | "getfixturevalue"), args=fixtures):
                names.update(str(fixture.value) for fixture in fixtures if isinstance(fixture, ast.Constant))
    return frozenset(names)


def statements_in(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Yields the statements of a module, with those below `if`, `for`, `with` and `try`."""
    for node in body:
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, Function | ast.ClassDef | ast.expr):
            yield from statements_in(ast.iter_child_nodes(node))


def problems_in(root: Path) -> Iterator[str]:
    paths = sorted((root / "tests").rglob("*.py"))
    files = {path.relative_to(root).as_posix(): File(path.read_text()) for path in paths}
    for path, file in files.items():
        has_tests = path.rpartition("/")[2].startswith("test_")
        picks = {*unmarked_picks(file), *taken_picks(file, files)} if has_tests else set(picks_of_helper(file))
        for line, problem in sorted(picks):
            yield f"{path}:{line} {problem}"


def unmarked_picks(file: File) -> Iterator[tuple[int, str]]:
    picked = picked_names(file.tree)
    users = {name: test for name, test in file.tests.items() if test.names & picked}
    for name, test in users.items():
        if not test.marks & RUNS_SLOW:
            used = min(test.names & picked)
            yield test.line, f"{name} depends on {used}, more of which would run in `make test-slow`, and has no @pytest.mark.repeats"
    for line in lines_of_picks(file) if not users else ():
        yield line, "no test depends on what is picked here: more would never run"


def taken_picks(file: File, files: dict[str, File]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.rpartition(".")[2].startswith("test_"):
            source = files.get(f"tests/{node.module.replace('.', '/')}.py")
            picked = picked_names(source.tree) if source is not None else frozenset[str]()
            for name in sorted(picked.intersection(each.name for each in node.names)):
                yield node.lineno, f"{name} depends on a pick in {node.module}: pick in the file of the tests"


def picks_of_helper(file: File) -> Iterator[tuple[int, str]]:
    lines = file.text.splitlines()
    for line in lines_of_picks(file):
        if not lines[line - 1].endswith(LOAD_ONLY):
            yield line, f"a helper picks, unseen by the tests that use it: pick in their file, or say `{LOAD_ONLY}`"


def lines_of_picks(file: File) -> list[int]:
    names = names_of_pick(file.tree)
    calls = [node for node in ast.walk(file.tree) if isinstance(node, ast.Call)] if names else []
    return [call.lineno for call in calls if ast.unparse(call.func) in names]


def names_of_pick(tree: ast.Module) -> frozenset[str]:
    """Returns the names by which a file calls `pick` of tiers.py, such as `tiers.pick`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "tiers":
            names.update(each.asname or each.name for each in node.names if each.name in PICKS)
        elif isinstance(node, ast.Import):
            names.update(f"{each.asname or each.name}.{pick}" for each in node.names if each.name == "tiers" for pick in PICKS)
    return frozenset(names)


def picked_names(tree: ast.Module) -> frozenset[str]:
    """Returns the names of `pick`, and those of the file that are made with it, in however many steps."""
    picked = names_of_pick(tree)
    steps = [(made_by(statement), names_in(statement) - {ALWAYS_USED}) for statement in statements_in(tree.body)] if picked else []
    while True:
        more = picked.union(*(made for made, used in steps if used & picked))
        if more == picked:
            return picked
        picked = more


def made_by(statement: ast.stmt) -> set[str]:
    """Returns the names that a statement of a module makes or changes; none for a test."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            is_always_used = any("autouse=True" in ast.unparse(mark) for mark in statement.decorator_list) or name.startswith("pytest_")
            return set() if name.lower().startswith("test") else {name, ALWAYS_USED} if is_always_used else {name}
        case ast.Assign(targets=targets):
            return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.For(target=target):
            return {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):  # `SEEDS.append(…)`
            return {name}
    return set()


def collection_problems(root: Path) -> str:
    """Returns what pytest says when it cannot collect the whole suite; empty if it can."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider", "--tier", "slow", "tests"]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr if ended.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", action="store_true", help="also let pytest collect the whole suite, which checks its marks")
    problems = list(problems_in(ROOT))
    if parser.parse_args().collect and (told := collection_problems(ROOT)):
        problems.append(told)
    print(*problems, sep="\n", end="\n" if problems else "")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
