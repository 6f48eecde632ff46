"""Attributes of queues: which there are, what they may be, and which setting of the topic stands behind which.

What the ledger must know is a setting `queue.*` of the topic; what only this door knows lies together in `queue.sqs` (queue_records.py).
An attribute `penstock.<name>` is the setting `queue.<name>`: an extension that any SDK carries, as attributes are plain maps to it.
Policy, encryption and throughput mode are kept and shown, and nothing follows from them.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from penstock.http.sqs.errors import INVALID_ATTRIBUTE_NAME, INVALID_ATTRIBUTE_VALUE, SqsError
from penstock.http.sqs.redrive_policies import read_redrive_allow_policy, read_redrive_policy

EXTENSION_PREFIX = "penstock."
PARTITIONS, REPLICAS = "penstock.partitions", "penstock.replicas"  # Of new queues only.
POLICY_LENGTH_MAX = 20_480  # Our bound, and IAM's for the longest of its policies.

SIZE_DEFAULT = 1 << 20
SECONDS_PER_DAY = 86_400


class Numbers(NamedTuple):
    low: int
    high: int
    default: int


NUMBERS = {
    "DelaySeconds": Numbers(0, 900, 0),
    "MaximumMessageSize": Numbers(1_024, SIZE_DEFAULT, SIZE_DEFAULT),
    "MessageRetentionPeriod": Numbers(60, 14 * SECONDS_PER_DAY, 4 * SECONDS_PER_DAY),
    "ReceiveMessageWaitTimeSeconds": Numbers(0, 20, 0),
    "VisibilityTimeout": Numbers(0, 43_200, 30),
    "KmsDataKeyReusePeriodSeconds": Numbers(60, SECONDS_PER_DAY, 300),
}
TRUTHS = ("FifoQueue", "ContentBasedDeduplication", "SqsManagedSseEnabled")
CHOICES = {"DeduplicationScope": ("queue", "messageGroup"), "FifoThroughputLimit": ("perQueue", "perMessageGroupId")}
TEXTS = ("Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId")
FIFO_ONLY = ("FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit")

SETTABLE = frozenset((*NUMBERS, *TRUTHS, *CHOICES, *TEXTS))
COUNTED = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed")
READ_ONLY = ("QueueArn", "CreatedTimestamp", "LastModifiedTimestamp", *COUNTED)
KNOWN = SETTABLE.union(READ_ONLY)

# What makes it a queue, what this door keeps for itself, and what AWS says by a queue's name.
_NOT_CHOSEN = frozenset({"penstock.enabled", "penstock.sqs", "penstock.fifo"})

KEY_ID_LENGTH_MAX = 2_048


def check_attributes(given: Mapping[str, str], *, is_fifo: bool) -> dict[str, str]:
    """Those of AWS, each in its one form; extensions are left to the settings behind them."""
    checked = {name: _checked(name, value) for name, value in given.items() if not name.startswith(EXTENSION_PREFIX)}
    if not is_fifo:
        _refuse_fifo_attributes(checked)
    if checked.get("KmsMasterKeyId") and checked.get("SqsManagedSseEnabled") == "true":
        words = "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."
        raise SqsError(INVALID_ATTRIBUTE_NAME, words)
    return checked


def extensions_in(given: Mapping[str, str]) -> dict[str, str]:
    """As settings of the topic."""
    extras = [name for name in given if name.startswith(EXTENSION_PREFIX) and name not in (PARTITIONS, REPLICAS)]
    for name in extras:
        if name in _NOT_CHOSEN:
            raise unknown(name)
    return {f"queue.{name.removeprefix(EXTENSION_PREFIX)}": given[name] for name in extras}


def unknown(name: str) -> SqsError:
    return SqsError(INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name}.")


def bad_value(name: str, reason: str = "") -> SqsError:
    return SqsError(INVALID_ATTRIBUTE_VALUE, f"Invalid value for the parameter {name}." + (f" Reason: {reason}" if reason else ""))


def whole_number(name: str, text: str, low: int, high: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not low <= int(text) <= high:
        raise bad_value(name, f"Must be a whole number from {low} to {high}.")
    return int(text)


def _checked(name: str, text: str) -> str:
    if name not in SETTABLE:
        raise unknown(name)
    if name in NUMBERS:
        return str(whole_number(name, text, NUMBERS[name].low, NUMBERS[name].high))
    if name in TRUTHS:
        if text.lower() not in ("true", "false"):
            raise bad_value(name, "Must be true or false.")
        return text.lower()
    if name in CHOICES:
        if text not in CHOICES[name]:
            raise bad_value(name, f"Must be one of {', '.join(CHOICES[name])}.")
        return text
    if text:
        _check_text(name, text)
    return text


def _check_text(name: str, text: str) -> None:
    if len(text) > (KEY_ID_LENGTH_MAX if name == "KmsMasterKeyId" else POLICY_LENGTH_MAX):
        raise bad_value(name, "It is too long.")
    match name:
        case "RedrivePolicy":
            read_redrive_policy(text)
        case "RedriveAllowPolicy":
            read_redrive_allow_policy(text)
        case "Policy":
            _check_policy(text)


def _check_policy(text: str) -> None:
    try:
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise bad_value("Policy", "It is not a JSON object.")


def _refuse_fifo_attributes(checked: Mapping[str, str]) -> None:
    for name in FIFO_ONLY:
        if name in checked:
            if name in CHOICES:
                raise SqsError(INVALID_ATTRIBUTE_NAME, f"You can specify the {name} only when FifoQueue is set to true.")
            raise unknown(name)
