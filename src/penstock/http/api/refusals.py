"""A proper no, as HTTP says it: the error code's name becomes the word for programs, its reason the sentence for people."""

from penstock.errors import ErrorCode, Refusal
from penstock.http.answers import BAD_REQUEST, CONFLICT, NO_ROOM, NOT_FOUND, UNAVAILABLE, Answer, error

# The others are the asker's mistake: 400.
_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID: NOT_FOUND,
    ErrorCode.GROUP_ID_NOT_FOUND: NOT_FOUND,
    ErrorCode.TOPIC_ALREADY_EXISTS: CONFLICT,
    ErrorCode.NON_EMPTY_GROUP: CONFLICT,
    ErrorCode.UNKNOWN_MEMBER_ID: CONFLICT,  # Of a commit from outside: the group has members of its own.
    ErrorCode.REBALANCE_IN_PROGRESS: CONFLICT,
    ErrorCode.POLICY_VIOLATION: CONFLICT,
    ErrorCode.KAFKA_STORAGE_ERROR: NO_ROOM,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: UNAVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: UNAVAILABLE,
    ErrorCode.NOT_COORDINATOR: UNAVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: UNAVAILABLE,
}


def answer_to(refusal: Refusal) -> Answer:
    status = _STATUS.get(refusal.code, BAD_REQUEST)
    headers = {"Retry-After": "1"} if status == UNAVAILABLE else {}
    return error(status, refusal.code.name.lower(), refusal.reason, headers)
