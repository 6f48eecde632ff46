"""Why a partition gives nothing to a share group for now, or does not take what is said of its records, in codes that clients get over.

Java's share consumer and librdkafka know few codes in the row of a fetched partition. On NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR
they look at the metadata anew and ask again; COORDINATOR_NOT_AVAILABLE, which it is, they would throw at the application. Of the two
NOT_LEADER_OR_FOLLOWER says that another node may know better, and Java gives up on acknowledgements that hear it; so a ledger that is here
and whose log takes nothing is KAFKA_STORAGE_ERROR. What does not pass by itself is UNKNOWN_SERVER_ERROR, as at Kafka: the client says so,
and goes on. Neither client waits before it asks again: that is for us to see to (gathering.py).
"""

from penstock.broker.queues.calls import Code, QueueRefusal
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.refusals import NotHere
from penstock.errors import DiskFailed, ErrorCode, Refusal


def heard(refusal: Refusal) -> Refusal:
    """As a member hears it."""
    if refusal.code in _HEARD:
        return refusal
    return Refusal(_INSTEAD.get(refusal.code, ErrorCode.NOT_LEADER_OR_FOLLOWER), refusal.reason)


_HEARD = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_RECORD_STATE,
)
_INSTEAD = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.POLICY_VIOLATION: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def refusal_of(queue: QueuePartition, failure: NotHere | QueueRefusal | DiskFailed) -> Refusal:
    if isinstance(failure, DiskFailed):
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the partition's log cannot be read: {failure}")
    if isinstance(failure, NotHere) or queue.coordinator.state is None:
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition's ledger has just gone; ask again")
    code = ErrorCode.KAFKA_STORAGE_ERROR if failure.code is Code.NOT_AVAILABLE else ErrorCode.NOT_LEADER_OR_FOLLOWER
    return Refusal(code, failure.words)
