"""RedrivePolicy (where dead letters of a queue go, and when) and RedriveAllowPolicy (whose dead letters a queue takes), as JSON texts."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.http.sqs.addresses import FIFO_SUFFIX, name_in_arn
from penstock.http.sqs.errors import INVALID_PARAMETER_VALUE, SqsError, invalid

RECEIVES_MAX = 1_000
SOURCES_MAX = 10
_PERMISSIONS = ("allowAll", "denyAll", "byQueue")


class RedrivePolicy(NamedTuple):
    target: str  # The dead letters' queue, by name.
    receives_max: int
    text: str  # As it was given.


class RedriveAllowPolicy(NamedTuple):
    permission: str = "allowAll"
    sources: tuple[str, ...] = ()

    def takes_from(self, queue: str) -> bool:
        return self.permission == "allowAll" or (self.permission == "byQueue" and queue in self.sources)


def read_redrive_policy(text: str) -> RedrivePolicy:
    given = _object("RedrivePolicy", text)
    arn, count = given.get("deadLetterTargetArn"), given.get("maxReceiveCount")
    if not arn or not isinstance(arn, str):
        raise invalid("RedrivePolicy", text, "Redrive policy does not contain mandatory attribute: deadLetterTargetArn.")
    if count is None:
        raise invalid("RedrivePolicy", text, "Redrive policy does not contain mandatory attribute: maxReceiveCount.")
    number = _whole_number(count)
    if number is None or not 1 <= number <= RECEIVES_MAX:
        reason = f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to {RECEIVES_MAX} both inclusive."
        raise invalid("RedrivePolicy", text, reason)
    return RedrivePolicy(name_in_arn(arn, "deadLetterTargetArn"), number, text)


def read_redrive_allow_policy(text: str) -> RedriveAllowPolicy:
    given = _object("RedriveAllowPolicy", text)
    permission, sources = given.get("redrivePermission"), given.get("sourceQueueArns", [])
    if permission not in _PERMISSIONS:
        raise invalid("RedriveAllowPolicy", text, f"redrivePermission must be one of {', '.join(_PERMISSIONS)}.")
    if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
        raise invalid("RedriveAllowPolicy", text, "sourceQueueArns must be a list of queue ARNs.")
    if (permission == "byQueue") != bool(sources):
        raise invalid(
            "RedriveAllowPolicy", text, "sourceQueueArns is required when redrivePermission is byQueue, and not allowed otherwise."
        )
    if len(sources) > SOURCES_MAX:
        raise invalid("RedriveAllowPolicy", text, f"sourceQueueArns may have {SOURCES_MAX} queues at most.")
    return RedriveAllowPolicy(permission, tuple(name_in_arn(source, "sourceQueueArns") for source in sources))


def check_target(source: str, policy: RedrivePolicy, allowed_by: Callable[[str], RedriveAllowPolicy | None]) -> None:
    """`allowed_by` finds what a queue takes; None where there is no such queue."""
    allowed = allowed_by(policy.target)
    if allowed is None:
        raise invalid("RedrivePolicy", policy.text, "Dead letter target does not exist.")
    if policy.target == source:
        raise invalid("RedrivePolicy", policy.text, "Dead letter target must be another queue.")
    if source.endswith(FIFO_SUFFIX) != policy.target.endswith(FIFO_SUFFIX):
        raise invalid("RedrivePolicy", policy.text, "Dead-letter queue must be same type of queue as the source.")
    if not allowed.takes_from(source):
        raise invalid("RedrivePolicy", policy.text, "Queue does not have permission to redrive to the dead letter target.")


def _object(parameter: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise SqsError(
            INVALID_PARAMETER_VALUE, f"Value {text} for parameter {parameter} is invalid. Reason: {parameter} is not valid JSON map."
        )
    return value


def _whole_number(value: object) -> int | None:
    """Of a number, or of a text as some tools write it."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 9:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
