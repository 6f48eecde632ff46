"""How a queue treats its messages, from the settings of its topic. Asked at every decision, so a changed setting holds from then on."""

from penstock.queues.policy import Backoff, Policy
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
    return Policy(
        lease_ms=config.queue_lease_ms,
        deliveries_max=config.queue_deliveries_max,
        backoff=Backoff(config.queue_backoff_min_ms, config.queue_backoff_max_ms, config.queue_backoff_factor, config.queue_backoff_jitter),
        dead_letter=config.queue_dead_letter,
        is_fifo=config.queue_fifo,
        is_lenient=config.queue_lenient,
        back_after=config.queue_back_after,
        dedup_ms=config.queue_dedup_window_ms,
        dedup_by_group=config.queue_dedup_scope == "group",
        is_fair=config.queue_fair,
        has_priorities=config.queue_priorities,
        starvation_every=config.queue_starvation_every,
        delay_ms=config.queue_delay_ms,
        ttl_ms=config.queue_ttl_ms,
        in_flight_max=config.queue_inflight_max,
        ready_max=config.queue_ready_max,
    )


def keeps_nothing(config: TopicConfig) -> bool:
    """Whether the queue's log may lose what is done."""
    return config.queue_enabled and config.queue_retention == "delete"
