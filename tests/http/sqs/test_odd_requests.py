"""Thousands of odd requests to every action: each gets an answer or a refusal with a code, and none of them breaks the node.

The door is asked as the HTTP server asks it, without sockets. Values are taken from a small stock of those on which programs stumble:
empty, huge, negative, of another queue, of another kind. What is asked comes from a seed, so that a failure can be had again.
"""

import json
import random
from typing import Any

import pytest
from serving import started, virtually
from tiers import pick

from penstock.http.app import application
from penstock.http.sqs.actions import ACTIONS
from penstock.http.sqs.door import QueueDoor
from penstock.http.sqs.requests import Request
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World

NUMBERS = [-(2**63), -1, 0, 1, 2, 10, 900, 43_200, 2**31, 2**63, 10**30]
TEXTS = [
    "", "q", "f.fifo", "http://x/0/q", "http://x/0/f.fifo", "arn:aws:sqs:us-east-1:000000000000:q", "all", "All", "true", "1", "-1",
    "9" * 40, "x" * 300, "é\u0000", "%", "QQ==", "done", "extend", "release", "reject", "String", "Binary", "Number", "penstock.delay",
    "{}", "[]", '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:q","maxReceiveCount":2}', "AWSTraceHeader", "ready",
]  # fmt: skip
NAMES = ["a", "", "VisibilityTimeout", "Policy", "RedrivePolicy", "FifoQueue", "penstock.priority", "penstock.nonsense", "queue.lease.ms"]
WAITS = ("WaitTimeSeconds", "WaitMs")  # Nobody has the time.
CALLS_EACH = 60


class Stock:
    """Bodies of requests, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.texts = list(TEXTS)

    def body(self, action: str) -> dict[str, Any]:
        shape = ACTIONS[action].shape
        chosen = [name for name in shape.members if name in shape.required or self._random.random() < 0.4]
        return {name: 0 if name in WAITS else self.value(shape.members[name].name) for name in chosen}

    def value(self, kind: str) -> Any:
        if self._random.random() < 0.05:
            return self._random.choice([None, True, 1.5, [], {}, "x", 7])
        if kind.startswith("list of"):
            return [self.value(kind.removeprefix("list of ")) for _ in range(self._random.choice([0, 1, 1, 2, 11]))]
        if kind.startswith("map of"):
            return {name: self.value(kind.removeprefix("map of ")) for name in self._random.sample(NAMES, 2)}
        if kind in ("structure", "Draft", "Order", "Filter"):
            is_plain = kind == "structure" and self._random.random() < 0.5  # An end to what is nested.
            members = {name: of for name, of in self._members().items() if not is_plain or " of " not in of}
            return {name: self.value(of) for name, of in members.items() if self._random.random() < 0.6}
        if kind == "integer":
            return self._random.choice(NUMBERS)
        if kind == "boolean":
            return self._random.random() < 0.5
        if kind == "pair of name and value":
            return [self._random.choice(NAMES), self._random.choice([None, "x", {"Base64": "QQ=="}])]
        return self._random.choice(self.texts)

    @staticmethod
    def _members() -> dict[str, str]:
        texts = (
            "Id", "MessageBody", "ReceiptHandle", "MessageGroupId", "MessageDeduplicationId", "DataType", "StringValue", "BinaryValue",
            "Body", "Key", "Group", "Dedup", "Handle", "Verb", "Reason", "Source",
        )  # fmt: skip
        numbers = ("DelaySeconds", "VisibilityTimeout", "Priority", "DelayMs", "DeliverAtMs", "TtlMs", "FailedAfterMs")
        return {
            **dict.fromkeys(texts, "string"), **dict.fromkeys(numbers, "integer"), "MessageAttributes": "map of structure",
            "Headers": "list of pair of name and value",
        }  # fmt: skip


async def call(queues: QueueDoor, action: str, body: object) -> tuple[int, Any]:
    request = Request(action.encode(), {b"host": b"x"}, client="127.0.0.1", body=json.dumps(body).encode())
    reply = await queues.answer(request)
    return reply.status, json.loads(reply.body)


@pytest.mark.virtual_time("its worlds come from seeds")
@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(1, 1 + pick(test=1, slow=2)))
def test_no_request_breaks_the_node(seed: int):
    async def story(world: World, env: SimEnv) -> None:
        node, _ = await started(env)
        queues, stock = application(node).queues, Stock(seed)
        answered = 0
        for name, attributes in (("q", {}), ("f.fifo", {"FifoQueue": "true", "ContentBasedDeduplication": "true"})):
            assert (await call(queues, "AmazonSQS.CreateQueue", {"QueueName": name, "Attributes": attributes}))[0] == 200
        for action in [name for name in ACTIONS if not name.endswith("DeleteQueue")] * CALLS_EACH:
            body = stock.body(action)
            status, answer = await call(queues, action, body)
            assert status == 200 or (status < 500 and answer["__type"]), (action, body, answer)
            answered += status == 200
            stock.texts[len(TEXTS) :] = [each.get("ReceiptHandle") or each["Handle"] for each in _messages(answer)][:5]
        assert answered > CALLS_EACH, "hardly anything made sense"
        await node.stop()

    virtually(story, seed=seed)


def _messages(answer: Any) -> list[Any]:
    found = answer.get("Messages") or []
    return [each for each in found if "ReceiptHandle" in each or "Handle" in each]
