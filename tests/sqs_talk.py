"""boto3's SQS client at one node, and what tests say to it often."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import boto3
from botocore.config import Config
from waiting import PATIENCE_S, until

LONGEST_POLL_S = 20  # That AWS allows.


class Sqs:
    """Calls go to boto3's client where they have no words here."""

    def __init__(self, url: str, *, tries: int = 1) -> None:
        """Tests hear of every refusal, unless they allow more tries; boto3 makes five where nobody says otherwise."""
        self.url = url
        settings = Config(retries={"total_max_attempts": tries}, max_pool_connections=20, read_timeout=LONGEST_POLL_S + PATIENCE_S)
        self.client = boto3.client(
            "sqs", endpoint_url=url, region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret", config=settings
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def queue(self, name: str = "", **attributes: Any) -> str:
        """A new queue's URL; `DelaySeconds=3` is an attribute, and one with a dot goes into `more`."""
        more = attributes.pop("more", {})
        texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (attributes | more).items()}
        return self.client.create_queue(QueueName=name or f"q-{uuid4().hex[:12]}", Attributes=texts)["QueueUrl"]

    def fifo(self, **attributes: Any) -> str:
        return self.queue(f"f-{uuid4().hex[:12]}.fifo", FifoQueue=True, **({"ContentBasedDeduplication": True} | attributes))

    def send(self, url: str, body: str, **more: Any) -> dict[str, Any]:
        return self.client.send_message(QueueUrl=url, MessageBody=body, **more)

    def send_to(self, url: str, group: str, *bodies: str) -> None:
        for body in bodies:
            self.send(url, body, MessageGroupId=group)

    def receive(self, url: str, count: int = 10, wait: int = 0, **more: Any) -> list[dict[str, Any]]:
        answer = self.client.receive_message(QueueUrl=url, MaxNumberOfMessages=count, WaitTimeSeconds=wait, **more)
        return answer.get("Messages", [])

    def bodies(self, url: str, count: int = 10, wait: int = 0, **more: Any) -> list[str]:
        return [message["Body"] for message in self.receive(url, count, wait, **more)]

    def first_bodies(self, url: str, count: int = 10, **more: Any) -> list[str]:
        """The same, of messages that are to come: polls until some do."""
        return [message["Body"] for message in self.first(url, count, **more)]

    def first(self, url: str, count: int = 10, **more: Any) -> list[dict[str, Any]]:
        return until(lambda: self.receive(url, count, LONGEST_POLL_S, **more))

    def delete(self, url: str, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def change(self, url: str, message: dict[str, Any], seconds: int) -> None:
        self.client.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds)

    def attributes(self, url: str, *names: str) -> dict[str, str]:
        return self.client.get_queue_attributes(QueueUrl=url, AttributeNames=list(names) or ["All"]).get("Attributes", {})

    def arn(self, url: str) -> str:
        return self.attributes(url, "QueueArn")["QueueArn"]

    def counts(self, url: str) -> tuple[int, int, int]:
        """Visible, in flight, delayed."""
        found = self.attributes(url)
        kinds = ("", "NotVisible", "Delayed")
        visible, in_flight, delayed = (int(found[f"ApproximateNumberOfMessages{kind}"]) for kind in kinds)
        return visible, in_flight, delayed


def poll_during(poll: Callable[[], list[str]], is_waiting: Callable[[], object], happen: Callable[[], object]) -> list[str]:
    """What one long poll brings because of what happens once the node has it waiting.

    AWS allows no poll of more than twenty seconds, and a machine may stand still for so long: a poll that was over before that had happened
    may have brought nothing, and is to be tried again with another queue.
    """
    with ThreadPoolExecutor(1) as thread:
        polling = thread.submit(poll)
        until(lambda: polling.done() or is_waiting(), "the poll waits at the node")
        happen()
        is_in_time = not polling.done()
        bodies = polling.result(PATIENCE_S)
    assert bodies or not is_in_time, "a poll that waited brought nothing"
    return bodies
