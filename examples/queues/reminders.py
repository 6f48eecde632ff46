"""Reminders: messages for later, which can be taken back until somebody has them.

    python examples/queues/reminders.py [URL]    # Or PENSTOCK_URL, or http://127.0.0.1:8080

A delay may be of any length, and `at=` takes a moment instead. It is kept with the message on the disks of the cluster, so that neither a
restart nor a lost node forgets it.
"""

import sys
from datetime import UTC, datetime, timedelta

from penstock.client import Queue, QueueError


def main(url: str | None = None) -> None:
    reminders = Queue("reminders", url=url)
    reminders.ensure()

    far = reminders.send("renew the passport", delay=timedelta(days=3650))
    print(f"waiting: {reminders.counts().delayed}, for the passport until {_year(reminders, far)}")

    reminders.send("water the plants", delay=0.5)
    reminders.send("book the train", at=datetime.now(UTC) + timedelta(seconds=1))
    dentist = reminders.send("call the dentist", delay=timedelta(seconds=0.5))
    assert reminders.cancel(dentist)  # It called back.

    for message in reminders.messages(idle=1):
        with message:
            print(f"now: {message.text}")
    reminders.cancel(far)


def _year(reminders: Queue, id: str) -> int:
    found = reminders.find(id)
    assert found is not None and found.ready_at is not None
    return found.ready_at.year


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except QueueError as failure:
        sys.exit(str(failure))  # What happened, and what to do about it.
