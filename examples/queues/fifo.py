"""First in, first out for each customer: what one of them does is done in order, and nobody waits for another one.

    python examples/queues/fifo.py [URL]    # Or PENSTOCK_URL, or http://127.0.0.1:8080

While a message of a group is with a worker, the rest of that group waits; other groups go on. A second message with the same dedup id,
sent within the queue's window (five minutes), is not stored: a button that was pressed twice pays once.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from penstock.client import Queue, QueueError

STEPS = ("ordered", "paid", "sent")


def main(url: str | None = None) -> None:
    orders = Queue("orders.fifo", url=url)
    orders.ensure(fifo=True)
    for step in STEPS:
        for customer in ("ann", "bob", "cy"):
            orders.send(step, group=customer, dedup=f"{customer}-{step}")
    twice = orders.send("paid", group="ann", dedup="ann-paid")
    print(f"a second payment is the first one: {twice in {found.id for found in orders.peek(20)}}")

    done: dict[str, list[str]] = {"ann": [], "bob": [], "cy": []}
    writing = Lock()

    def work() -> None:
        for message in orders.messages(idle=1):
            with message, writing:
                done[message.group].append(message.text)

    with ThreadPoolExecutor(3) as pool:
        for worker in [pool.submit(work) for _ in range(3)]:
            worker.result()
    for customer, steps in done.items():
        print(f"{customer}: {', '.join(steps)}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except QueueError as failure:
        sys.exit(str(failure))  # What happened, and what to do about it.
