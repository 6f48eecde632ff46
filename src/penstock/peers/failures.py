"""What can go wrong for a client, in words for the person who reads it: what happened, and what to do about it.

Two questions decide what a caller may do next. `is_retriable`: may the same request succeed later, as it stands? And
`may_have_happened`: was it perhaps carried out although no good answer came? A retry loop answers the second for all its tries
together: a refusal that follows a lost answer says nothing about the lost one.
"""

from penstock.errors import ErrorCode
from penstock.vocabulary import TopicPartition

_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,  # The bytes were changed on the way: what we hold is whole.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.CONCURRENT_TRANSACTIONS,  # The one before is still being ended.
        ErrorCode.UNSTABLE_OFFSET_COMMIT,  # A transaction holds it, and will end.
    }
)

# After these the request may have been carried out all the same: it waited for others, for the disk, or for a leader that stepped down.
_UNCERTAIN = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

_ADVICE: dict[int, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "check the name, or create the topic first",
    ErrorCode.UNKNOWN_TOPIC_ID: "the topic was deleted, or made again under its name: start over with the topic of today",
    ErrorCode.LEADER_NOT_AVAILABLE: "wait until a node that holds a replica is up",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller records, or raise the topic's max.message.bytes",
    ErrorCode.NOT_ENOUGH_REPLICAS: "start the missing nodes, or lower the topic's min.insync.replicas",
    ErrorCode.REQUEST_TIMED_OUT: "look whether the cluster is well: penstock cluster status",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or delete the topic first",
    ErrorCode.INVALID_REPLICATION_FACTOR: "start more nodes, or ask for fewer replicas",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "use 1 to 249 letters, digits, '.', '_' or '-'",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "use another codec",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask the operator for access to this topic",
    ErrorCode.KAFKA_STORAGE_ERROR: "look at the node's log: its disk failed a write",
    ErrorCode.GROUP_ID_NOT_FOUND: "check the name; groups that nobody uses are forgotten after a while",
    ErrorCode.NON_EMPTY_GROUP: "stop the group's consumers first",
    ErrorCode.UNKNOWN_MEMBER_ID: "stop the group's consumers first: members commit for themselves",
}


class PeerFailure(Exception):
    """Anything that a call of this room raises. Its text is a problem, and on a second line what to do about it."""

    is_retriable = False

    def __init__(self, problem: str, advice: str = "", *, may_have_happened: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.advice = advice
        self.may_have_happened = may_have_happened

    def __str__(self) -> str:
        return f"{self.problem}\n  {self.advice}" if self.advice else self.problem


class Unreachable(PeerFailure):
    """No connection could be made: nothing was sent."""

    is_retriable = True


class ConnectionLost(PeerFailure):
    """The connection ended before the answer."""

    is_retriable = True


class AnswerTimedOut(ConnectionLost):
    """The peer said nothing for too long; the connection was given up, since answers come in the order of the questions."""


class NotSpoken(PeerFailure):
    """The peer does not speak a version of the API that this client knows."""


class Refused(PeerFailure):
    """A proper no, by its code."""

    def __init__(self, code: int, what: str, reason: str | None = None, *, may_have_happened: bool | None = None) -> None:
        detail = f" ({reason})" if reason else ""
        super().__init__(f"{what}: the node answered {code_name(code)}{detail}", _ADVICE.get(code, ""))
        self.code = code
        self.is_retriable = code in _RETRIABLE
        self.may_have_happened = code in _UNCERTAIN if may_have_happened is None else may_have_happened


class UnreadablePlace(Refused):
    """A node cannot read its copy at an offset: bytes there are not what was written, or its disk fails.

    It mends the place from an in-sync replica, or another node leads soon. Where neither is possible it stays so (CORRUPT_MESSAGE).
    """

    def __init__(self, code: int, partition: TopicPartition, node_id: int, offset: int) -> None:
        super().__init__(code, f"fetch {partition} from offset {offset}")
        topic, index = partition
        if code == ErrorCode.CORRUPT_MESSAGE:
            why = "the bytes there on its disk have changed, and no replica in sync has mended them"
        else:
            why = "the bytes there on its disk have changed or cannot be read, and it has not mended them yet"
        self.problem = f"node {node_id} cannot read {partition} at offset {offset} ({code_name(code)}): {why}"
        self.advice = (
            f"find every damaged place, and have mended what can be: penstock cluster scrub --topic {topic}\n"
            f"read another replica, if one is in sync: penstock cluster lead NODE --topic {topic} --partition {index}\n"
            f"leave the place out, whose end scrub tells: penstock consume {topic} --partition {index} --from {offset + 1}"
        )


class GaveUp(PeerFailure):
    """The deadline passed; `last` is what the last try ran into, or the last that was refused."""

    def __init__(self, what: str, span_s: float, last: PeerFailure, *, may_have_happened: bool) -> None:
        super().__init__(f"{what}: gave up after {span_s:g} s. {last.problem}", last.advice, may_have_happened=may_have_happened)
        self.last = last


class UnknownTopic(PeerFailure):
    """The topic is not there, and nothing suggests that it soon will be."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"there is no topic {topic!r}", "check the name, or create the topic first")
        self.topic = topic


class ProducerBroken(PeerFailure):
    """This producer cannot go on without risking a gap, a double or a wrong order. A new one can."""


class ProducerFenced(ProducerBroken):
    """Another producer has taken over the transactional id, or its transaction timed out: nothing that this one has not committed ever
    counts."""


class MustAbort(PeerFailure):
    """This transaction cannot be committed any more. After an abort the producer can go on with the next."""


class MemberFenced(PeerFailure):
    """The group has given up on this member: it owns nothing, and may join anew."""


class OffsetLost(PeerFailure):
    """The offset to read next is not, or no longer, in the partition."""

    def __init__(self, partition: TopicPartition, problem: str, advice: str) -> None:
        super().__init__(f"{partition}: {problem}", advice)
        self.partition = partition


class BadAnswer(PeerFailure):
    """The peer answered with bytes that cannot be right. Asked again it may do better: a checksum catches what the way did to them."""

    is_retriable = True


def code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def check_code(code: int, what: str, reason: str | None = None) -> None:
    """Raises the refusal that an error code in an answer stands for."""
    if code != ErrorCode.NONE:
        raise Refused(int(code), what, reason)
