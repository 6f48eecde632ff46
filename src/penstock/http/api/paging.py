"""Lists in pages: by name, from after a name on. A list that changes meanwhile skips and repeats nothing that stays."""

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.http.api.requests import Parameter
from penstock.http.api.schemas import Schema, integer, or_null, text

PAGE = (
    Parameter("limit", integer("How many at most.", minimum=1, maximum=10_000), 1_000),
    Parameter("after", text("Only those whose name sorts after this one: the `next` of the page before."), ""),
)
NEXT: Schema = or_null(text("Ask again with `after` set to this for what follows; null: that was all."))


def page_of(names: Iterable[str], query: Mapping[str, Any]) -> tuple[list[str], str | None]:
    """The names of this page, and the `next` that leads to the one after it."""
    rest = sorted(name for name in names if name > query["after"])
    limit: int = query["limit"]
    return rest[:limit], rest[limit - 1] if len(rest) > limit else None
