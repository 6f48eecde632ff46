"""What goes in and what comes out: plain values.

Keys and values are bytes; text is taken for its UTF-8. Headers keep their order and may repeat a name, so they are pairs, not a dict.
A named tuple because one is made for every record that is read: it takes a third of the time of a frozen dataclass.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Content = bytes | str | None
Headers = Mapping[str, Content] | Iterable[tuple[str, Content]]


class Message(NamedTuple):
    """A record as it was read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None  # Milliseconds since 1970, UTC: the producer's clock, or the broker's where the topic says so.


class NewRecord(NamedTuple):
    """A record as it goes out."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | str | None]]
    partition: int
    timestamp: int


class Placed(NamedTuple):
    """Where a record ended up."""

    topic: str
    partition: int
    offset: int | None  # None with acks=0: nobody said.


def as_bytes(content: Content) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def header_pairs(headers: Headers | None) -> list[tuple[str, bytes | str | None]]:
    if headers is None:
        return []
    return list(headers.items() if isinstance(headers, Mapping) else headers)
