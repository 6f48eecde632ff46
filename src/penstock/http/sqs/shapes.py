"""The shapes of requests: which members an action takes, of what type, and which of them it must have.

A shape says what is true of every request of an action, whatever its queue: members, types, what is required. Ranges and rules that need
the queue stand with the actions. As at AWS, a null is as good as nothing, and a
member that nobody knows is not looked at.
A *form* says the same to msgspec, which reads and checks in one go but tells nobody what was wrong (reading.py). It may be narrower than
the check, never wider.
"""

import binascii
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, NotRequired, TypedDict

from penstock.http.sqs.errors import SERIALIZATION, SqsError, missing

# Types that are made while the program runs, of which a type checker need not know.
_ABLE: Any = NotRequired
_STRUCTURE: Any = TypedDict
_LIST: Any = list
_MAP: Any = dict

Check = Callable[[object, str], None]  # Of a value, and what it is called; raises SqsError.


@dataclass(frozen=True, slots=True)
class Type:
    """What a value must be. `name` is how the reference calls it."""

    name: str
    check: Check
    form: Any


@dataclass(frozen=True, slots=True)
class Shape:
    """The members of a structure."""

    members: Mapping[str, Type]
    required: tuple[str, ...] = ()

    @property
    def form(self) -> Any:
        forms = {name: each.form if name in self.required else _ABLE[each.form | None] for name, each in self.members.items()}
        return _STRUCTURE("Members", forms)

    def check(self, value: object, prefix: str = "") -> None:
        if type(value) is not dict:
            raise _wrong(prefix.rstrip(".") or "the request", "a structure")
        members = self.members
        for name, content in value.items():
            known = members.get(name)
            if known is not None and content is not None:
                known.check(content, prefix + name)
        for name in self.required:
            if value.get(name) is None:
                raise missing(prefix + name)


def _wrong(name: str, kind: str) -> SqsError:
    return SqsError(SERIALIZATION, f"{name} must be {kind}")


def _string(value: object, name: str) -> None:
    if type(value) is not str:
        raise _wrong(name, "a string")


def _integer(value: object, name: str) -> None:
    if type(value) is not int:  # True is an int to Python, but none to anybody else.
        raise _wrong(name, "an integer")


def _boolean(value: object, name: str) -> None:
    if type(value) is not bool:
        raise _wrong(name, "true or false")


def _blob(value: object, name: str) -> None:
    if type(value) is not str:
        raise _wrong(name, "a string in base64")
    try:
        b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise _wrong(name, "a string in base64") from None


STRING = Type("string", _string, str)
INTEGER = Type("integer", _integer, int)
BOOLEAN = Type("boolean", _boolean, bool)
BLOB = Type("blob", _blob, NoneType)  # Is looked at by the check alone.


def list_of(item: Type) -> Type:
    def check(value: object, name: str) -> None:
        if type(value) is not list:
            raise _wrong(name, "a list")
        for each in value:
            item.check(each, f"{name} (an item)")

    return Type(f"list of {item.name}", check, _LIST[item.form])


def map_of(item: Type) -> Type:
    def check(value: object, name: str) -> None:
        if type(value) is not dict:
            raise _wrong(name, "a map")
        for key, each in value.items():
            item.check(each, f"{name}.{key}")

    return Type(f"map of {item.name}", check, _MAP[str, item.form])


def structure(shape: Shape, name: str = "structure") -> Type:
    def check(value: object, path: str) -> None:
        shape.check(value, f"{path}.")

    return Type(name, check, shape.form)


def nullable(item: Type) -> Type:
    def check(value: object, name: str) -> None:
        if value is not None:
            item.check(value, name)

    return Type(f"{item.name} or null", check, item.form | None)


def without_nulls(body: dict[str, Any]) -> dict[str, Any]:
    """The members that are there."""
    return {name: value for name, value in body.items() if value is not None} if None in body.values() else body
