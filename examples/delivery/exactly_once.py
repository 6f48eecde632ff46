"""Exactly once, from topic to topic: the bills and how far the group has come are committed together, in one transaction.

    python examples/delivery/exactly_once.py [127.0.0.1:9092 [CRASH_AT]]

A crash anywhere, of this program or of a broker, leaves each order with one bill for whoever reads committed records:

    penstock consume bills --committed

CRASH_AT is the id of an order, such as order-4, at which the program dies as if the machine had: run it again, and look. What the first
life had written is there for whoever reads everything (`penstock consume bills`), and nobody else. The name in
`transactional_id` says whose place a restarted program takes: one for each program that runs at the same time.
Ends when nothing has come for ten seconds. Needs `pip install 'penstock[client]'`.
"""

import json
import os
import sys
from functools import partial

from penstock.client import Consumer, Message, Outgoing, Producer, read_process_write


def main(bootstrap: str = "127.0.0.1:9092", crash_at: str = "", idle_seconds: str = "10") -> None:
    with (
        Producer(bootstrap, transactional_id="billing-1") as producer,
        Consumer(group="exactly-once", instance="till-1", topics=["orders"], bootstrap=bootstrap) as consumer,
    ):
        count = read_process_write(consumer, producer, partial(bill, producer, crash_at), idle_seconds=float(idle_seconds))
    print(f"{count} orders are billed")


def bill(producer: Producer, crash_at: str, message: Message) -> list[Outgoing]:
    """What is to be written for one order. It is asked again after an abort, so it does nothing but answer."""
    order = json.loads(message.value or b"{}")
    if order["id"] == crash_at:
        producer.flush()  # The bills before it are at the broker when this dies, in a transaction that nobody commits.
        os._exit(1)
    return [Outgoing("bills", key=order["id"], value=json.dumps({"order": order["id"], "cents": 250 * order["cups"]}))]


if __name__ == "__main__":
    main(*sys.argv[1:])
