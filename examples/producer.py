"""Write records with the Python face: a receipt for each, and a key that always lands in the same partition.

    penstock serve --data-dir ./data &
    penstock topics create orders --partitions 3
    python examples/producer.py [127.0.0.1:9092]

Needs `pip install 'penstock[client]'`. examples/consumer.py reads what this writes.
"""

import sys

from penstock.client import NotDelivered, Producer

ORDERS = [
    ("alice", "2 coffees"), ("bob", "1 tea"), ("carol", "3 croissants"), ("alice", "1 water"), ("bob", "1 scone"), ("alice", "the bill"),
]  # fmt: skip


def main(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        receipts = [producer.send(topic="orders", key=who, value=what) for who, what in ORDERS]
        for (who, what), receipt in zip(ORDERS, receipts, strict=True):
            try:
                placed = receipt.result(timeout=30)
            except NotDelivered as failure:
                sys.exit(str(failure))
            print(f"{who:6} {what:13} → partition {placed.partition}, offset {placed.offset}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
