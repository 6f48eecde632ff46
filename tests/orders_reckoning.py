"""What `orders` must have written, reckoned from what it was given: each order counted once, none lost, each minute's revenue once.

It reads with the ecosystem's own client, committed records only, as any consumer of these topics would.
"""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline_topics import Seen, Topics

from penstock.pipeline.examples.orders import Outcome

WAITS = timedelta(minutes=15)  # How long revenue waits for orders: steps/orders.py says why.
MINUTE = timedelta(minutes=1)


def check_everything(topics: Topics, prefix: str, expected: Outcome) -> None:
    """For a pipeline that has taken all that there was."""
    check_orders(topics, prefix, expected)
    check_revenue(topics, prefix)


def check_orders(topics: Topics, prefix: str, expected: Outcome) -> None:
    for stage in ("valid", "enriched"):
        counts = Counter(value["order_id"] for value in values(topics.read(f"{prefix}.{stage}")))
        doubled = {order: count for order, count in counts.items() if count > 1}
        assert not doubled, f"{prefix}.{stage} has {len(doubled)} orders more than once: {list(doubled)[:5]}"
        lost, strange = expected.counted - set(counts), set(counts) - expected.counted
        assert not lost, f"{prefix}.{stage} lacks {len(lost)} of {len(expected.counted)} orders: {sorted(lost)[:5]}"
        assert not strange, f"{prefix}.{stage} has orders that should not be there: {sorted(strange)[:5]}"
    dead = topics.read(f"{prefix}.dead")
    places = Counter(tuple(dict(letter.headers).get(f"penstock.{name}") for name in ("topic", "partition", "offset")) for letter in dead)
    assert len(dead) == len(places) == expected.dead, "each dead letter is there once, with its place"


def check_revenue(topics: Topics, prefix: str) -> None:
    """Each minute that no order can come for any more is there once, with the sums of the orders that were let through."""
    orders = values(topics.read(f"{prefix}.enriched"))
    wanted: dict[tuple[datetime, str], list[int]] = {}
    for order in orders:
        minute = time_of(order["ordered_at"]).replace(second=0, microsecond=0)
        sums = wanted.setdefault((minute, order["country"]), [0, 0])
        sums[0] += 1
        sums[1] += order["amount_cents"]
    newest = max(time_of(order["ordered_at"]) for order in orders)
    complete = {place: sums for place, sums in wanted.items() if place[0] + MINUTE <= newest - WAITS}
    found = values(topics.read(f"{prefix}.revenue"))
    rows = {(time_of(row["minute"]), row["country"]): [row["orders"], row["revenue_cents"]] for row in found}
    assert len(rows) == len(found), "a minute's revenue is written once"
    assert rows == complete


def values(records: list[Seen]) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in records]


def time_of(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
