"""The steps of `orders` on small tables: what becomes of each order, and that nothing is lost without a trace."""

import json
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from penstock.pipeline.examples.orders import Example, Kind, OrderBook, Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.needs("spark"), pytest.mark.spark]

RECORD = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
GOOD = {"order_id": "o-1", "customer_id": "c-1", "amount_cents": 250, "ordered_at": "2026-01-01T12:00:00.500Z"}
TOO_LATE = "too late to be counted"
WRITTEN = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)


def records(spark: "SparkSession", values: list[bytes | None]) -> "DataFrame":
    return spark.createDataFrame([(b"k", value, "raw", 0, offset, WRITTEN) for offset, value in enumerate(values)], RECORD)


def examples(spark: "SparkSession", orders: list[Example]) -> "DataFrame":
    rows = [
        (order.key, order.value, "raw", 0, offset, datetime.fromtimestamp(order.timestamp_ms / 1_000, UTC))
        for offset, order in enumerate(orders)
    ]
    return spark.createDataFrame(rows, RECORD)


def order(**changes: Any) -> bytes:
    return json.dumps({name: value for name, value in (GOOD | changes).items() if value is not ...}).encode()


def renamed(value: bytes | None, number: int) -> bytes:
    return json.dumps(json.loads(value or b"") | {"order_id": f"o-{number}"}).encode()


def test_each_order_is_judged_by_the_first_thing_that_is_wrong_with_it(spark: "SparkSession") -> None:
    from penstock.pipeline.steps.orders import validated

    cases = {
        order(): None,
        None: "the record has no value",
        b'{"order_id": "o-': "not JSON, or a field of another type",
        b"\x00\xff\xfe": "not JSON, or a field of another type",
        order(amount_cents="ten"): "not JSON, or a field of another type",
        b"{}": "order_id is missing",
        order(order_id=""): "order_id is missing",
        order(customer_id=...): "customer_id is missing",
        order(amount_cents=...): "amount_cents is missing",
        order(amount_cents=0): "amount_cents is not between 1 and 100000000000",
        order(ordered_at="noon"): "ordered_at is missing, or no time as in 2026-01-31T12:00:00Z",
        order(ordered_at="2026-01-01T12:01:31Z"): "ordered_at is more than 60 seconds after the record was written",
        order(ordered_at="2026-01-01T12:01:30Z"): None,
        order(ordered_at="2026-01-01T11:50:30Z"): None,
        order(ordered_at="2026-01-01T11:50:29Z"): f"{TOO_LATE}: ordered_at is more than 600 seconds before the record was written",
    }
    # Two records of the same good order would be one: these have ids of their own.
    found = validated(records(spark, [value if reason else renamed(value, number) for number, (value, reason) in enumerate(cases.items())]))
    rows = sorted(found.collect(), key=lambda row: row.origin.offset)
    assert [row.reason for row in rows] == list(cases.values())
    assert [tuple(row.origin) for row in rows] == [("raw", 0, offset) for offset in range(len(cases))]
    dead = [(row.key, row.value) for row in rows if row.reason]
    assert dead == [(b"k", value) for value, reason in cases.items() if reason], "dead letters keep their bytes"
    assert (bytes(rows[0].key), json.loads(rows[0].value)) == (b"c-1", GOOD | {"order_id": "o-0"})


def test_every_order_of_a_day_is_counted_once_or_put_where_it_can_be_found(spark: "SparkSession") -> None:
    """The whole way on tables, with doubles, late ones, strangers and broken ones among the orders."""
    from penstock.pipeline.steps.orders import ENRICHED, customers_of, enriched, keyed, opened, revenue, validated

    book = OrderBook(seed=3, customers=20)
    orders = list(book.orders(2_000))
    expected = Outcome().add(orders)
    assert all(expected.kinds[kind] for kind in Kind), "the example has some of each"

    judged = validated(examples(spark, orders)).cache()
    assert judged.where("reason is not null").count() == expected.dead

    customers = spark.createDataFrame([*book.customer_records(), (b"c-gone", None)], "key binary, value binary")
    with_customers = enriched(opened(judged.where("reason is null")), customers_of(customers)).cache()
    rows = with_customers.collect()
    assert Counter(row.order_id for row in rows) == dict.fromkeys(expected.counted, 1)
    assert sum(row.country == "unknown" for row in rows) == expected.kinds[Kind.STRANGER]
    known = {key.decode(): json.loads(value) for key, value in book.customer_records()}
    assert all(row.name == known[row.customer_id]["name"] for row in rows if row.country != "unknown")

    written = keyed(with_customers, with_customers.customer_id)
    sums = revenue(opened(written, ENRICHED)).collect()
    assert sum(row.revenue_cents for row in sums) == expected.revenue_cents
    assert sum(row.orders for row in sums) == len(expected.counted)
    assert len({(row.minute, row.country) for row in sums}) == len(sums)
    one = next(row for row in sums)
    inside = [row for row in rows if row.country == one.country and row.ordered_at.strftime("%Y-%m-%dT%H:%M:00.000Z") == one.minute]
    assert one.orders == len(inside) > 0
