"""The HTTP app of a node: which path is answered by which function.

Starlette routes and writes; the handlers know nothing of it. A door that must answer thousands of small requests a second is
mounted as a plain ASGI function instead (docs/decisions/0004-asgi-stack.md has the figures).
"""

from collections.abc import Awaitable, Callable, Iterable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.broker.metrics import Sample
from penstock.broker.node import Node
from penstock.http.answers import BROKEN, METHOD_NOT_ALLOWED, NOT_FOUND, TEXT, Answer, error
from penstock.http.bounds import App, bounded
from penstock.http.gauges import gauges
from penstock.http.health import health, ready
from penstock.http.metrics import metrics

Handler = Callable[[], Answer]


def application(node: Node, vitals: Callable[[], Iterable[Sample]] = tuple) -> App:
    """`vitals`: what the process knows of itself, to stand beside the node's own counts."""
    handlers: dict[str, Handler] = {
        "/health": health,
        "/ready": lambda: ready(node.health()),
        "/metrics": lambda: metrics([*node.metrics.samples(), *gauges(node), *vitals()]),
    }
    routes = [Route(path, _endpoint(handler), methods=["GET"]) for path, handler in handlers.items()]
    return bounded(Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _failed}))


def _endpoint(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:  # Async, or Starlette would run it in a thread.
        return _response(handler())

    return endpoint


def _response(answer: Answer) -> Response:
    if isinstance(answer.body, str):
        return Response(answer.body, answer.status, dict(answer.headers), TEXT)
    return JSONResponse(answer.body, answer.status, dict(answer.headers))


async def _refused(request: Request, refused: Exception) -> Response:
    assert isinstance(refused, HTTPException)
    if refused.status_code == NOT_FOUND:
        paths = ", ".join(route.path for route in request.app.routes)
        return _response(error(NOT_FOUND, "not_found", f"there is nothing at {request.url.path}; this node answers {paths}"))
    if refused.status_code == METHOD_NOT_ALLOWED:
        allowed = (refused.headers or {}).get("Allow", "GET")
        message = f"{request.url.path} does not take {request.method}, only {allowed}"
        return _response(error(METHOD_NOT_ALLOWED, "method_not_allowed", message, {"Allow": allowed}))
    return _response(error(refused.status_code, "refused", refused.detail))


async def _failed(request: Request, failure: Exception) -> Response:
    """The server writes the failure itself to the log; the caller learns only that it was ours."""
    return _response(error(BROKEN, "internal_error", "the node failed to answer this; its log says why"))
