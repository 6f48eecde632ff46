"""The second half of `make demo`: the worked example of a data pipeline, on the node that the first half has started.

    python examples/demo_pipeline.py HOST:PORT

Writes customers and raw orders (some twice, some late, some broken), runs the job `orders` on Spark until everything is through, and
shows revenue per minute and the dead letters. Where Spark or Java is missing it says what to install, and leaves it at that.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from typing import Any

from penstock.pipeline import PipelineComplaint
from penstock.pipeline.examples.orders import OrderBook, Outcome
from penstock.pipeline.examples.writing import write_customers, write_orders
from penstock.pipeline.session import require_spark

ORDERS = 10_000  # Half an hour of a shop, at five a second.
MINUTES_SHOWN = 3
PENSTOCK = [sys.executable, "-m", "penstock"]


def main(bootstrap: str) -> None:
    try:
        require_spark()
    except PipelineComplaint as missing:
        say(f"The data pipeline is left out: {missing.problem}.")
        print(f"    {missing.advice}")
        return
    book, expected = OrderBook(), Outcome()
    orders = list(book.orders(ORDERS))
    expected.add(orders)
    say(f"A data pipeline on Spark. First {ORDERS:,} raw orders, and who ordered:")
    print(f"    customers    {write_customers(bootstrap, book):6,} in a compacted topic")
    print(
        f"    orders.raw   {write_orders(bootstrap, orders):6,} of which "
        + ", ".join(f"{count} {kind.value}" for kind, count in expected.kinds.items())
    )

    say("penstock pipeline run orders --once")
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        subprocess.run([*PENSTOCK, "pipeline", "run", "orders", "--once", "--directory", directory, "--bootstrap", bootstrap], check=True)
    show(bootstrap, expected)


def show(bootstrap: str, expected: Outcome) -> None:
    say("penstock consume orders.revenue")
    minutes: dict[str, list[str]] = {}
    for row in map(json.loads, consumed(bootstrap, "orders.revenue", "value")):
        minutes.setdefault(row["minute"], []).append(f"{row['country']} {row['revenue_cents'] / 100:,.2f}")
    for minute, countries in sorted(minutes.items())[:MINUTES_SHOWN]:
        print(f"    {minute}   {'  ·  '.join(sorted(countries))}")
    print(f"    … {len(minutes)} minutes are complete; the last ones wait for orders that come late.")

    say("penstock consume orders.dead")
    reasons = Counter(headers["penstock.reason"] for headers in map(named, consumed(bootstrap, "orders.dead", "headers")))
    for reason, count in reasons.most_common():
        print(f"    {count:4}  {reason}")

    ids = [json.loads(value)["order_id"] for value in consumed(bootstrap, "orders.enriched", "value")]
    if len(ids) != len(set(ids)) or set(ids) != expected.counted:
        sys.exit("what came out is not what went in")
    say(f"All {len(ids):,} orders that count came through once; those that do not stand among the dead letters with their reason.")


def named(headers: list[tuple[str, str]]) -> dict[str, str]:
    return dict(headers)


def consumed(bootstrap: str, topic: str, field: str) -> list[Any]:
    done = subprocess.run([*PENSTOCK, "consume", topic, "--json", "--bootstrap", bootstrap], stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line)[field] for line in done.stdout.splitlines()]


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
