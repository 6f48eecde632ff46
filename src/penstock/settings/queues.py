"""What a topic may be told about its use as a work queue. Only `queue.enabled` makes it one; the others say how it treats its messages.

Defaults are those of a queue that was made here and told nothing. The SQS door makes queues without backoff, since AWS has none. A
setting that is a queue's own (which queue its dead letters go to) has no default that a node could set for all of them.
"""

from dataclasses import dataclass

from penstock.settings.setting import DAY_MS, HOUR_MS, INT_MAX, KIB, MINUTE_MS, SECOND_MS, setting

LEASE_MS_MAX = 12 * HOUR_MS  # As SQS has it.
SPAN_MS_MAX = 366 * DAY_MS


@dataclass(frozen=True)
class QueueSettings:
    queue_enabled: bool = setting(
        "queue.enabled",
        False,
        own=True,
        reason="Use the topic as a work queue: it gets a ledger of who holds which message and what is done, kept as safe as its records. Off: "
        "the ledger stays as it is, and a share group may still use it.",
    )
    queue_lease_ms: int = setting(
        "queue.lease.ms",
        30 * SECOND_MS,
        bounds=(0, LEASE_MS_MAX),
        reason="How long a message is lent for when its taker does not say. A worker that dies keeps its messages that long; one that needs "
        "longer must extend its lease in time, or the message goes to another.",
    )
    queue_deliveries_max: int = setting(
        "queue.deliveries.max",
        0,
        bounds=(0, 1_000),
        reason="A message that was delivered this often and not finished is buried: it goes to queue.dead.letter, or is done with where there is "
        "none. 0: it is delivered again for ever.",
    )
    queue_backoff_min_ms: int = setting(
        "queue.backoff.min.ms",
        SECOND_MS,
        bounds=(0, SPAN_MS_MAX),
        reason="How long a message waits after its first failed delivery. Each further failure multiplies it by queue.backoff.factor. 0: it is "
        "delivered again at once, which turns a broken message into a busy loop.",
    )
    queue_backoff_max_ms: int = setting(
        "queue.backoff.max.ms",
        10 * MINUTE_MS,
        bounds=(0, SPAN_MS_MAX),
        reason="The longest that a message waits after a failed delivery.",
    )
    queue_backoff_factor: float = setting(
        "queue.backoff.factor",
        2.0,
        bounds=(1, 100),
        reason="How much longer a message waits after each further failure.",
    )
    queue_backoff_jitter: float = setting(
        "queue.backoff.jitter",
        0.5,
        bounds=(0, 1),
        reason="The part of each wait that is left to chance, so that messages which failed together do not come back together. 0: none of it.",
    )
    queue_dead_letter: str = setting(
        "queue.dead.letter",
        "",
        own=True,
        bytes_max=249,
        reason="The queue that buried messages are moved to, with the history of their failures. Empty: they are done with.",
    )
    queue_fifo: bool = setting(
        "queue.fifo",
        False,
        own=True,
        reason="Deliver the messages of each group in order, one group's next message only when its last is finished. Messages of one group stay "
        "in one partition. It does not change for a queue that has messages in flight without being noticed: choose it when the queue is made.",
    )
    queue_dedup_window_ms: int = setting(
        "queue.dedup.window.ms",
        5 * MINUTE_MS,
        bounds=(0, DAY_MS),
        reason="A message with the deduplication id of another that was sent within this time is not taken a second time. 0: ids have no effect. "
        "Each id takes memory while it counts.",
    )
    queue_dedup_scope: str = setting(
        "queue.dedup.scope",
        "queue",
        choices=("queue", "group"),
        reason="Where a deduplication id must be unique: in the whole queue, or among the messages of one group. Each partition knows its own ids: on "
        "a queue with several, the id chooses the partition, before the key (with `group`: after the group). So a FIFO queue whose ids count in the "
        "whole queue has one partition. Plain producers choose partitions themselves: their ids count in each.",
    )
    queue_dedup_by_content: bool = setting(
        "queue.dedup.by.content",
        False,
        reason="A message without a deduplication id gets one that is made from its body.",
    )
    queue_fair: bool = setting(
        "queue.fair",
        False,
        reason="Where messages name a group and the queue is not FIFO: groups that have little in flight come before those that have much, so that "
        "one noisy tenant does not make the others wait.",
    )
    queue_priorities: bool = setting(
        "queue.priorities",
        True,
        reason="Deliver messages of higher priority first. Off: priorities that messages name have no effect.",
    )
    queue_starvation_every: int = setting(
        "queue.starvation.every",
        0,
        bounds=(0, 10_000),
        reason="Every so many deliveries, one goes to the message that has waited longest whatever its priority, so that low ones are not left "
        "for ever. 0: strictly by priority.",
    )
    queue_back_after: int = setting(
        "queue.back.after",
        0,
        bounds=(0, 1_000),
        reason="A message that comes back after this many deliveries goes behind those that were never delivered. 0: it keeps its place. Not "
        "for FIFO queues.",
    )
    queue_delay_ms: int = setting(
        "queue.delay.ms",
        0,
        bounds=(0, SPAN_MS_MAX),
        reason="How long a message that says nothing about it waits before it is delivered. A change holds for what is sent from then on; in a "
        "FIFO queue for those that still wait as well, as at SQS, so that the order holds.",
    )
    queue_ttl_ms: int = setting(
        "queue.ttl.ms",
        0,
        bounds=(0, SPAN_MS_MAX),
        reason="A message that was not finished this long after it was sent, and says nothing about it, is done with. 0: never.",
    )
    queue_retention: str = setting(
        "queue.retention",
        "delete",
        choices=("delete", "keep"),
        reason="delete: the log loses what is done with, as soon as nothing before it is unfinished. keep: the log stays as retention.ms and "
        "retention.bytes have it, so that it can be read or worked off again; what these take is done with.",
    )
    queue_inflight_max: int = setting(
        "queue.inflight.max",
        120_000,
        bounds=(1, 10_000_000),
        reason="The most messages of one partition that may be lent at once; past it takers wait. Each takes memory.",
    )
    queue_inflight_refuse: bool = setting(
        "queue.inflight.refuse",
        False,
        reason="Past queue.inflight.max takers are refused instead of waiting, as at SQS.",
    )
    queue_ready_max: int = setting(
        "queue.ready.max",
        0,
        bounds=(0, INT_MAX),
        reason="The most unfinished messages of one partition; past it sending is as queue.when.full says. 0: no bound.",
    )
    queue_when_full: str = setting(
        "queue.when.full",
        "refuse",
        choices=("refuse", "wait"),
        reason="What becomes of a message that is sent to a full queue: the sender is told so, or waits until there is room.",
    )
    queue_lenient: bool = setting(
        "queue.lenient",
        True,
        reason="A worker whose lease has lapsed may still finish its message, if it did the work, and extend the lease, if nobody else has had the "
        "message since. Off: it is told that it came too late. Never in FIFO queues.",
    )
    queue_paused: bool = setting(
        "queue.paused",
        False,
        own=True,
        reason="Nothing is delivered until the queue is resumed. Sending, finishing and extending go on.",
    )
    queue_sqs: str = setting(
        "queue.sqs",
        "",
        own=True,
        bytes_max=64 * KIB,
        reason="What only the SQS door knows of the queue (its policy, tags, and other attributes that have no effect here), as JSON.",
    )
