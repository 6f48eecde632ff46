"""Answers that may be long and are not hot: encoded by the schemas, away from the loop when there are many rows.

A row costs some twenty microseconds; a thousand of them at once would be felt by everybody else.
"""

from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.vocabulary import Buffer
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

ROWS_AT_ONCE = 200


async def written(node: "Node", call: Call, answer: dict[str, Any], rows: int) -> list[Buffer]:
    """The frame. Nobody may change the answer any more: another thread may be reading it."""
    if rows <= ROWS_AT_ONCE:
        return [schemas.write_response(call.api_key, call.version, call.correlation_id, answer)]
    return [await node.env.offload(schemas.write_response, call.api_key, call.version, call.correlation_id, answer)]
