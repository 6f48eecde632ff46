"""Requests of the SQS API as bytes, made once, and what must stand in their answers. Answers are searched, not parsed: any server's JSON
has the same members, and the generator must cost less than what it measures.

The signature is none: nobody that is measured here checks it, but moto tells its services apart by it.
"""

import json
import re
from collections.abc import Sequence

from benchmarks.load.frames import UnexpectedReply
from benchmarks.queue_load.talk import Talk

BODY_CHARACTERS = 100
NUMBER_DIGITS = 10
LEASE_SECONDS = 3_600  # What is taken must not come back while it is measured.

_AUTHORIZATION = "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0"
_HANDLE = re.compile(rb'"ReceiptHandle" ?: ?"([^"]+)"')
_NUMBER = re.compile(rb'"Body" ?: ?"(\d{%d})' % NUMBER_DIGITS)
_ID = re.compile(rb'"Id" ?: ?"')
_MESSAGE_ID = b'"MessageId"'


def request(action: str, content: object) -> bytes:
    body = json.dumps(content).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.{action}\r\nX-Amz-Date: 20260101T000000Z\r\n"
        f"Authorization: {_AUTHORIZATION}\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def make_queue(talk: Talk, name: str) -> str:
    """Its URL, as the server calls it."""
    url: str = json.loads(await talk.ask(request("CreateQueue", {"QueueName": name})))["QueueUrl"]
    return url


async def drop_queue(talk: Talk, url: str) -> None:
    await talk.ask(request("DeleteQueue", {"QueueUrl": url}))


class Calls:
    """Of one queue, so many messages in each call."""

    def __init__(self, url: str, batch: int) -> None:
        self._url = url
        self.batch = batch
        text = "x" * BODY_CHARACTERS
        entries = [{"Id": str(number), "MessageBody": text} for number in range(batch)]
        sent = {"MessageBody": text} if batch == 1 else {"Entries": entries}
        self._send = request("SendMessage" if batch == 1 else "SendMessageBatch", {"QueueUrl": url} | sent)
        wish = {"QueueUrl": url, "MaxNumberOfMessages": batch, "VisibilityTimeout": LEASE_SECONDS}
        self._receive = request("ReceiveMessage", wish)
        self._wait = request("ReceiveMessage", wish | {"WaitTimeSeconds": 20})

    async def send(self, talk: Talk) -> int:
        answer = await talk.ask(self._send)
        if answer.count(_MESSAGE_ID) != self.batch:
            raise UnexpectedReply(f"of {self.batch} messages not all were taken: {answer[:200]!r}")
        return self.batch

    async def send_number(self, talk: Talk, number: int) -> None:
        text = f"{number:0{NUMBER_DIGITS}d}".ljust(BODY_CHARACTERS, "x")
        answer = await talk.ask(request("SendMessage", {"QueueUrl": self._url, "MessageBody": text}))
        if _MESSAGE_ID not in answer:
            raise UnexpectedReply(f"a message was not taken: {answer[:200]!r}")

    async def receive(self, talk: Talk) -> list[bytes]:
        """Handles; none where nothing is ready."""
        return _HANDLE.findall(await talk.ask(self._receive))

    async def wait(self, talk: Talk) -> tuple[list[bytes], list[int]]:
        """Handles and numbers, as soon as there are any."""
        answer = await talk.ask(self._wait)
        handles, numbers = _HANDLE.findall(answer), [int(number) for number in _NUMBER.findall(answer)]
        if len(handles) != len(numbers):
            raise UnexpectedReply(f"{len(handles)} messages with {len(numbers)} numbers")
        return handles, numbers

    async def delete(self, talk: Talk, handles: Sequence[bytes]) -> int:
        if self.batch == 1:
            for handle in handles:
                await talk.ask(request("DeleteMessage", {"QueueUrl": self._url, "ReceiptHandle": handle.decode()}))
            return len(handles)
        entries = [{"Id": str(number), "ReceiptHandle": handle.decode()} for number, handle in enumerate(handles)]
        answer = await talk.ask(request("DeleteMessageBatch", {"QueueUrl": self._url, "Entries": entries}))
        if len(_ID.findall(answer)) != len(handles) or b'"SenderFault"' in answer:
            raise UnexpectedReply(f"of {len(handles)} messages not all were deleted: {answer[:200]!r}")
        return len(handles)
