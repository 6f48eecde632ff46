"""At most once: commit, then process. A crash in between loses what was committed and not yet handled; nothing is ever done twice.

    python examples/delivery/at_most_once.py [127.0.0.1:9092 [bills.txt [CRASH_AT]]]

For what is worth nothing a moment later: a gauge, a position on a map, a log line that only helps. CRASH_AT is the id of an order, such as
order-4, at which the program dies as if the machine had: run it again, and see which orders have no line in bills.txt. Its `instance` gives
it its place in the group back at once: without one the group waits 45 seconds for the dead member. Ends when nothing has come for ten
seconds. Needs `pip install 'penstock[client]'`.
"""

import json
import os
import sys

from penstock.client import Consumer


def main(bootstrap: str = "127.0.0.1:9092", file: str = "bills.txt", crash_at: str = "", idle_seconds: str = "10") -> None:
    with Consumer(group="at-most-once", instance="till-1", topics=["orders"], bootstrap=bootstrap) as consumer, open(file, "a") as bills:
        while messages := consumer.poll(max_records=100, timeout=float(idle_seconds)):
            consumer.commit()  # First this: none of these comes again, whatever happens next.
            for message in messages:
                order = json.loads(message.value or b"{}")
                if order["id"] == crash_at:
                    os._exit(1)
                print(f"{order['id']}: {order['cups']} × {order['drink']}", file=bills, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
