"""What the names in a source file stand for, read with `ast`: the dotted names that they import and the numbers that they are assigned.

Names are followed through aliases, arithmetic and conditions, to what is assigned to them in their function or their file, and to what
another file of the same collection exports. Where several things are assigned to a name, it stands for each of them.
Not followed: what a caller passes, what a function returns, and which object an attribute belongs to.
"""

import ast
import operator
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = dict[str, list[ast.expr | str]]  # By name what is assigned to it: expressions, and dotted names that are imported.

ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
ARITHMETIC[ast.FloorDiv] = operator.floordiv
ONE_OF = {"min", "max", "int", "float", "str", "abs", "round", "pick"}  # What these return is one of their arguments, more or less.
STEPS_MAX = 8  # From a name to what it stands for: names may stand for each other in a circle.


@dataclass(frozen=True, slots=True)
class Names:
    """What names stand for at one place in a file."""

    scopes: tuple[Scope, ...]  # Of the file, and of the functions around the place.
    files: dict[str, Scope]  # Of the files that are followed, by their module.
    steps: int = 0

    def full(self, node: ast.expr) -> str:
        """Returns the dotted name behind a name or a call: `time.sleep` for `nap`, `threading.Event.wait` for `stopping.wait`."""
        if isinstance(node, ast.Call):
            return self.full(node.func)
        for value, names in self._assigned(node):
            if isinstance(value, str):
                return value
            if isinstance(value, ast.Name | ast.Attribute | ast.Call):
                return names.full(value)
        match node:
            case ast.Name(id=name):
                return name
            case ast.Attribute(value=owner, attr=name):
                return f"{self.full(owner)}.{name}"
        return ""

    def values(self, node: ast.expr) -> Iterator[tuple[ast.expr, "Names"]]:
        """Yields the expressions that are assigned to a name, in its file or in the one that it is imported from."""
        for value, names in list(self._assigned(node)) or [(self.full(node), self)]:
            if not isinstance(value, str):
                yield value, names
                continue
            module, _, name = value.rpartition(".")
            if module in self.files and self.steps < STEPS_MAX:
                yield from Names((self.files[module],), self.files, self.steps + 1).values(ast.Name(name))

    def numbers(self, node: ast.expr) -> set[float]:
        """Returns what an expression may be, as far as it is made of numbers and of names for them."""
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return {float(value)}
            case ast.Constant(value=str() as text) if re.fullmatch(r"\d+(\.\d+)?", text):
                return {float(text)}
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                pairs = product(self.numbers(left), self.numbers(right))
                return {ARITHMETIC[type(op)](one, other) for one, other in pairs if other or not isinstance(op, ast.Div | ast.FloorDiv)}
            case ast.IfExp(body=one, orelse=other) | ast.BoolOp(values=[one, other]):
                return self.numbers(one) | self.numbers(other)
            case ast.Call(args=arguments, keywords=keywords) if self.full(node).rpartition(".")[2] in ONE_OF:
                return set[float]().union(*map(self.numbers, [*arguments, *(keyword.value for keyword in keywords)]))
            case ast.Name() | ast.Attribute():
                return set[float]().union(*(names.numbers(value) for value, names in self.values(node)))
        return set()

    def inside(self, function: Function) -> "Names":
        return Names((*self.scopes, scope_of(function)), self.files)

    def _assigned(self, node: ast.expr) -> Iterator[tuple[ast.expr | str, "Names"]]:
        name = node.id if isinstance(node, ast.Name) else f".{node.attr}" if isinstance(node, ast.Attribute) else ""
        for end in range(len(self.scopes), 0, -1):
            if name in self.scopes[end - 1] and self.steps < STEPS_MAX:
                names = Names(self.scopes[:end], self.files, self.steps + 1)
                yield from ((value, names) for value in self.scopes[end - 1][name])
                return


def scope_of(root: ast.Module | Function) -> Scope:
    """Returns what is assigned in a file or a function, the functions inside it left out. Attributes, of any object, are the file's."""
    scope: Scope = defaultdict(list)
    for part in _own_parts(root):
        for name, value in _assigned_by(part):
            scope[name].append(value)
    if isinstance(root, ast.Module):
        for part in ast.walk(root):
            for target, its in assignments_of(part):
                if isinstance(target, ast.Attribute):
                    scope[f".{target.attr}"].append(its)
    else:
        for argument, default in arguments_of(root):
            made = [] if argument.annotation is None else [ast.Call(argument.annotation, [], [])]  # As if the annotation had made it.
            scope[argument.arg] += [*made, *([] if default is None else [default])]
    return scope


def _assigned_by(part: ast.AST) -> Iterator[tuple[str, ast.expr | str]]:
    """Yields the names that one statement binds, each with what it is bound to."""
    match part:
        case ast.withitem(context_expr=value, optional_vars=ast.Name(id=name)) | ast.NamedExpr(target=ast.Name(id=name), value=value):
            yield name, value
        case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=values) | ast.List(elts=values)):
            yield from ((name, value) for value in values)
        case ast.Import(names=modules):
            firsts = (each.name.partition(".")[0] for each in modules)
            yield from ((each.asname or first, each.name if each.asname else first) for each, first in zip(modules, firsts, strict=True))
        case ast.ImportFrom(module=str() as module, names=imported):
            yield from ((each.asname or each.name, f"{module}.{each.name}") for each in imported)
        case _:
            yield from ((target.id, its) for target, its in assignments_of(part) if isinstance(target, ast.Name))


def assignments_of(part: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yields each target of an assignment with its value; `a, b = 1, 2` has two."""
    if isinstance(part, ast.Assign):
        yield from (pair for target in part.targets for pair in _bound(target, part.value))
    elif isinstance(part, ast.AnnAssign) and part.value is not None:
        yield part.target, part.value


def _bound(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    match target, value:
        case (ast.Tuple(elts=targets), ast.Tuple(elts=values)) if len(targets) == len(values):
            for one, its in zip(targets, values, strict=True):
                yield from _bound(one, its)
        case _:
            yield target, value


def arguments_of(function: Function) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Yields each argument with its default."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    without: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    yield from zip(positional, [*without, *arguments.defaults], strict=True)
    yield from zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)


def _own_parts(root: ast.AST) -> Iterator[ast.AST]:
    for part in ast.iter_child_nodes(root):
        yield part
        if not isinstance(part, Function | ast.Lambda):
            yield from _own_parts(part)
