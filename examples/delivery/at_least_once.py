"""At least once: process, then commit. A crash in between does again what was handled and not yet committed; nothing is ever lost.

    python examples/delivery/at_least_once.py [127.0.0.1:9092 [bills.txt [CRASH_AT]]]

For effects that may happen twice: to set a value, to fill a cache, to send what the receiver can tell to be the same
(idempotent_consumer.py). CRASH_AT is the id of an order, such as order-4, at which the program dies as if the machine had: run it again,
and see which orders have two lines in bills.txt. Its `instance` gives it its place in the group back at once: without one the group waits
45 seconds for the dead member. Ends when nothing has come for ten seconds. Needs `pip install 'penstock[client]'`.
"""

import json
import os
import sys

from penstock.client import Consumer


def main(bootstrap: str = "127.0.0.1:9092", file: str = "bills.txt", crash_at: str = "", idle_seconds: str = "10") -> None:
    with Consumer(group="at-least-once", instance="till-1", topics=["orders"], bootstrap=bootstrap) as consumer, open(file, "a") as bills:
        while messages := consumer.poll(max_records=100, timeout=float(idle_seconds)):
            for message in messages:
                order = json.loads(message.value or b"{}")
                if order["id"] == crash_at:
                    os._exit(1)
                print(f"{order['id']}: {order['cups']} × {order['drink']}", file=bills, flush=True)
            consumer.commit()  # Last this: until now all of these would come again.


if __name__ == "__main__":
    main(*sys.argv[1:])
