"""Writes example customers and orders: `python -m penstock.pipeline.examples --bootstrap localhost:9092 --orders 10000`.

They happen up to now, five a second. A second call writes others when `--first` says so: their numbers make the orders.
"""

import argparse

from penstock.pipeline.examples.orders import GAP_MS, Kind, OrderBook, Outcome, a_while_ago
from penstock.pipeline.examples.writing import write_customers, write_orders


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m penstock.pipeline.examples", description="Writes example customers and orders.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="brokers, Penstock's or Apache Kafka's (%(default)s)")
    parser.add_argument("--topics", default="orders", help="orders go to TOPICS.raw (%(default)s)")
    parser.add_argument("--customers", default="customers", help="the compacted topic of customers (%(default)s)")
    parser.add_argument("--orders", type=int, default=10_000, help="how many orders (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first order (%(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="another seed gives other orders (%(default)s)")
    asked = parser.parse_args()
    book = OrderBook(asked.seed, started_ms=a_while_ago((asked.first + asked.orders) * GAP_MS / 3_600_000))  # The last one is of now.
    customers = write_customers(asked.bootstrap, book, topic=asked.customers)
    orders = list(book.orders(asked.orders, first=asked.first))
    write_orders(asked.bootstrap, orders, topic=f"{asked.topics}.raw")
    kinds = Outcome().add(orders).kinds
    told = ", ".join(f"{kinds[kind]} {kind.value}" for kind in Kind if kinds[kind])
    print(f"wrote {customers} customers to {asked.customers} and {len(orders)} orders to {asked.topics}.raw: {told}")


if __name__ == "__main__":
    main()
