"""Exactly once, into a database: delivered at least once, and a table that takes each order one time, by the shop's own id.

    python examples/delivery/idempotent_consumer.py [127.0.0.1:9092 [bills.sqlite [CRASH_AT]]]

No transaction of a broker can take in what happens elsewhere. The database can: its transaction takes an order in or knows it already, so a
second delivery, from a crash here, a retry of the shop, or a topic that is read from the start again, changes nothing. The key is the
order's id and not its offset: the same order may have been written twice.

CRASH_AT is the id of an order, such as order-4, at which the program dies as if the machine had, with the order in the table and no offset
committed. Ends when nothing has come for ten seconds. Needs `pip install 'penstock[client]'`.
"""

import json
import os
import sqlite3
import sys
from contextlib import closing

from penstock.client import Consumer, Message

TABLES = """
CREATE TABLE IF NOT EXISTS bills (order_id TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS takings (drink TEXT PRIMARY KEY, cents INTEGER NOT NULL);
"""

ADD_TO_TAKINGS = "INSERT INTO takings VALUES (?, ?) ON CONFLICT (drink) DO UPDATE SET cents = cents + excluded.cents"


def main(bootstrap: str = "127.0.0.1:9092", file: str = "bills.sqlite", crash_at: str = "", idle_seconds: str = "10") -> None:
    with (
        closing(sqlite3.connect(file)) as database,
        Consumer(group="idempotent", instance="till-1", topics=["orders"], bootstrap=bootstrap) as consumer,
    ):
        database.executescript(TABLES)
        while messages := consumer.poll(max_records=100, timeout=float(idle_seconds)):
            for message in messages:
                order_id, is_new = take_in(database, message)
                print(f"{order_id} {'is billed' if is_new else 'was billed before'}")
                if order_id == crash_at:
                    os._exit(1)
            consumer.commit()


def take_in(database: sqlite3.Connection, message: Message) -> tuple[str, bool]:
    """One transaction: the row that says that the order was seen, and everything that comes of it, which here is a sum."""
    order = json.loads(message.value or b"{}")
    cents = 250 * order["cups"]
    with database:
        added = database.execute("INSERT OR IGNORE INTO bills VALUES (?, ?)", (order["id"], cents)).rowcount
        if added:
            database.execute(ADD_TO_TAKINGS, (order["drink"], cents))
    return order["id"], bool(added)


if __name__ == "__main__":
    main(*sys.argv[1:])
