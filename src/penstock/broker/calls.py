"""One request under way."""

from typing import TYPE_CHECKING, NamedTuple

from penstock.vocabulary import Buffer

if TYPE_CHECKING:
    from penstock.broker.connection import Connection


class Call(NamedTuple):
    connection: "Connection"
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    frame: Buffer  # Valid only until the handler returns or first awaits; copied for handlers that await.
    body_at: int
