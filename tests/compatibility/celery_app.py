"""A Celery app as people write it, with Penstock as its broker by Celery's own SQS transport. Its tasks tell what they do in another queue.

Where the node is and what the queues are called comes by the environment: NODE (host:port), PREFIX.
"""

import os

from celery import Celery, Task

from penstock.client import Queue

NODE, PREFIX = os.environ["NODE"], os.environ["PREFIX"]

app = Celery("jobs", broker=f"sqs://key:secret@{NODE}//")
app.conf.update(
    broker_transport_options={
        "is_secure": False,
        "region": "us-east-1",
        "queue_name_prefix": PREFIX,
        "wait_time_seconds": 1,
        "polling_interval": 0,
        "visibility_timeout": 3_600,
    },
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
)
journal = Queue(f"{PREFIX}journal", url=f"http://{NODE}")


@app.task
def note(words: str) -> None:
    journal.send(words)


@app.task(bind=True, max_retries=3)
def stumble(self: Task, words: str) -> None:
    """Fails twice, then succeeds."""
    journal.send(f"{words} {self.request.retries}")
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
