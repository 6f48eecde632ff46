"""What this door answers when it says no: AWS's error shapes with their old codes and their HTTP status.

Since SQS moved from XML to JSON an error has two names: the shape, in the body's `__type`, and the code of the XML days, in the header
`x-amzn-query-error`. Some SDKs show the one, some the other, and one of them breaks where the header is missing, so every error has both.
Two of the commonest, MissingParameter and InvalidParameterValue, are not in AWS's published model.
"""

from typing import NamedTuple

OK, BAD_REQUEST, FORBIDDEN, NOT_FOUND, TOO_LATE, TOO_LARGE, BROKEN, UNAVAILABLE = 200, 400, 403, 404, 408, 413, 500, 503

AWS_NAMESPACE = "com.amazonaws.sqs#"
CORAL_NAMESPACE = "com.amazon.coral.service#"  # Of what AWS's framework says before SQS itself is asked.
OWN_NAMESPACE = "penstock#"

_OLD_PREFIX = "AWS.SimpleQueueService."


class Kind(NamedTuple):
    """One sort of error."""

    shape: str
    code: str  # Of the XML days.
    status: int = BAD_REQUEST
    namespace: str = AWS_NAMESPACE

    @property
    def is_senders_fault(self) -> bool:
        return self.status < BROKEN


def _prefixed(shape: str, code: str = "", status: int = BAD_REQUEST) -> Kind:
    return Kind(shape, _OLD_PREFIX + (code or shape), status)


def _plain(shape: str, code: str = "", status: int = BAD_REQUEST) -> Kind:
    return Kind(shape, code or shape, status)


QUEUE_DOES_NOT_EXIST = _prefixed("QueueDoesNotExist", "NonExistentQueue")
QUEUE_NAME_EXISTS = _plain("QueueNameExists", "QueueAlreadyExists")
QUEUE_DELETED_RECENTLY = _prefixed("QueueDeletedRecently")
PURGE_QUEUE_IN_PROGRESS = _prefixed("PurgeQueueInProgress", status=FORBIDDEN)
OVER_LIMIT = _plain("OverLimit", status=FORBIDDEN)
TOO_MANY_ENTRIES = _prefixed("TooManyEntriesInBatchRequest")
EMPTY_BATCH = _prefixed("EmptyBatchRequest")
IDS_NOT_DISTINCT = _prefixed("BatchEntryIdsNotDistinct")
INVALID_BATCH_ID = _prefixed("InvalidBatchEntryId")
BATCH_TOO_LONG = _prefixed("BatchRequestTooLong")
MESSAGE_NOT_INFLIGHT = _prefixed("MessageNotInflight")
UNSUPPORTED_OPERATION = _prefixed("UnsupportedOperation")
INVALID_ATTRIBUTE_NAME = _plain("InvalidAttributeName")
INVALID_ATTRIBUTE_VALUE = _plain("InvalidAttributeValue")
INVALID_MESSAGE_CONTENTS = _plain("InvalidMessageContents")
RECEIPT_HANDLE_IS_INVALID = _plain("ReceiptHandleIsInvalid")
RESOURCE_NOT_FOUND = _plain("ResourceNotFoundException", status=NOT_FOUND)
INVALID_SECURITY = _plain("InvalidSecurity", status=FORBIDDEN)
REQUEST_THROTTLED = _plain("RequestThrottled", status=FORBIDDEN)

# Not in the model.
INVALID_PARAMETER_VALUE = _plain("InvalidParameterValueException", "InvalidParameterValue")
MISSING_PARAMETER = _plain("MissingRequiredParameterException", "MissingParameter")
SERIALIZATION = Kind("SerializationException", "SerializationException", namespace=CORAL_NAMESPACE)
UNKNOWN_OPERATION = Kind("UnknownOperationException", "InvalidAction", namespace=CORAL_NAMESPACE)
ACCESS_DENIED = Kind("AccessDeniedException", "AccessDenied", FORBIDDEN, CORAL_NAMESPACE)
INCOMPLETE_SIGNATURE = Kind("IncompleteSignatureException", "IncompleteSignature", namespace=CORAL_NAMESPACE)
MISSING_TOKEN = Kind("MissingAuthenticationTokenException", "MissingAuthenticationToken", namespace=CORAL_NAMESPACE)
UNKNOWN_CLIENT = Kind("UnrecognizedClientException", "InvalidClientTokenId", namespace=CORAL_NAMESPACE)
WRONG_SIGNATURE = Kind("InvalidSignatureException", "SignatureDoesNotMatch", namespace=CORAL_NAMESPACE)
BODY_TOO_LARGE = Kind("RequestEntityTooLargeException", "RequestEntityTooLarge", TOO_LARGE, CORAL_NAMESPACE)
REQUEST_TIMEOUT = Kind("RequestTimeout", "RequestTimeout", TOO_LATE, CORAL_NAMESPACE)  # SDKs try again.
INTERNAL_FAILURE = Kind("InternalFailure", "InternalFailure", BROKEN, CORAL_NAMESPACE)
SERVICE_UNAVAILABLE = Kind("ServiceUnavailable", "ServiceUnavailable", UNAVAILABLE, CORAL_NAMESPACE)


class SqsError(Exception):
    """A proper no, on its way to the answer."""

    def __init__(self, kind: Kind, words: str) -> None:
        super().__init__(words)
        self.kind = kind
        self.words = words


def missing(parameter: str) -> SqsError:
    return SqsError(MISSING_PARAMETER, f"The request must contain the parameter {parameter}.")


def invalid(parameter: str, value: object, reason: str) -> SqsError:
    """In AWS's words, which some programs search for a part."""
    return SqsError(INVALID_PARAMETER_VALUE, f"Value {value} for parameter {parameter} is invalid. Reason: {reason}")


def no_such_queue() -> SqsError:
    return SqsError(QUEUE_DOES_NOT_EXIST, "The specified queue does not exist.")
