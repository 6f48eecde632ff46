"""How a queue treats its messages, from the settings of its topic. Asked at every decision, so a changed setting holds from then on."""

from penstock.queues.policy import Policy
from penstock.settings import TopicConfig

SHARE_POLICY = Policy(deliveries_max=5, in_flight_max=2_000, has_priorities=False, is_lenient=False)  # As Kafka's share groups begin.


def policy_of(config: TopicConfig) -> Policy:
    """Of the queue's own group."""
    return Policy()


def keeps_nothing(config: TopicConfig) -> bool:
    """Whether the queue's log may lose what is done."""
    return False
