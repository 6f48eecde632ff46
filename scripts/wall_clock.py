"""Finds the places in the tests where the speed of the machine could decide a verdict.

    python scripts/wall_clock.py [--list] [paths...]

Time in a test is virtual, or the test waits for an event with `tests/waiting.py`, whose names are let pass. What is reported otherwise:

- sleep: any pause but `sleep(0)`; in a string, or in the arguments of a process, one of less than 30 seconds.
- deadline: a wait of less than 30 seconds: an argument, a default, a constant, an entry of a dictionary, or a span after a reading of a
  clock. It is known by its name or by the function that is called; names are followed as source_names.py says.
- clock: a comparison with a reading of a clock, unless the other side is a name of waiting.py.

Java is read line by line, for literals and for constants of the same file.

Only asyncio's time and the product's can be virtual. That of `time`, `threading` or `subprocess` is reported everywhere. Virtual are:
- a function that calls `virtually` or makes a simulated world (VIRTUAL_RUNNERS), with the functions inside it;
- the coroutines and the constants of a file that says `VIRTUAL_TIME = True`, where a conftest.py above it reads that;
- the files and folders that `tests/wall_clock.txt` lists as virtual.

`tests/wall_clock.txt` also lists every exception with its reason. An entry that matches nothing is an error, and so is a total other than
the one at its top. The list may only shrink: it must not be longer than in any commit with the same number of the search, as far back as
git has the history here. A shallow clone knows too little of it, which is said, and is a failure where CI=true. Whoever teaches this script
to find more raises SEARCH, and the list begins anew from what is found then.
Used by `make check`; needs nothing but the standard library and git.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from source_names import ONE_OF, Function, Names, Scope, arguments_of, assignments_of, scope_of

SEARCH = 2
ROOT = Path(__file__).parents[1]
EXCEPTIONS = "tests/wall_clock.txt"
WAITING = "waiting"
# Below tests/: where pauses and readings of the clock belong, and the test of this script, whose strings are full of what it looks for.
NOT_READ = {"waiting.py", "system/java/Waiting.java", "scripts/test_wall_clock.py"}
SHORTEST_S = 30.0
# Functions, and which of their arguments says for how long they wait; None is any of them.
WAITS: dict[str, int | None] = {
    **dict.fromkeys(("timeout", "timeout_at", "wait_for", "settimeout", "join", "result", "wait", "until", "select", "communicate")),
    **{"patience": None, "call_later": 0, "Timer": 0, "alarm": 0, "setitimer": 1, "poll": 0, "flush": 0, "consume": 1},
}
BLOCKING = {"get", "put", "acquire"}  # Of these it is the argument after a True: `queue.get(True, 5)`.
CLOCKS = {name + unit for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time") for unit in ("", "_ns")} | {"now"}
REAL_MODULES = ("time.", "datetime.", "subprocess.", "threading.", "signal.", "select.", "queue.", "concurrent.", "multiprocessing.")
# A name in snake case that says for how long something waits: `timeout_s`, `deadline`, `socket_timeout_ms`, `seconds_max`, `within`.
WAIT_NAME = re.compile(
    r"(^|_)(timeout|deadline|patience|within|seconds_max|longest_(wait|poll))(_s|_ms|_seconds)?$|^(seconds|wait)$|(^|_)session_(\w+_)?ms$"
)
BOUND_NAME = re.compile(r"_(min|max)_(session_)?timeout")  # A bound of what may be asked for is no wait.
SLEEP_IN_TEXT = re.compile(r"\bsleep(?:\(|\s+(?=\d))([^\s;)]*)")
VIRTUAL_FILE = "VIRTUAL_TIME = True"
VIRTUAL_RUNNERS = re.compile(
    r"(serving|peers\.scripted)\.virtually|broker\.(assembly\.Assembly|council\.Council)|(cluster|penstock\.simulator(\.\w+)?)\.world\.World"
)
KINDS = ("sleep", "deadline", "clock")

JAVA_UNITS_S = {"Nanos": 1e-9, "Millis": 1e-3, "Seconds": 1.0, "NANOSECONDS": 1e-9, "MILLISECONDS": 1e-3, "SECONDS": 1.0}
JAVA_UNITS_S |= {"nanoTime": 1e-9, "currentTimeMillis": 1e-3}
JAVA_WAITS = (
    re.compile(r"Duration\.of(?P<unit>Nanos|Millis|Seconds)\((?P<number>\w+)\)"),
    re.compile(r"(?P<number>\w+), TimeUnit\.(?P<unit>NANOSECONDS|MILLISECONDS|SECONDS)"),
    re.compile(r"(?P<unit>nanoTime|currentTimeMillis)\(\)[^;]*?[<>+]=? *(?P<number>\d[\d_]*)"),
    re.compile(r'"(?P<unit>[\w.]+)", (?:"" \+ |")?(?P<number>\w+)'),  # "socket.timeout.ms", 5000
)


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    file: str
    line: int
    function: str
    kind: str
    text: str
    is_real: bool = True  # Whatever runs it, its time is not virtual.

    @property
    def key(self) -> tuple[str, str, str]:
        return self.file, self.function, self.kind

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}: {self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Exceptions:
    virtual: dict[str, str]  # A file, or a folder that ends in a slash, and the reason.
    allowed: dict[tuple[str, str, str], tuple[int, str]]  # File, function and kind; how many, and the reason.
    first_line: str  # `search 2, total 40`, where the total is how many of both are listed. Lower it with every entry that goes.


class Finder(ast.NodeVisitor):
    def __init__(self, file: str, names: Names, *, has_virtual_coroutines: bool) -> None:
        self.findings: list[Finding] = []
        self._file = file
        self._functions: list[str] = []
        self._names = names
        self._has_virtual_coroutines = self._is_virtual = has_virtual_coroutines

    def visit_FunctionDef(self, node: Function) -> None:
        around = self._names, self._is_virtual
        self._names = self._names.inside(node)
        self._functions.append(node.name)
        if len(self._names.scopes) == 2:  # What is not in another function.
            self._is_virtual = False
        if isinstance(node, ast.AsyncFunctionDef):
            self._is_virtual |= self._has_virtual_coroutines
        else:
            calls = (self._names.full(part) for part in ast.walk(node) if isinstance(part, ast.Call))
            self._is_virtual = self._is_virtual or any(map(VIRTUAL_RUNNERS.fullmatch, calls))
        for argument, default in arguments_of(node):
            self._check_named(argument.arg, default)
        self.generic_visit(node)
        self._functions.pop()
        self._names, self._is_virtual = around

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()

    def visit_Assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        for target, value in assignments_of(node):
            match target:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str() as name)):
                    self._check_named(name, value)
        self.generic_visit(node)

    visit_AnnAssign = visit_Assign

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            self._check_row([key, value])
        self.generic_visit(node)

    def visit_List(self, node: ast.List | ast.Tuple) -> None:
        self._check_row(node.elts)
        self.generic_visit(node)

    visit_Tuple = visit_List

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # A docstring.
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        for found in SLEEP_IN_TEXT.finditer(node.value) if isinstance(node.value, str) else ():
            seconds = float(found[1]) if re.fullmatch(r"\d+(\.\d+)?", found[1]) else 1.0
            if 0 < seconds < SHORTEST_S:
                self._found(node, "sleep", text=found[0])

    def visit_Call(self, node: ast.Call) -> None:
        full = self._names.full(node)
        name, is_real = full.rpartition(".")[2], full.startswith(REAL_MODULES)
        waits: Sequence[ast.expr] = ()
        if name == "sleep" and not (node.args and self._names.numbers(node.args[0]) == {0.0}):
            self._found(node, "sleep", is_real=is_real)
        elif name in WAITS:
            at = WAITS[name]
            waits = node.args if at is None else node.args[at : at + 1]
        elif name in BLOCKING:
            waits = [wait for blocks, wait in pairwise(node.args) if isinstance(blocks, ast.Constant) and blocks.value is True]
        else:
            self._check_row(node.args)
        for wait in waits:
            if self._is_short(wait, 1e-3 if name == "poll" else 1.0):  # Some libraries poll for milliseconds: 500 is not eight minutes.
                self._found(node, "deadline", is_real=is_real or name in BLOCKING)
        for argument in node.args:
            if self._names.full(argument) == "time.sleep":  # `asyncio.to_thread(time.sleep, 1)`
                self._found(node, "sleep")
        for keyword in node.keywords:
            self._check_named(keyword.arg or "", keyword.value, is_real=is_real)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        for moment, span in ((node.left, node.right), (node.right, node.left)) if isinstance(node.op, ast.Add) else ():
            is_span = any(isinstance(part, ast.Sub) for part in ast.walk(moment))
            if not is_span and self._is_short(span) and (clock := clock_of(moment, self._names)):
                self._found(node, "deadline", is_real=clock.startswith(REAL_MODULES))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        clock = max(clock_of(side, self._names) for side in sides)
        if clock and not any(self._names.full(side).rpartition(".")[0] == WAITING for side in sides):
            self._found(node, "clock", is_real=clock.startswith(REAL_MODULES))
        self.generic_visit(node)

    def _check_row(self, parts: Sequence[ast.expr | None]) -> None:
        """Checks each string with what follows it, as in `{"session.timeout.ms": 500}`, `set("timeout", 5)` and `["sleep", "1"]`."""
        for one, value in pairwise(parts):
            if isinstance(one, ast.Constant) and isinstance(one.value, str) and value is not None:
                if one.value == "sleep" and self._is_short(value):
                    self._found(value, "sleep", text=f"sleep {ast.unparse(value)}")
                self._check_named(one.value, value)

    def _check_named(self, name: str, value: ast.expr | None, *, is_real: bool = False) -> None:
        if value is not None and (unit_s := wait_unit_s(name)) and self._is_short(value, unit_s):
            self._found(value, "deadline", is_real=is_real, text=f"{name}={ast.unparse(value)}")

    def _is_short(self, node: ast.expr, unit_s: float = 1.0) -> bool:
        return any(0 < number * unit_s < SHORTEST_S for number in self._names.numbers(node))

    def _found(self, node: ast.expr, kind: str, *, is_real: bool = True, text: str = "") -> None:
        if is_real or not self._is_virtual:
            function = ".".join(self._functions) or "(module)"
            self.findings.append(Finding(self._file, node.lineno, function, kind, text or ast.unparse(node), is_real))


def clock_of(node: ast.expr, names: Names) -> str:
    """Returns the dotted name of the clock that an expression is a reading of; empty if there is none."""
    match node:
        case ast.Call(func=ast.Attribute(value=span, attr="total_seconds")):
            return clock_of(span, names)
        case ast.Call(args=arguments):
            full = names.full(node)
            if full.rpartition(".")[2] in CLOCKS:
                return full
            return max((clock_of(argument, names) for argument in arguments), default="") if full in ONE_OF else ""
        case ast.BinOp(left=left, right=right):
            return clock_of(left, names) or clock_of(right, names)
        case ast.Name() | ast.Attribute():
            return max((clock_of(value, inner) for value, inner in names.values(node)), default="")
    return ""


def wait_unit_s(name: str) -> float:
    """Returns the unit of what waits by this name, in seconds; 0 for a name of anything else."""
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])|[.-]", "_", name).lower()
    is_wait = WAIT_NAME.search(snake) and not BOUND_NAME.search(snake)
    return (1e-3 if snake.endswith("ms") else 1.0) if is_wait else 0.0


def findings_in(root: Path) -> Iterator[Finding]:
    tests = root / "tests"
    paths = [path for path in sorted(tests.rglob("*.*")) if path.relative_to(tests).as_posix() not in NOT_READ]
    trees = {path: ast.parse(path.read_text()) for path in paths if path.suffix == ".py"}
    scopes = {path: scope_of(tree) for path, tree in trees.items()}
    files: dict[str, Scope] = {".".join(path.relative_to(tests).with_suffix("").parts): scope for path, scope in scopes.items()}
    readers = {path.parent for path in trees if path.name == "conftest.py" and "VIRTUAL_TIME" in path.read_text()}
    for path, tree in trees.items():
        says_virtual = any(ast.unparse(statement) == VIRTUAL_FILE for statement in tree.body if isinstance(statement, ast.Assign))
        is_read = not readers.isdisjoint(path.parents)
        finder = Finder(path.relative_to(root).as_posix(), Names((scopes[path],), files), has_virtual_coroutines=says_virtual and is_read)
        finder.visit(tree)
        yield from sorted(finder.findings)
    for path in paths:
        if path.suffix == ".java":
            yield from findings_in_java(path.relative_to(root).as_posix(), path.read_text())


def findings_in_java(file: str, text: str) -> Iterator[Finding]:
    constants = dict(re.findall(r"\b(?:int|long) (\w+) = ([\d_]+)", text))
    for line_number, line in enumerate(text.splitlines(), 1):
        code = line.partition(" //")[0]
        if "sleep(" in code:
            yield Finding(file, line_number, "(file)", "sleep", code.strip())
        for found in (each for pattern in JAVA_WAITS for each in pattern.finditer(code)):
            number = constants.get(found["number"], str(found["number"])).replace("_", "")
            unit_s = JAVA_UNITS_S.get(found["unit"]) or wait_unit_s(found["unit"])
            if number.isdigit() and 0 < int(number) * unit_s < SHORTEST_S:
                yield Finding(file, line_number, "(file)", "deadline", found[0])


def read_exceptions(text: str) -> Exceptions:
    """Reads lines of the form `file | virtual | reason` and `file | function | kind | count | reason`, after the first line."""
    virtual: dict[str, str] = {}
    allowed: dict[tuple[str, str, str], tuple[int, str]] = {}
    first_line, *lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in lines:
        match [part.strip() for part in line.split("|")]:
            case [file, "virtual", reason] if reason:
                virtual[file] = reason
            case [file, function, kind, count, reason] if kind in KINDS and reason:
                allowed[file, function, kind] = int(count), reason
            case _:
                forms = "file | virtual | reason, or: file | function | kind | count | reason"
                sys.exit(f"{EXCEPTIONS}: cannot read {line!r}\n  write: {forms}")
    return Exceptions(virtual, allowed, first_line)


def problems_of(findings: list[Finding], exceptions: Exceptions, shortest: int | None) -> list[str]:
    problems: list[str] = []
    used: set[str] = set()
    left: list[Finding] = []
    for finding in findings:
        covering = [file for file in exceptions.virtual if finding.file == file or (file.endswith("/") and finding.file.startswith(file))]
        if covering and not finding.is_real:
            used.update(covering)
        else:
            left.append(finding)
    counts = Counter(finding.key for finding in left)
    problems += [str(finding) for finding in left if counts[finding.key] > exceptions.allowed.get(finding.key, (0, ""))[0]]
    for key, (count, _) in exceptions.allowed.items():
        if counts[key] < count:
            problems.append(f"{EXCEPTIONS}: {' | '.join(key)} allows {count}, the file has {counts[key]}: lower or remove the entry")
    problems += [f"{EXCEPTIONS}: nothing in {file} is found: remove the entry" for file in sorted(exceptions.virtual.keys() - used)]
    listed = len(exceptions.virtual) + sum(count for count, _ in exceptions.allowed.values())
    if exceptions.first_line != (due := f"search {SEARCH}, total {listed}"):
        problems.append(f"{EXCEPTIONS}: `{exceptions.first_line}` must be `{due}`")
    if shortest is not None and listed > shortest:
        problems.append(f"{EXCEPTIONS}: the list may only shrink: it has {listed} exceptions, and was committed with {shortest}")
    return problems


def shortest_list(root: Path) -> int | None:
    """Returns the smallest total that was committed with this number of the search; None where there is no such commit, or no git."""
    command = ["git", "-C", str(root), "log", "-p", "--format=", "--", EXCEPTIONS]
    history = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return min(map(int, re.findall(rf"^\+search {SEARCH}, total (\d+)$", history, re.MULTILINE)), default=None)


def cut_history(root: Path) -> str:
    """Returns what is wrong where the history is cut off, so that the list could have grown unseen; empty where it is whole."""
    command = ["git", "-C", str(root), "rev-parse", "--is-shallow-repository"]
    is_shallow = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == "true"
    told = f"{EXCEPTIONS}: this clone is shallow, so it cannot be seen whether the list has grown: run `git fetch --unshallow`"
    return told if is_shallow else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every finding, exceptions included")
    parser.add_argument("paths", nargs="*", help="report on files below these only")
    asked = parser.parse_args()
    findings = list(findings_in(ROOT))
    if asked.list:
        shown = list(map(str, findings))
    else:
        shown = problems_of(findings, read_exceptions((ROOT / EXCEPTIONS).read_text()), shortest_list(ROOT))
    if (told := cut_history(ROOT)) and os.environ.get("CI") == "true":
        shown.append(told)
    elif told:
        print(told, file=sys.stderr)
    if asked.paths:
        shown = [line for line in shown if line.startswith(tuple(asked.paths))]
    print(*shown, sep="\n", end="\n" if shown else "")
    if shown and not asked.list:
        print(
            f"\n{len(shown)} places where a slow machine could decide a verdict: wait for the event (tests/waiting.py), use virtual time,"
            f" or give the reason in {EXCEPTIONS}",
            file=sys.stderr,
        )
    return int(bool(shown) and not asked.list)


if __name__ == "__main__":
    sys.exit(main())
