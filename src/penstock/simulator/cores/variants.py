"""Cores that are broken on purpose."""

from collections.abc import Callable
from typing import Any

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.

VARIANTS: dict[str, Callable[[], Patches]] = {}
