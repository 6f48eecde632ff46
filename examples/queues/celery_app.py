"""Celery on Penstock, by Celery's own SQS transport: nothing but the broker's address is different.

    pip install 'celery[sqs]'
    cd examples/queues
    celery -A celery_app worker --concurrency 2 --without-gossip --without-mingle &
    python celery_app.py

The node is at PENSTOCK_URL, or http://127.0.0.1:8080. Any keys will do unless the node was told to check them. A countdown is
held by the worker, as with any SQS: keep it shorter than the visibility timeout, or send through `penstock.client.Queue(…).send(delay=…)`.
"""

import os
import sys
from urllib.parse import urlsplit

from celery import Celery, Task
from kombu.exceptions import OperationalError

url = os.environ.get("PENSTOCK_URL", "http://127.0.0.1:8080").split(",")[0]  # An SDK knows one address.
app = Celery("shop", broker=f"sqs://key:secret@{urlsplit(url).netloc}//")
app.conf.broker_transport_options = {
    "is_secure": False,
    "region": "us-east-1",
    "visibility_timeout": 300,
    "wait_time_seconds": 10,
    "polling_interval": 0,  # Otherwise the worker rests a second after each time that nothing came.
}
app.conf.broker_connection_retry_on_startup = True
app.conf.task_ignore_result = True
app.conf.task_acks_late = True  # A task whose worker dies is done by another one.


@app.task(name="bill", bind=True, max_retries=5)  # type: ignore[untyped-decorator] # Celery has no types.
def bill(task: Task, customer: str, cups: int) -> None:
    if task.request.retries == 0:
        raise task.retry(countdown=1)  # The printer is always out of paper at first.
    print(f"{customer} owes {cups * 3}", flush=True)


if __name__ == "__main__":
    try:
        for number in range(3):
            bill.delay(f"customer-{number}", cups=number + 1)
    except OperationalError as failure:
        sys.exit(f"{failure}\n  start a node with penstock serve, or name one with PENSTOCK_URL")
    print("three bills are to be written")
