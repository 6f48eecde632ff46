"""What nodes can say to each other, and the lanes on which it travels.

Each lane is a connection of its own, so that a long answer to a replica's fetch never delays a heartbeat. Numbers are on the wire: none is
ever used again for something else. A node that is told a kind which it does not know ignores it, and says so when it is asked one.
"""

from enum import IntEnum


class Lane(IntEnum):
    CALLS = 0  # What is small and answered soon.
    REPLICAS = 1  # What may be large, or wait long for something new.
    QUEUES = 2  # On behalf of those who work on queues: bodies, and long polls.


class Kind(IntEnum):
    RAFT = 1  # Told. A message between replicas of the metadata log.
    SUBMIT = 2  # Asked of the controller: a command, for its replies.
    HEARTBEAT = 3  # Asked of the controller: a broker is there, for whether it is fenced.
    REPLICA_FETCH = 4  # Asked of a leader.
    REACHED = 5  # Told to a leader: how far its follower's copies are durable.
    DESCRIBE_QUORUM = 6  # Asked of the controller: how far each replica of the metadata log is.
    CHANGE_VOTERS = 7  # Asked of the controller: a voter more, or less.
    LISTENS_AT = 8  # Told by a node that hears from no leader: where it can be called back.
    ADD_TO_TRANSACTION = 9  # Asked of a transaction's coordinator by the leader of a partition: is it part of it, or be it made so.
    WRITE_MARKERS = 10  # Asked of partitions' leaders by a coordinator: transactions have ended.
    QUEUE_CALL = 11  # Asked of the leader of a queue's partition: to send, take, settle, look.
    QUEUE_CALL_OVER = 12  # Told to it: nobody waits for the answer to a call any more.
    SHARE_LEDGER = 13  # Asked of a share group's coordinator by the leader of a partition: is the group to have a ledger there.
    METADATA_END = 14  # Asked of the controller: up to where the metadata log is committed now.
    TRIM = 15  # Asked of a follower by its leader: let the log of a partition start later, as records were deleted.
    COPY = 16  # Asked of a node that has a good copy of a partition: batches of it, or only whether it serves the partition.


LANE_OF = {
    Kind.RAFT: Lane.CALLS,
    Kind.SUBMIT: Lane.CALLS,
    Kind.HEARTBEAT: Lane.CALLS,
    Kind.REPLICA_FETCH: Lane.REPLICAS,
    Kind.REACHED: Lane.REPLICAS,
    Kind.DESCRIBE_QUORUM: Lane.CALLS,
    Kind.CHANGE_VOTERS: Lane.CALLS,
    Kind.LISTENS_AT: Lane.CALLS,
    Kind.ADD_TO_TRANSACTION: Lane.CALLS,
    Kind.WRITE_MARKERS: Lane.CALLS,
    Kind.QUEUE_CALL: Lane.QUEUES,
    Kind.QUEUE_CALL_OVER: Lane.QUEUES,
    Kind.SHARE_LEDGER: Lane.CALLS,
    Kind.METADATA_END: Lane.CALLS,
    Kind.TRIM: Lane.CALLS,
    Kind.COPY: Lane.REPLICAS,
}
