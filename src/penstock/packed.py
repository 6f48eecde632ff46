"""Rows of a fixed layout, side by side in bytes."""

from collections.abc import Iterator
from struct import Struct
from typing import Any

from penstock.vocabulary import Buffer


def rows_of(layout: Struct, content: Buffer) -> Iterator[tuple[Any, ...]]:
    """Each row. Of a copy, where the content is a view: an iterator over a memoryview must not come into a cycle of garbage.

    It does with any traceback that leads into its loop. CPython's collector (3.11 and 3.12) then takes the view's memory away while the
    iterator still has it, and the process ends with a segmentation fault.
    """
    return layout.iter_unpack(content if isinstance(content, bytes) else bytes(content))
