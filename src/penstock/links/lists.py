"""Lists as JSON: what nodes ask of each other seldom, and may say more of in the next version."""

import json
from typing import Any


def write_list(told: list[Any]) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode()


def read_list(body: memoryview) -> list[Any]:
    """Raises ValueError."""
    told = json.loads(bytes(body))
    if not isinstance(told, list):
        raise ValueError("not a list")
    return told
