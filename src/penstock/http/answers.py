"""What a handler answers: a status and a body, before anybody has thought of HTTP.

Handlers return these so that they can be called without a server (the simulator does). Errors have one shape at every door:
`{"error": "<a word for programs>", "message": "<a sentence for people>"}`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

OK, CREATED = 200, 201
BAD_REQUEST, NOT_FOUND, METHOD_NOT_ALLOWED, CONFLICT, TOO_LARGE = 400, 404, 405, 409, 413
BROKEN, UNAVAILABLE, NO_ROOM = 500, 503, 507
JSON, TEXT = "application/json", "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Mapping[str, object] | str
    headers: Mapping[str, str] = field(default_factory=dict)
    is_large: bool = False  # Writing it as text takes long: that is done off the loop.


def error(status: int, word: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, {"error": word, "message": message}, headers or {})
