"""Clusters that are broken on purpose: each neglects one thing that keeps acknowledged records, and each must be caught.

A variant is a handful of attributes of the product's classes, replaced on every node while one world runs and put back afterwards.
"""

from collections.abc import Callable
from typing import Any

from penstock.partition.leader import Leader

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.


def acknowledges_before_the_flush() -> Patches:
    return [(Leader, "park", lambda self, end_offset, token, *, needs_all: False)]


VARIANTS: dict[str, Callable[[], Patches]] = {make.__name__.replace("_", "-"): make for make in (acknowledges_before_the_flush,)}
