"""Answers on their way out: JSON as small as it can be (msgspec's), and large ones made off the loop.

Ten messages of a mebibyte take tens of milliseconds to digest and to write. In another thread that holds nobody up, as long as no single
call into C takes long: so each message is written by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from penstock.env import Env
from penstock.settings import KIB

LARGE_BYTES = 256 * KIB

Answer = Mapping[str, Any] | bytes  # Bytes are JSON already.
T = TypeVar("T")

encode = msgspec.json.Encoder().encode


async def messages_answer(env: Env, messages: Sequence[T], shown: Callable[[T], Mapping[str, Any]], *, size: int) -> Answer:
    """`{"Messages": […]}`, where the bodies have so many bytes together."""
    if size <= LARGE_BYTES:
        return {"Messages": [shown(message) for message in messages]}
    return await env.offload(_written, messages, shown)


def _written(messages: Sequence[T], shown: Callable[[T], Mapping[str, Any]]) -> bytes:
    return b'{"Messages":[' + b",".join(encode(shown(message)) for message in messages) + b"]}"
