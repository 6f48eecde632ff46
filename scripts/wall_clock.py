"""Finds the places in the tests where the speed of the machine could decide a verdict.

    python scripts/wall_clock.py [--list] [paths...]

Time in a test is virtual, or the test waits for an event with `tests/waiting.py`. What is reported otherwise:

- sleep: any pause but `sleep(0)`.
- deadline: a wait of less than 30 seconds, as an argument, a default or a constant, by its name or by the function that is called.
- clock: a comparison with a reading of the real clock.

A test that runs in virtual time by `virtually`, in a `World`, or in what tests make of one, is not looked at. Neither is a coroutine or a
constant in a file that says `VIRTUAL_TIME = True`: the conftest.py of that folder runs each of these coroutines in virtual time.
`tests/wall_clock.txt` lists the files that run in virtual time otherwise, and every exception with its reason. It may only shrink: an
entry that matches nothing is an error, and so is a total other than the one at its top.
Used by `make check`; needs nothing but the standard library.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXCEPTIONS = ROOT / "tests" / "wall_clock.txt"
WAITING = "tests/waiting.py"  # Where pauses and readings of the clock belong.
SHORTEST_S = 30.0
WAITS = {"timeout", "timeout_at", "wait_for", "settimeout", "join", "result", "wait", "until", "select", "communicate", "patience"}
CLOCKS = {"monotonic", "perf_counter", "monotonic_ns", "perf_counter_ns", "process_time"}
# A name that says for how long something waits: `timeout_s`, `deadline`, `SECONDS_MAX`, `patience_s`, `within`.
WAIT_NAME = re.compile(r"(^|_)(timeout|deadline|patience|within|seconds_max|longest_wait)(_s|_ms|_seconds)?$|^seconds$", re.IGNORECASE)
# A test that calls one of these runs in virtual time, with all functions inside it.
VIRTUAL_RUNNERS = {"virtually", "World", "Assembly", "Council"}
VIRTUAL_FILE = "VIRTUAL_TIME = True"
KINDS = ("sleep", "deadline", "clock")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    file: str
    line: int
    function: str
    kind: str
    text: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.file, self.function, self.kind


@dataclass(frozen=True, slots=True)
class Exceptions:
    virtual: dict[str, str]  # A file, or a folder that ends in a slash, and the reason.
    allowed: dict[tuple[str, str, str], tuple[int, str]]  # File, function and kind; how many, and the reason.
    total: int  # How many of both may be listed. Lower it with every entry that goes.


class Finder(ast.NodeVisitor):
    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[Finding] = []
        self._scope: list[str] = []
        self._is_virtual = False

    def visit_Module(self, node: ast.Module) -> None:
        self._is_virtual = any(ast.unparse(statement) == VIRTUAL_FILE for statement in node.body if isinstance(statement, ast.Assign))
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if self._is_virtual and isinstance(node, ast.AsyncFunctionDef):
            return
        if any(isinstance(part, ast.Call) and called(part) in VIRTUAL_RUNNERS for part in ast.walk(node)):
            return
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults: list[tuple[ast.arg, ast.expr | None]] = [
            *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        self._scope.append(node.name)
        for argument, default in defaults:
            if default is not None:
                self._check_named(argument.arg, default)
        self.generic_visit(node)
        self._scope.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        self.generic_visit(node)
        self._scope.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._check_named(target.id, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name) and node.value is not None:
            self._check_named(node.target.id, node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = called(node)
        if name == "sleep":
            if not (node.args and number(node.args[0]) == 0):
                self._found(node, "sleep")
        elif name in WAITS:
            for argument in node.args:
                if is_short(argument):
                    self._found(node, "deadline")
        for keyword in node.keywords:
            if keyword.arg is not None:
                self._check_named(keyword.arg, keyword.value)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if any(isinstance(part, ast.Call) and called(part) in CLOCKS for part in ast.walk(node)):
            self._found(node, "clock")
        self.generic_visit(node)

    def _check_named(self, name: str, value: ast.expr) -> None:
        if not WAIT_NAME.search(name):
            return
        seconds = number(value)
        if seconds is not None and name.lower().endswith("_ms"):
            seconds /= 1_000
        if seconds is not None and 0 < seconds < SHORTEST_S:
            self._found(value, "deadline", f"{name}={ast.unparse(value)}")

    def _found(self, node: ast.expr, kind: str, text: str = "") -> None:
        if self._is_virtual and not self._scope:
            return
        function = ".".join(self._scope) or "(module)"
        self.findings.append(Finding(self.file, node.lineno, function, kind, text or ast.unparse(node)))


def called(node: ast.Call) -> str:
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def number(node: ast.expr) -> float | None:
    """Returns the value of an expression of literals such as `2.5` or `60 * 1_000`; None for any other."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            factors = number(left), number(right)
            return factors[0] * factors[1] if factors[0] is not None and factors[1] is not None else None
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            parts = number(left), number(right)
            return parts[0] / parts[1] if parts[0] is not None and parts[1] else None
    return None


def is_short(node: ast.expr) -> bool:
    seconds = number(node)
    return seconds is not None and 0 < seconds < SHORTEST_S


def findings_in(root: Path) -> Iterator[Finding]:
    for path in sorted((root / "tests").rglob("*.py")):
        finder = Finder(path.relative_to(root).as_posix())
        if finder.file != WAITING:
            finder.visit(ast.parse(path.read_text()))
        yield from sorted(finder.findings)


def read_exceptions(text: str) -> Exceptions:
    """Reads lines of the form `file | virtual | reason` and `file | function | kind | count | reason`; `total N` is the first."""
    virtual: dict[str, str] = {}
    allowed: dict[tuple[str, str, str], tuple[int, str]] = {}
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in lines[1:]:
        match [part.strip() for part in line.split("|")]:
            case [file, "virtual", reason] if reason:
                virtual[file] = reason
            case [file, function, kind, count, reason] if kind in KINDS and reason:
                allowed[file, function, kind] = int(count), reason
            case _:
                forms = "file | virtual | reason, or: file | function | kind | count | reason"
                sys.exit(f"{EXCEPTIONS.name}: cannot read {line!r}\n  write: {forms}")
    return Exceptions(virtual, allowed, int(lines[0].removeprefix("total ")))


def problems_of(findings: list[Finding], exceptions: Exceptions) -> list[str]:
    problems: list[str] = []
    used: set[str] = set()
    left: list[Finding] = []
    for finding in findings:
        covering = [file for file in exceptions.virtual if finding.file == file or (file.endswith("/") and finding.file.startswith(file))]
        used.update(covering)
        if not covering:
            left.append(finding)
    counts = Counter(finding.key for finding in left)
    for finding in left:
        if counts[finding.key] > exceptions.allowed.get(finding.key, (0, ""))[0]:
            problems.append(f"{finding.file}:{finding.line} {finding.function}: {finding.kind}: {finding.text}")
    for key, (count, _) in exceptions.allowed.items():
        if counts[key] < count:
            problems.append(f"{EXCEPTIONS.name}: {' | '.join(key)} allows {count}, the file has {counts[key]}: lower or remove the entry")
    problems += [f"{EXCEPTIONS.name}: nothing in {file} is found: remove the entry" for file in sorted(exceptions.virtual.keys() - used)]
    listed = len(exceptions.virtual) + sum(count for count, _ in exceptions.allowed.values())
    if listed != exceptions.total:
        problems.append(f"{EXCEPTIONS.name}: `total {exceptions.total}` must be `total {listed}`; the list may only shrink")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every finding, exceptions included")
    parser.add_argument("paths", nargs="*", help="report on files below these only")
    asked = parser.parse_args()
    findings = list(findings_in(ROOT))
    if asked.list:
        shown = [f"{found.file}:{found.line} {found.function}: {found.kind}: {found.text}" for found in findings]
    else:
        shown = problems_of(findings, read_exceptions(EXCEPTIONS.read_text()))
    if asked.paths:
        shown = [line for line in shown if line.startswith(tuple(asked.paths))]
    print(*shown, sep="\n", end="\n" if shown else "")
    if shown and not asked.list:
        print(
            f"\n{len(shown)} places where a slow machine could decide a verdict: wait for the event (tests/waiting.py), use virtual time,"
            f" or give the reason in tests/{EXCEPTIONS.name}",
            file=sys.stderr,
        )
    return int(bool(shown) and not asked.list)


if __name__ == "__main__":
    sys.exit(main())
