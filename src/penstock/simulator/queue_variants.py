"""Nodes whose queues are broken on purpose (see variants.py)."""

from collections.abc import Callable
from typing import Any

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.

QUEUE_VARIANTS: dict[str, Callable[[], Patches]] = {}
