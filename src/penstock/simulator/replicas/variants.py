"""Replication with a planted defect: each of these must be caught, by a seed or by the scene made for it.

Most have been a defect of somebody's: the broken steps on the way to KIP-101, KIP-279 and KIP-320, what KIP-207, KIP-497, KIP-903 and
KIP-966 put right, and what our own following in two steps, fetched and then flushed, makes possible.
"""

from collections.abc import Callable
from typing import Any

from penstock.cluster import in_sync as deciding_in_sync
from penstock.cluster import moving
from penstock.cluster.image import PartitionState
from penstock.log.epochs import NO_EPOCH
from penstock.partition import joining
from penstock.partition.follower import Diverging, Fetch, Fetched, Follower, Report, Truncate
from penstock.partition.in_sync import NOTHING, InSync
from penstock.partition.leader import Leader, Reached
from penstock.simulator.defects import breaks
from penstock.simulator.replicas import leading, node
from penstock.simulator.replicas.following import Following
from penstock.simulator.replicas.leading import Leading
from penstock.simulator.replicas.node import SimNode
from penstock.simulator.replicas.store import Store, Ticket
from penstock.vocabulary import NO_NODE, Offset

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.


# Promises made too early


@breaks("replication.acked-is-kept", "replication.in-sync-has-committed")
def counts_what_is_not_flushed() -> Patches:
    return [(SimNode, "durable_end", property(lambda self: self.store.end_offset))]


@breaks("replication.logs-agree", "replication.in-sync-has-committed")
def reports_before_it_agrees() -> Patches:
    def report(self: Follower, durable_end: Offset) -> Report | None:
        report = Report(durable_end, self._log.start_offset)
        if report <= self._reported:
            return None
        self._reported = report
        return report

    return [(Follower, "report", report)]


@breaks("replication.acked-is-kept")
def believes_its_whole_log() -> Patches:
    """A new leader takes all that it has for committed."""
    begin = Leading.begin

    def begin_with_everything(self: Leading) -> None:
        self.core.high_watermark = self.core.epoch_start
        begin(self)

    return [(Leading, "begin", begin_with_everything)]


@breaks("replication.end-offset-never-back")
def tells_its_end_at_once() -> Patches:
    return [(Leader, "may_tell_end", property(lambda self: True))]


@breaks("replication.acked-is-kept", "controller.no-eligible-behind-commit")
def commits_with_too_few() -> Patches:
    note_set = Leader._note_set

    def note_and_be_content(self: Leader[Any]) -> None:
        note_set(self)
        self.is_enough = True

    return [(Leader, "_note_set", note_and_be_content)]


@breaks("replication.in-sync-has-committed")
def lets_a_flush_vouch_after_a_cut() -> Patches:
    def end_flush(self: Store, ticket: Ticket) -> None:
        self.flushed_end = max(self.flushed_end, min(ticket.end_offset, self.end_offset))

    return [(Store, "end_flush", end_flush)]


# Logs that are made to agree, and don't


@breaks("replication.truncate-by-epoch")
def cuts_by_the_watermark() -> Patches:
    """As before KIP-101."""
    begin = Following.begin

    def cut_and_begin(self: Following) -> None:
        store = self._node.store
        store.truncate_to(max(store.start_offset, min(self._node.watermark, store.end_offset)))
        begin(self)

    return [(Following, "begin", cut_and_begin), (leading, "diverging_at", lambda log, offset, last_epoch: None)]


@breaks("replication.truncate-by-epoch", "replication.logs-agree")
def never_cuts() -> Patches:
    return [(leading, "diverging_at", lambda log, offset, last_epoch: None)]


@breaks("replication.truncate-by-epoch", "replication.logs-agree")
def cuts_once_and_by_the_leaders_word_alone() -> Patches:
    """As KIP-101 before KIP-279: where the leader's epoch is one that the follower never had, it keeps too much."""
    cut, next_fetch, asks_no_more = Follower._cut, Follower.next_fetch, Report(Offset(-2), Offset(-2))

    def cut_once(self: Follower, diverging: Diverging) -> Any:
        offset = Offset(min(diverging.end_offset, self._log.end_offset))
        if offset >= self._log.end_offset:
            return cut(self, diverging)
        self._reported = asks_no_more
        return Truncate(offset, is_loss=offset < self.high_watermark)

    def ask_no_more(self: Follower) -> Fetch:
        asked = next_fetch(self)
        return asked._replace(last_epoch=NO_EPOCH) if self._reported == asks_no_more else asked

    return [(Follower, "_cut", cut_once), (Follower, "next_fetch", ask_no_more)]


@breaks("replication.in-sync-has-committed")
def hears_followers_of_other_leaders() -> Patches:
    """As before KIP-320: whose epoch it was does not matter."""

    def reached_there(self: Leader[Any], event: Reached) -> Any:
        if not self._set.note(event.replica, event.node_epoch, event.end_offset, event.start):
            return []
        return [*self._advance([]), *self._propose()]

    return [(Leader, "_reached_there", reached_there)]


@breaks("replication.logs-agree")
def serves_followers_of_other_leaders() -> Patches:
    answer_to = Leading._answer_to

    def answer_anybody(self: Leading, asked: Fetch) -> Fetched:
        return answer_to(self, asked._replace(epoch=self.epoch))

    return [(Leading, "_answer_to", answer_anybody), (joining, "_fault", lambda header, end_offset, last_epoch, epoch_max: None)]


@breaks("replication.logs-agree")
def takes_answers_to_other_questions() -> Patches:
    answered = Follower.answered
    return [(Follower, "answered", lambda self, asked, answer: answered(self, self.next_fetch(), answer))]


@breaks("replication.old-leader-acks-nothing")
def goes_on_in_the_epoch_of_an_earlier_life() -> Patches:
    """A restarted node takes its role from what it knew of its earlier life."""
    start = SimNode.start

    def start_and_act(self: SimNode) -> None:
        was_up = self.is_up
        start(self)
        if not was_up and self.life > 1:
            self._acts = True
            self.adopt()

    return [(SimNode, "start", start_and_act), (node, "UNREGISTERED", node.UNREGISTERED)]


# Sets that are not what they seem


@breaks("replication.in-sync-has-committed")
def shrinks_by_itself() -> Patches:
    note_bounds = InSync._note_bounds

    def look(self: InSync, log_end: Offset, now: Any, look: Any = InSync.look) -> None:
        look(self, log_end, now)
        note_without_the_late(self)

    def note_without_the_late(self: InSync) -> None:
        note_bounds(self)
        self.bounds = tuple(each for each in self.bounds if not self._is_late(each))

    return [(InSync, "look", look), (InSync, "_note_bounds", note_without_the_late)]


@breaks("replication.in-sync-has-committed")
def forgets_whom_it_proposed() -> Patches:
    def note_bounds(self: InSync) -> None:
        self.bounds = tuple(self._followers[member] for member in self.members if member != self._me)

    return [(InSync, "_note_bounds", note_bounds)]


@breaks("replication.in-sync-has-committed")
def takes_a_no_for_the_last_word() -> Patches:
    """Another attempt at the same proposal may still be on its way to the controller."""

    def end(self: InSync, partition_epoch: int) -> list[Any]:
        self._proposal = None
        self._note_bounds()
        return []

    return [(InSync, "_end_in_doubt", end)]


@breaks("replication.in-sync-has-committed")
def lets_in_before_its_epoch_begins() -> Patches:
    def propose(self: Leader[Any]) -> list[Any]:
        proposal = self._set.propose(self.high_watermark)
        return [] if proposal is None else [proposal]

    return [(Leader, "_propose", propose)]


@breaks("replication.in-sync-has-committed")
def lets_anybody_in() -> Patches:
    def propose(self: Leader[Any]) -> list[Any]:
        proposal = self._set.propose(Offset(NOTHING + 1))
        return [] if proposal is None else [proposal]

    return [(Leader, "_propose", propose)]


@breaks("replication.in-sync-has-committed", "controller.stale-requests-ignored")
def lets_an_earlier_life_in() -> Patches:
    """As before KIP-903: a member is a node, whatever became of it since it reported."""
    return [(deciding_in_sync, "_check_member", lambda draft, state, node_id, node_epoch: None)]


@breaks("replication.last-replica-leads", "controller.unclean-election-explicit")
def elects_anybody() -> Patches:
    chosen = moving._chosen

    def choose(drafts: list[PartitionState], *arguments: Any) -> Any:
        leader = chosen(drafts, *arguments)
        circumstances = arguments[-1]
        return leader if leader != NO_NODE else next((each for each in drafts[0].replicas if circumstances.is_live(each)), NO_NODE)

    return [(moving, "_chosen", choose)]


VARIANTS: dict[str, Callable[[], Patches]] = {
    variant.__name__.replace("_", "-"): variant
    for variant in (
        counts_what_is_not_flushed,
        reports_before_it_agrees,
        believes_its_whole_log,
        tells_its_end_at_once,
        commits_with_too_few,
        lets_a_flush_vouch_after_a_cut,
        cuts_by_the_watermark,
        never_cuts,
        cuts_once_and_by_the_leaders_word_alone,
        hears_followers_of_other_leaders,
        serves_followers_of_other_leaders,
        takes_answers_to_other_questions,
        goes_on_in_the_epoch_of_an_earlier_life,
        shrinks_by_itself,
        forgets_whom_it_proposed,
        takes_a_no_for_the_last_word,
        lets_in_before_its_epoch_begins,
        lets_anybody_in,
        lets_an_earlier_life_in,
        elects_anybody,
    )
}
