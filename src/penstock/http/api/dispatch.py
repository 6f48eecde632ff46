"""From an HTTP request to one of the API's functions, and back to an answer.

The path is matched part by part as it was sent, so that a name with an encoded slash stays one part. What the table says of a route is
checked here, once for all: the guard, the query, the shape of the body. A function gets only requests that are as documented.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from penstock.broker.node import Node
from penstock.errors import Refusal
from penstock.http.answers import BAD_REQUEST, METHOD_NOT_ALLOWED, NOT_FOUND, UNAVAILABLE, Answer, error
from penstock.http.api.guard import READING, refuse_change, refuse_host
from penstock.http.api.refusals import answer_to
from penstock.http.api.requests import ApiRequest, Parameter, Route
from penstock.http.api.routes import COMPONENTS, PREFIX, ROUTES
from penstock.http.api.schemas import fault_in


@dataclass(frozen=True, slots=True)
class RawRequest:
    method: str
    path: str  # As it was sent, with its percent signs.
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)  # Names in lower case.
    body: bytes = b""


class Wrong(Exception):
    """The request isn't what the document says."""

    def __init__(self, word: str, message: str) -> None:
        super().__init__(message)
        self.answer = error(BAD_REQUEST, word, message)


class Api:
    def __init__(self, node: Node, routes: Sequence[Route] = ROUTES) -> None:
        self._node = node
        self._routes = routes

    async def answer(self, request: RawRequest) -> Answer:
        refusal = refuse_host(request.headers, host_names(self._node))
        if refusal is not None:
            return refusal
        found = self._find(request)
        if isinstance(found, Answer):
            return found
        route, parts = found
        if request.method not in READING:
            refusal = refuse_change(request.headers, has_body=route.body is not None)
            if refusal is not None:
                return refusal
        health = self._node.health()
        if not health.is_ready:
            return error(UNAVAILABLE, "not_ready", f"the node is not ready: {health.reason}", {"Retry-After": "1"})
        try:
            return await route.handler(self._node, ApiRequest(parts, _query(route.query, request.query), _body(route, request.body)))
        except Wrong as wrong:
            return wrong.answer
        except Refusal as refused:
            return answer_to(refused)

    def _find(self, request: RawRequest) -> tuple[Route, dict[str, str]] | Answer:
        sent = request.path.removeprefix(PREFIX).strip("/").split("/")
        matching = [(route, parts) for route in self._routes if (parts := _match(route.parts, sent)) is not None]
        if not matching:
            return error(NOT_FOUND, "not_found", f"there is nothing at {request.path}; {PREFIX}/openapi.json lists what there is")
        method = "GET" if request.method == "HEAD" else request.method
        for route, parts in matching:
            if route.method == method:
                return route, parts
        allowed = ", ".join(route.method for route, _ in matching)
        message = f"{request.path} does not take {request.method}, only {allowed}"
        return error(METHOD_NOT_ALLOWED, "method_not_allowed", message, {"Allow": allowed})


def host_names(node: Node) -> tuple[str, ...]:
    """What this node may be called in a Host header besides its addresses."""
    names = [node.settings.advertised_host, *node.settings.http_hosts.split(",")]
    return tuple(name.strip().lower() for name in names if name.strip())


def _match(parts: Sequence[str], sent: Sequence[str]) -> dict[str, str] | None:
    if len(parts) != len(sent):
        return None
    found: dict[str, str] = {}
    for part, text in zip(parts, sent, strict=True):
        if part.startswith("{"):
            found[part[1:-1]] = unquote(text)
        elif part != text:
            return None
    return found if all(found.values()) else None


def _query(parameters: Sequence[Parameter], text: str) -> dict[str, Any]:
    known = {parameter.name: parameter for parameter in parameters}
    values = {parameter.name: parameter.default for parameter in parameters}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise Wrong("unknown_parameter", f"this path has no parameter {name!r}; {takes}")
        values[name] = _read(known[name], value)
    return values


def _read(parameter: Parameter, text: str) -> object:
    value: object = text
    if parameter.schema["type"] == "integer" and text.removeprefix("-").isdecimal():
        value = _number(parameter, text)
    elif parameter.schema["type"] == "boolean" and text in ("true", "false"):
        value = text == "true"
    if fault := fault_in(value, parameter.schema, COMPONENTS, f"the parameter {parameter.name}"):
        raise Wrong("bad_parameter", fault)
    return value


def _number(parameter: Parameter, text: str) -> int:
    try:
        return int(text)
    except ValueError:  # Python reads some thousands of digits and no more, since reading them takes ever longer.
        raise Wrong("bad_parameter", f"the parameter {parameter.name} has {len(text)} digits: too many for a number") from None


def _body(route: Route, content: bytes) -> Mapping[str, Any]:
    if route.body is None:
        return {}
    try:
        value = json.loads(content)
    except ValueError as wrong:
        raise Wrong("not_json", f"the body is not JSON: {wrong}") from None
    except RecursionError:
        raise Wrong("bad_body", "the body is nested too deeply") from None
    if fault := fault_in(value, route.body, COMPONENTS):
        raise Wrong("bad_body", fault)
    body: Mapping[str, Any] = value
    return body
