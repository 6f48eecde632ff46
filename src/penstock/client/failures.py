"""What can go wrong for a program that writes or reads records: what happened, and what to do about it, in two lines.

`code` is the name that Kafka or librdkafka gives to the failure, for programs that must tell one from another.
"""

from typing import TypeVar

from penstock.client.complaints import ClientError, Closed, TimedOut
from penstock.client.library import confluent_kafka

__all__ = [
    "ClientError", "TimedOut", "Closed", "BufferFull", "NotDelivered", "ReadFailed", "CommitFailed",
    "TransactionFailed", "TransactionAborted", "TransactionInDoubt", "Fenced", "error_in", "failed",
]  # fmt: skip

_FENCED = (  # The broker tells one from the other to nobody.
    "its transaction took longer than transaction_seconds= and was aborted: make a new producer; or another producer with the same "
    "transactional_id= has taken this one's place: stop one of them"
)

ADVICE: dict[str, str] = {
    "_ALL_BROKERS_DOWN": "start the broker, or name it with bootstrap= or PENSTOCK_BOOTSTRAP",
    "_AUTO_OFFSET_RESET": "the group has no offset to go on from: seek() somewhere, or use start='earliest' or 'latest'",
    "_FENCED": _FENCED,
    "_FATAL": "this producer cannot go on without breaking order or doubling records: make a new one",
    "_MSG_TIMED_OUT": "look whether the broker is up and its disk has room; delivery_seconds= is how long to keep trying",
    "_PURGE_INFLIGHT": "the producer was closed before the broker had answered",
    "_PURGE_QUEUE": "the producer was closed before it could be sent: flush() first, or give close() more time",
    "_RESOLVE": "check the host name in bootstrap= or PENSTOCK_BOOTSTRAP",
    "_STATE": "the partition is not assigned to this consumer: poll() until it is, and look at assignment()",
    "_TRANSPORT": "start the broker, or name it with bootstrap= or PENSTOCK_BOOTSTRAP",
    "_UNKNOWN_PARTITION": "the topic has fewer partitions than that: leave partition= out, or add partitions",
    "_UNKNOWN_TOPIC": "create the topic first: penstock topics create NAME",
    "_WAIT_COORD": "nobody answers for the group: look whether the broker is up, then poll() and commit again",
    "FENCED_INSTANCE_ID": "another consumer with the same instance= has taken this one's place: stop one of them",
    "GROUP_MAX_SIZE_REACHED": "the group is full: stop a member, or raise group.max.size",
    "ILLEGAL_GENERATION": "the group moved on without this consumer: poll() again, its records will be delivered once more",
    "FENCED_MEMBER_EPOCH": "the group moved on without this consumer: poll() again, its records will be delivered once more",
    "INCONSISTENT_GROUP_PROTOCOL": "the group's other members assign partitions another way: use the same assignment= everywhere",
    "INVALID_PRODUCER_EPOCH": _FENCED,
    "INVALID_PRODUCER_ID_MAPPING": "nobody has used this transactional_id= for so long that the broker forgot it: make a new producer",
    "INVALID_RECORD": "a compacted topic takes only records with a key",
    "INVALID_SESSION_TIMEOUT": "choose session_seconds= within the broker's group.min.session.timeout.ms and group.max.session.timeout.ms",
    "INVALID_TIMESTAMP": "the broker refuses times so far from its clock (message.timestamp.after.max.ms, message.timestamp.before.max.ms)",
    "INVALID_TRANSACTION_TIMEOUT": "choose transaction_seconds= within the broker's transaction.max.timeout.ms",
    "KAFKA_STORAGE_ERROR": "look at the broker's log: its disk is full, or failed a write",
    "MSG_SIZE_TOO_LARGE": "send smaller records, or raise the topic's max.message.bytes and message.max.bytes here in settings=",
    "NOT_ENOUGH_REPLICAS": "start the missing brokers, or lower the topic's min.insync.replicas",
    "OFFSET_METADATA_TOO_LARGE": "commit with less metadata",
    "PRODUCER_FENCED": _FENCED,
    "REBALANCE_IN_PROGRESS": "the group is being rearranged: poll() first, then commit what you still have",
    "STALE_MEMBER_EPOCH": "the group is being rearranged: poll() first, then try again what you still have",
    "TOPIC_AUTHORIZATION_FAILED": "ask the operator for access to this topic",
    "TOPIC_EXCEPTION": "a topic's name is 1 to 249 letters, digits, '.', '_' or '-'",
    "UNKNOWN_MEMBER_ID": "the group gave this consumer up: poll() again, and call it more often than max.poll.interval.ms",
    "UNKNOWN_TOPIC_OR_PART": "check the name, or create the topic: penstock topics create NAME",
}

# Said before anything was written, or instead of writing it. After any other failure the record may have been stored all the same.
CERTAINLY_NOT_STORED = frozenset({
    "_PURGE_QUEUE", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "_QUEUE_FULL", "_INVALID_ARG",
    "CLUSTER_AUTHORIZATION_FAILED", "INVALID_RECORD", "INVALID_TIMESTAMP", "MSG_SIZE_TOO_LARGE", "NOT_ENOUGH_REPLICAS",
    "TOPIC_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION", "UNKNOWN_TOPIC_OR_PART", "UNSUPPORTED_COMPRESSION_TYPE",
})  # fmt: skip


F = TypeVar("F", bound=ClientError)


class BufferFull(ClientError):
    """The broker takes records more slowly than they are sent, and there is no more room to keep them."""


class NotDelivered(ClientError):
    """A record that no broker has acknowledged."""

    @property
    def may_have_happened(self) -> bool:
        """Whether it could be in the log all the same: an acknowledgement can be lost on its way."""
        return self.code not in CERTAINLY_NOT_STORED


class ReadFailed(ClientError):
    """Records could not be read."""


class CommitFailed(ClientError):
    """Offsets were not committed; the records will be delivered again, here or to another member."""


class TransactionFailed(ClientError):
    """A transaction did not come to a good end. Where it is none of those below: this producer cannot go on, and nothing was committed."""


class TransactionAborted(TransactionFailed):
    """Nothing of it will be read by those who read what is committed, and its offsets are not committed. It may be tried again."""


class TransactionInDoubt(TransactionFailed):
    """Nobody said whether it was committed. This producer cannot go on; the next one with its transactional_id settles it first."""


class Fenced(TransactionFailed):
    """Another producer with the same transactional_id has begun, or the broker ended a transaction that took too long: this producer can
    write nothing more. Told by a commit, it leaves open whether that was carried out before."""


def error_in(failure: confluent_kafka.KafkaException) -> confluent_kafka.KafkaError:
    """What the library's exception carries."""
    error = failure.args[0]
    assert isinstance(error, confluent_kafka.KafkaError), failure
    return error


def failed(kind: type[F], what: str, error: confluent_kafka.KafkaError, trouble: str = "") -> F:
    """The library's error as ours. `trouble` is what was last heard of the connections: the cause of most time-outs."""
    reason = f"{error.str()}; the last trouble was {trouble}" if trouble else error.str()
    return kind(f"{what}: {reason}", ADVICE.get(error.name(), ""), error.name())
