"""What the queues refuse, in AWS's words: which code of theirs is which error here."""

from penstock.broker.queues.calls import Code, QueueRefusal
from penstock.errors import Refusal
from penstock.http.sqs.errors import (
    BAD_REQUEST,
    BODY_TOO_LARGE,
    INVALID_PARAMETER_VALUE,
    MISSING_PARAMETER,
    OVER_LIMIT,
    OWN_NAMESPACE,
    QUEUE_NAME_EXISTS,
    RECEIPT_HANDLE_IS_INVALID,
    REQUEST_THROTTLED,
    REQUEST_TIMEOUT,
    RESOURCE_NOT_FOUND,
    SERIALIZATION,
    SERVICE_UNAVAILABLE,
    UNAVAILABLE,
    UNKNOWN_OPERATION,
    Kind,
    SqsError,
    no_such_queue,
)

_KINDS = {
    Code.EXISTS_WITH_OTHER_SETTINGS: QUEUE_NAME_EXISTS,
    Code.INVALID: INVALID_PARAMETER_VALUE,
    Code.FULL: REQUEST_THROTTLED,  # SDKs try again after a while, which is what a full queue wants.
    Code.TOO_LARGE: INVALID_PARAMETER_VALUE,
    Code.IN_FLIGHT_LIMIT: OVER_LIMIT,
    Code.INVALID_HANDLE: RECEIPT_HANDLE_IS_INVALID,
    Code.LEASE_LOST: INVALID_PARAMETER_VALUE,
    Code.NO_SUCH_TASK: RESOURCE_NOT_FOUND,
    Code.BUSY: INVALID_PARAMETER_VALUE,
    Code.CHANGED: SERVICE_UNAVAILABLE,
    Code.NOT_AVAILABLE: SERVICE_UNAVAILABLE,  # SDKs try again.
}

_OWN_CODES = {
    SERIALIZATION: Code.INVALID,
    MISSING_PARAMETER: Code.INVALID,
    UNKNOWN_OPERATION: Code.INVALID,
    BODY_TOO_LARGE: Code.TOO_LARGE,
    REQUEST_THROTTLED: Code.NOT_AVAILABLE,
    REQUEST_TIMEOUT: Code.NOT_AVAILABLE,
    SERVICE_UNAVAILABLE: Code.NOT_AVAILABLE,
}


def as_error(refusal: QueueRefusal) -> SqsError:
    if refusal.code in (Code.NO_SUCH_QUEUE, Code.NOT_A_QUEUE):
        return no_such_queue()
    return SqsError(_KINDS[refusal.code], refusal.words)


def as_own_error(refusal: QueueRefusal) -> SqsError:
    """For Penstock's own actions: by the code's own name."""
    status = UNAVAILABLE if refusal.code == Code.NOT_AVAILABLE else BAD_REQUEST
    return SqsError(Kind(refusal.code, refusal.code, status, OWN_NAMESPACE), refusal.words)


def in_own_words(error: SqsError) -> SqsError:
    """What this door itself refuses, for Penstock's own actions. Who may not come in is told in AWS's words all the same."""
    code = _OWN_CODES.get(error.kind)
    return error if code is None else as_own_error(QueueRefusal(code, error.words))


def as_queue_refusal(refusal: Refusal) -> QueueRefusal:
    """A no of the node itself that came through the queues."""
    return QueueRefusal(Code.NOT_AVAILABLE, refusal.reason)
