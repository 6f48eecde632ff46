"""The HTTP app of a node: which path is answered by which function.

Starlette routes and writes; the handlers know nothing of it. The queue door, which must answer thousands of small requests a second, stands
beside it and is reached past ASGI (queue_http.py; docs/decisions/0004-asgi-stack.md has the figures).
"""

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.broker.metrics import Sample
from penstock.broker.node import Node
from penstock.http.answers import BROKEN, JSON, METHOD_NOT_ALLOWED, NOT_FOUND, TEXT, Answer, error
from penstock.http.api.dispatch import Api, RawRequest, host_names
from penstock.http.api.guard import refuse_host
from penstock.http.api.routes import PREFIX
from penstock.http.bounds import App, BodyTooLarge, bounded
from penstock.http.cluster_gauges import cluster_gauges
from penstock.http.gauges import gauges
from penstock.http.group_gauges import group_gauges, topic_gauges
from penstock.http.health import health, ready
from penstock.http.metrics import metrics
from penstock.http.queue_gauges import queue_gauges
from penstock.http.share_gauges import share_gauges
from penstock.http.sqs.door import QueueDoor
from penstock.http.sqs.signing import Keys
from penstock.http.status_page import status_page

Handler = Callable[[Request], Awaitable[Answer]]

API_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]  # Those that a path does not take are refused in the API's own words.
API_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Application(NamedTuple):
    pages: App
    queues: QueueDoor


def application(node: Node, vitals: Callable[[], Iterable[Sample]] = tuple, keys: Keys | None = None) -> Application:
    """`vitals`: what the process knows of itself, to stand beside the node's own counts. `keys`: whom the queue door lets in."""
    queues = QueueDoor(node, keys or Keys({}))
    return Application(_pages(node, lambda: (*vitals(), *queues.samples())), queues)


def _pages(node: Node, vitals: Callable[[], Iterable[Sample]]) -> App:
    api = Api(node)

    async def get_health(request: Request) -> Answer:
        return health()

    async def get_ready(request: Request) -> Answer:
        return ready(node.readiness())

    async def get_metrics(request: Request) -> Answer:
        refusal = refuse_host(_headers(request), host_names(node))  # It tells names of groups and topics.
        if refusal is not None:
            return refusal
        of_others = [*await group_gauges(node), *await cluster_gauges(node)]
        of_node = [*node.metrics.samples(), *gauges(node), *topic_gauges(node), *queue_gauges(node), *share_gauges(node)]
        return await node.env.offload(metrics, [*of_node, *of_others, *vitals()])

    async def get_status(request: Request) -> Answer:
        return refuse_host(_headers(request), host_names(node)) or status_page()

    async def ask_api(request: Request) -> Answer:
        path, query = request.scope["raw_path"].decode("latin-1"), request.scope["query_string"].decode("latin-1")
        answer = await api.answer(RawRequest(request.method, path, query, _headers(request), await request.body()))
        body = await node.env.offload(_as_json, answer.body) if answer.is_large else answer.body
        headers = {**API_HEADERS, **answer.headers} | ({"Content-Type": JSON} if answer.is_large else {})
        return Answer(answer.status, body, headers)

    handlers: dict[str, Handler] = {"/": get_status, "/health": get_health, "/ready": get_ready, "/metrics": get_metrics}
    routes = [Route(path, _endpoint(handler), methods=["GET"]) for path, handler in handlers.items()]
    routes.append(Route(PREFIX + "/{rest:path}", _endpoint(ask_api), methods=API_METHODS))
    refusals = {HTTPException: _refused, BodyTooLarge: _too_large, Exception: _failed}
    return bounded(Starlette(routes=routes, exception_handlers=refusals))


def _endpoint(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:  # Async, or Starlette would run it in a thread.
        return _response(await handler(request))

    return endpoint


def _as_json(body: object) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _headers(request: Request) -> dict[str, str]:
    return dict(request.headers.items())


def _response(answer: Answer) -> Response:
    if isinstance(answer.body, str):
        return Response(answer.body, answer.status, dict(answer.headers), TEXT)
    return JSONResponse(answer.body, answer.status, dict(answer.headers))


async def _refused(request: Request, refused: Exception) -> Response:
    assert isinstance(refused, HTTPException)
    if refused.status_code == NOT_FOUND:
        paths = ", ".join(route.path.partition("{")[0] for route in request.app.routes)
        return _response(error(NOT_FOUND, "not_found", f"there is nothing at {request.url.path}; this node answers {paths}"))
    if refused.status_code == METHOD_NOT_ALLOWED:
        allowed = (refused.headers or {}).get("Allow", "GET")
        message = f"{request.url.path} does not take {request.method}, only {allowed}"
        return _response(error(METHOD_NOT_ALLOWED, "method_not_allowed", message, {"Allow": allowed}))
    return _response(error(refused.status_code, "refused", refused.detail))


async def _too_large(request: Request, refused: Exception) -> Response:
    assert isinstance(refused, BodyTooLarge)
    return _response(refused.answer)


async def _failed(request: Request, failure: Exception) -> Response:
    """The server writes the failure itself to the log; the caller learns only that it was ours."""
    return _response(error(BROKEN, "internal_error", "the node failed to answer this; its log says why"))
