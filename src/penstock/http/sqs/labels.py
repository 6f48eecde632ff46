"""Tags and permissions of queues: TagQueue, UntagQueue, ListQueueTags, AddPermission, RemovePermission.

Permissions are statements of the attribute Policy. They are kept and shown; nobody is refused anything because of them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.http.sqs.addresses import queue_arn
from penstock.http.sqs.answers import Answer
from penstock.http.sqs.changing import Settings, change
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.errors import INVALID_PARAMETER_VALUE, OVER_LIMIT, SqsError, invalid, missing
from penstock.http.sqs.queue_records import SqsQueue, settings_of, tagged

TAGS_MAX = 50
TAG_KEY_MAX, TAG_VALUE_MAX = 128, 256
RESERVED = "aws:"  # As of all tags of AWS, in any case of letters.
ACTIONS_MAX = 7  # Of one statement.

# Those that a policy can name: actions on the messages and settings of one queue.
_GRANTABLE = (
    "*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes", "GetQueueUrl",
    "ListDeadLetterSourceQueues", "PurgeQueue", "SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch", "ListQueueTags",
    "StartMessageMoveTask", "CancelMessageMoveTask", "ListMessageMoveTasks",
)  # fmt: skip
_LABEL = re.compile(r"[0-9A-Za-z_-]{1,80}")
_ACCOUNT_ID = re.compile(r"\d{12}")


# Tags


async def tag_queue(desk: Desk, call: Call) -> Answer:
    given: dict[str, str] = call.body["Tags"]
    check_tags(given)

    def more(queue: SqsQueue) -> Settings:
        tags = {**queue.tags, **given}
        check_tags(tags)
        return tagged(queue, tags)

    await change(desk, call, more)
    return {}


async def untag_queue(desk: Desk, call: Call) -> Answer:
    unwanted: list[str] = call.body["TagKeys"]
    await change(desk, call, lambda queue: tagged(queue, {key: value for key, value in queue.tags.items() if key not in unwanted}))
    return {}


async def list_queue_tags(desk: Desk, call: Call) -> Answer:
    tags = desk.queue_of(call).tags
    return {"Tags": dict(tags)} if tags else {}


def check_tags(tags: Mapping[str, str]) -> None:
    if len(tags) > TAGS_MAX:
        raise SqsError(INVALID_PARAMETER_VALUE, f"Too many tags added for queue. Maximum number of tags allowed is {TAGS_MAX}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= TAG_KEY_MAX:
            raise SqsError(INVALID_PARAMETER_VALUE, f"Tag keys must be between 1 and {TAG_KEY_MAX} characters in length.")
        if key.lower().startswith(RESERVED):
            raise SqsError(INVALID_PARAMETER_VALUE, f"Tag keys may not begin with {RESERVED}, which is reserved for AWS.")
        if len(value) > TAG_VALUE_MAX:
            raise SqsError(INVALID_PARAMETER_VALUE, f"Tag values must be between 0 and {TAG_VALUE_MAX} characters in length.")


# Permissions


async def add_permission(desk: Desk, call: Call) -> Answer:
    label, accounts, actions = call.body["Label"], call.body["AWSAccountIds"], call.body["Actions"]
    _check_statement(label, accounts, actions)

    def granted(queue: SqsQueue) -> Settings:
        policy = _policy(queue)
        if any(_sid(each) == label for each in policy["Statement"]):
            raise invalid("Label", label, "Already exists.")
        policy["Statement"].append(_statement(queue, label, accounts, actions))
        return _kept(desk, queue, policy)

    await change(desk, call, granted)
    return {}


async def remove_permission(desk: Desk, call: Call) -> Answer:
    label = call.body["Label"]

    def revoked(queue: SqsQueue) -> Settings:
        policy = _policy(queue)
        left = [each for each in policy["Statement"] if _sid(each) != label]
        if len(left) == len(policy["Statement"]):
            raise invalid("Label", label, "can't find label.")
        return _kept(desk, queue, {**policy, "Statement": left})

    await change(desk, call, revoked)
    return {}


def _check_statement(label: str, accounts: list[str], actions: list[str]) -> None:
    if _LABEL.fullmatch(label) is None:
        raise invalid("Label", label, "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.")
    if not accounts:
        raise missing("AWSAccountIds")
    if not actions:
        raise missing("Actions")
    for account in accounts:
        if _ACCOUNT_ID.fullmatch(account) is None:
            raise invalid("PrincipalId", account, "Unable to verify.")
    for action in actions:
        if action not in _GRANTABLE:
            reason = "Please refer to the appropriate WSDL for a list of valid actions."
            raise invalid("ActionName", f"SQS:{action}", reason)
    if len(actions) > ACTIONS_MAX:
        raise SqsError(OVER_LIMIT, f"{len(actions)} Actions were found, maximum allowed is {ACTIONS_MAX}.")


def _statement(queue: SqsQueue, label: str, accounts: list[str], actions: list[str]) -> dict[str, Any]:
    principals, granted = [f"arn:aws:iam::{account}:root" for account in accounts], [f"SQS:{action}" for action in actions]
    return {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _alone(principals)},
        "Action": _alone(granted),
        "Resource": queue_arn(queue.name),
    }


def _alone(values: list[str]) -> str | list[str]:
    """A list of one is written without the list."""
    return values[0] if len(values) == 1 else values


def _policy(queue: SqsQueue) -> dict[str, Any]:
    found = json.loads(queue.attributes.get("Policy", "{}"))
    statements = found.get("Statement", [])
    policy = {"Version": "2008-10-17", "Id": f"{queue_arn(queue.name)}/SQSDefaultPolicy", **found}
    return {**policy, "Statement": list(statements) if isinstance(statements, list) else [statements]}


def _sid(statement: object) -> object:
    return statement.get("Sid") if isinstance(statement, dict) else None


def _kept(desk: Desk, queue: SqsQueue, policy: Mapping[str, Any]) -> Settings:
    text = json.dumps(policy, separators=(",", ":")) if policy["Statement"] else ""
    return settings_of({"Policy": text}, replace(queue, modified_s=desk.now_s))
