"""The API's table as an OpenAPI 3.1 document, which generators and people read. Nothing in it is written by hand."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from penstock import __version__
from penstock.http.api.requests import Parameter, Route
from penstock.http.api.schemas import Schema, named

ABOUT = (
    "Topics, partitions, settings, consumer groups and their lag, of one Penstock cluster. Errors have one shape, at every path. "
    "A request body is application/json. Names in paths are percent-encoded, a slash in a group's name too."
)
_MEANINGS = {
    200: "Done.", 201: "Made.",
    400: "The request is not as documented, or asks for something impossible.", 403: "From a page of another site.",
    404: "There is no such thing.", 409: "Not in its present state.", 415: "The body is not JSON.", 421: "This node goes by another name.",
    503: "Not now: the node or the group's coordinator is not ready.", 507: "The disk has no room, or failed.",
}  # fmt: skip
_EVERYWHERE = (400, 421, 503)
_WHERE_CHANGING = (403,)
_WITH_BODY = (415,)


def document(routes: Sequence[Route], components: Mapping[str, Schema], prefix: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock admin API", "version": __version__, "description": ABOUT, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": prefix}],
        "paths": paths,
        "components": {"schemas": dict(components)},
    }


def statuses_of(route: Route) -> list[int]:
    """Every status that the route may answer with, its own first."""
    refusals = {*_EVERYWHERE, *route.refusals}
    if route.method != "GET":
        refusals.update(_WHERE_CHANGING)
    if route.body is not None:
        refusals.update(_WITH_BODY)
    return [route.status, *sorted(refusals)]


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "parameters": [_in_path(name) for name in re.findall(r"\{(\w+)\}", route.path)] + [_in_query(each) for each in route.query],
        "responses": {str(status): _response(status, route) for status in statuses_of(route)},
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": route.body}}}
    return operation


def _response(status: int, route: Route) -> dict[str, Any]:
    schema = route.answer if status == route.status else named("Error")
    return {"description": _MEANINGS[status], "content": {"application/json": {"schema": schema}}}


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _in_query(parameter: Parameter) -> dict[str, Any]:
    schema = {name: value for name, value in parameter.schema.items() if name != "description"}
    return {
        "name": parameter.name, "in": "query", "required": False, "description": parameter.schema["description"],
        "schema": {**schema, "default": parameter.default},
    }  # fmt: skip
