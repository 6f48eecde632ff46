"""Write orders for the other programs here to handle: JSON with an id of the shop's own, which is what makes an order the same order.

    penstock serve --data-dir ./data &
    python examples/delivery/write_orders.py [127.0.0.1:9092 [COUNT]]

Needs `pip install 'penstock[client]'`.
"""

import json
import sys

from penstock.client import Producer

DRINKS = ["coffee", "tea", "cocoa"]


def main(bootstrap: str = "127.0.0.1:9092", count: str = "10") -> None:
    with Producer(bootstrap) as producer:
        for number in range(int(count)):
            name = f"order-{number}"
            order = {"id": name, "drink": DRINKS[number % len(DRINKS)], "cups": number % 4 + 1}
            producer.send(topic="orders", key=name, value=json.dumps(order))
    print(f"{count} orders are written")


if __name__ == "__main__":
    main(*sys.argv[1:])
