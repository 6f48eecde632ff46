"""How a queue treats its messages, from the settings of its topic. Asked at every decision, so a changed setting holds from then on."""

from penstock.queues.policy import Policy
from penstock.settings import GroupConfig, TopicConfig


def share_policy(config: GroupConfig) -> Policy:
    """Of a Kafka share group: no backoff, no priorities, nothing is kept of what was delivered too often."""
    return Policy(
        lease_ms=config.share_record_lock_duration_ms,
        deliveries_max=config.share_delivery_count_limit,
        in_flight_max=config.share_partition_max_record_locks,
        has_priorities=False,
        is_lenient=False,
    )


def policy_of(config: TopicConfig) -> Policy:
    """Of the queue's own group."""
    return Policy()


def keeps_nothing(config: TopicConfig) -> bool:
    """Whether the queue's log may lose what is done."""
    return False
