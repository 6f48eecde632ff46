"""A request as the API's functions see it: the parts of the path, the query and the body, each already of its documented kind."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.broker.node import Node
from penstock.http.answers import Answer
from penstock.http.api.schemas import Schema


@dataclass(frozen=True, slots=True)
class ApiRequest:
    parts: Mapping[str, str] = field(default_factory=dict)  # Of the path, by name.
    query: Mapping[str, Any] = field(default_factory=dict)  # With defaults for what was not given.
    body: Mapping[str, Any] = field(default_factory=dict)


Handler = Callable[[Node, ApiRequest], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One name of the query."""

    name: str
    schema: Schema
    default: Any


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str  # Below /api/v1; a part in braces is any one part.
    handler: Handler
    summary: str
    answer: Schema
    status: int = 200
    body: Schema | None = None
    query: tuple[Parameter, ...] = ()
    refusals: tuple[int, ...] = ()  # Beyond those that every route has.

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))
