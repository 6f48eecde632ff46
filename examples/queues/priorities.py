"""Priorities: 0 to 9, more is more urgent, and what was sent first goes first among equals.

    python examples/queues/priorities.py [URL]    # Or PENSTOCK_URL, or http://127.0.0.1:8080

A message keeps its priority when it is tried again. It holds within a partition: a queue of one, as here, is served in one order.
"""

import sys

from penstock.client import Draft, Queue, QueueError


def main(url: str | None = None) -> None:
    tickets = Queue("tickets", url=url)
    tickets.ensure()
    tickets.send_many(
        [
            Draft("the newsletter looks odd", priority=1),
            "please change my name",  # 4, unless it says otherwise.
            Draft("the site is down", priority=9),
            "where is my parcel?",
            Draft("the site is still down", priority=9),
        ]
    )
    for message in tickets.messages(idle=1):
        with message:
            print(f"{message.priority}: {message.text}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except QueueError as failure:
        sys.exit(str(failure))  # What happened, and what to do about it.
