"""Nodes whose share groups are broken on purpose (see variants.py): each neglects one thing, and the rules of share groups must notice."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from penstock.broker.shares import acknowledging, acquiring
from penstock.broker.shares.acknowledging import AcknowledgeType
from penstock.broker.shares.configs import GroupConfigs
from penstock.queues.bits import DoneSet
from penstock.queues.commands import QUEUE_GROUP, Verb
from penstock.queues.policy import Policy
from penstock.queues.replies import Delivery
from penstock.queues.state import LedgerState
from penstock.simulator.defects import breaks
from penstock.vocabulary import Instant
from penstock.wire.share_responses import Acquired

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.

_SHORT_MS = 5


@breaks("share.one-holder")
def ends_locks_too_early() -> Patches:
    policy_of = GroupConfigs.policy_of
    kept: dict[Policy, Policy] = {}  # Always the same for the same: ledgers look whether it has changed.

    def short(self: GroupConfigs, group: str) -> Policy:
        policy = policy_of(self, group)
        return kept.setdefault(policy, replace(policy, lease_ms=_SHORT_MS))

    return [(GroupConfigs, "policy_of", short)]


@breaks("share.accepted-stays-accepted")
def forgets_what_a_group_has_done_at_a_load() -> Patches:
    begin = LedgerState.begin

    def begin_anew(self: LedgerState, now: Instant, wall_ms: int) -> None:
        for ledger in self.ledgers.values():
            if ledger.group != QUEUE_GROUP:
                ledger.done = DoneSet(0)
        begin(self, now, wall_ms)

    return [(LedgerState, "begin", begin_anew)]


@breaks("share.deliveries-counted")
def counts_no_share_deliveries() -> Patches:
    ranges = acquiring.ranges

    def first_ones(deliveries: Sequence[Delivery]) -> list[Acquired]:
        return ranges([each._replace(attempt=1) for each in deliveries])

    return [(acquiring, "ranges", first_ones)]


@breaks("share.accepted-stays-accepted")
def takes_a_release_for_the_end() -> Patches:
    return [(acknowledging, "_VERBS", {**acknowledging._VERBS, AcknowledgeType.RELEASE: Verb.DONE})]


@breaks("share.accepted-stays-accepted")
def takes_a_rejection_for_a_release() -> Patches:
    return [(acknowledging, "_VERBS", {**acknowledging._VERBS, AcknowledgeType.REJECT: Verb.RELEASE})]


SHARE_VARIANTS: dict[str, Callable[[], Patches]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        ends_locks_too_early,
        forgets_what_a_group_has_done_at_a_load,
        counts_no_share_deliveries,
        takes_a_release_for_the_end,
        takes_a_rejection_for_a_release,
    )
}
