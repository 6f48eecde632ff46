"""The example's orders: the same from the same seed in whatever portions, of every kind, and written with one command."""

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

from penstock.pipeline.examples.orders import COUNTED, DEAD, Kind, OrderBook, Outcome

if TYPE_CHECKING:
    from pipeline_topics import Topics


def test_orders_depend_on_their_number_alone() -> None:
    book = OrderBook(seed=5, started_ms=1_800_000_000_000)
    whole = list(book.orders(600))
    assert whole == [*book.orders(250), *book.orders(350, first=250)]
    assert whole != list(OrderBook(seed=6, started_ms=1_800_000_000_000).orders(600))
    assert [order.timestamp_ms for order in whole] == sorted(order.timestamp_ms for order in whole)


def test_every_kind_comes_and_says_what_it_is() -> None:
    orders = list(OrderBook(seed=5).orders(3_000))
    kinds = Counter(order.kind for order in orders)
    assert all(kinds[kind] > 10 for kind in Kind)
    first: dict[bytes, int] = {}
    for order in orders:
        if order.kind in COUNTED:
            first[order.value or b""] = order.timestamp_ms
        elif order.kind is Kind.DOUBLE:
            assert order.timestamp_ms > first[order.value or b""], "a double has the bytes of an order that counts, before it"
    expected = Outcome().add(orders)
    assert len(expected.counted) == len(first) == sum(kinds[kind] for kind in COUNTED)
    assert expected.dead == sum(kinds[kind] for kind in DEAD)


def test_one_command_writes_customers_and_orders(topics: "Topics") -> None:
    command = [sys.executable, "-m", "penstock.pipeline.examples", "--bootstrap", topics.bootstrap, "--orders", "300"]
    told = subprocess.run([*command, "--topics", "shown", "--customers", "shown.customers"], capture_output=True, text=True, check=True)
    assert "wrote 100 customers to shown.customers and 300 orders to shown.raw" in told.stdout
    assert len(topics.read("shown.raw")) == 300
    assert all(json.loads(value or b"").keys() == {"name", "country", "segment"} for value in topics.values("shown.customers"))
