"""A worker: takes messages one by one, tries again what fails, and leaves what never works among the dead letters.

    python examples/queues/worker.py [URL]    # Or PENSTOCK_URL, or http://127.0.0.1:8080

Some mails go out, one needs two tries, one has an address that will never work. The queue decides how often and how soon a message is
tried again; the worker only says what became of each. `with message:` finishes it, or gives it back with the exception as the reason, and
keeps its lease while the block runs. Ends when nothing has come for a second; a real worker says `for message in mails:` and goes on
for ever.
"""

import json
import sys
from datetime import timedelta

from penstock.client import Queue, QueueError, QueueMessage


def deliver(message: QueueMessage) -> None:
    mail = message.json()
    if "@" not in mail["to"]:
        raise ValueError(f"{mail['to']!r} is no address")
    if mail["to"].startswith("busy") and message.attempt == 1:
        raise ConnectionError("the mail server is busy")
    print(f"to {mail['to']}: {mail['words']}")


def main(url: str | None = None) -> None:
    dead = Queue("shop-mails-dead", url=url)
    dead.ensure()
    mails = Queue("shop-mails", url=url)
    mails.ensure(lease=30, deliveries=3, backoff=timedelta(milliseconds=100), dead_letters=dead.name)

    for to in ("ann@example.org", "busy@example.org", "nowhere"):
        mails.send(json.dumps({"to": to, "words": "your order is on its way"}))

    for message in mails.messages(idle=1):
        try:
            with message:
                deliver(message)
        except (ValueError, ConnectionError) as failure:
            print(f"attempt {message.attempt} failed: {failure}")

    for letter in dead.receive(wait=20):
        assert letter.dead_letter is not None
        print(f"dead: {letter.json()['to']} after {len(letter.dead_letter.attempts)} attempts: {letter.dead_letter.reason}")
        letter.ack()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except QueueError as failure:
        sys.exit(str(failure))  # What happened, and what to do about it.
