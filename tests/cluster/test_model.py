"""Any sequence of commands, faults and late messages: no clean election can lose a committed record. And broken rules are caught."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from cluster.world import NODES, PARTITIONS, QUEUES, World
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from penstock.cluster import controller, drafting, image, in_sync, moving, reassigning, records, registering
from penstock.cluster.commands import ElectionKind
from penstock.cluster.configuring import topic_configured
from penstock.cluster.deciding import Decision
from penstock.cluster.image import PartitionState
from penstock.errors import ErrorCode, Refusal
from penstock.simulator.defects import breaks
from penstock.vocabulary import NO_NODE

pytestmark = pytest.mark.invariant(
    "controller.eligible-has-everything",
    "controller.one-leader-per-epoch",
    "controller.queue-ledger-same-leader",
    "controller.no-eligible-behind-commit",
    "controller.stale-requests-ignored",
    "controller.unclean-stop-and-new-disk",
    "controller.weak-acks-remembered",
    "controller.unclean-election-explicit",
    "controller.reassignment-keeps-copies",
    "controller.snapshot-replays",
    "replication.full-disk-hands-over",
)

NAMES = st.sampled_from(sorted(PARTITIONS))
NODE = st.sampled_from(NODES)
SOME_NODES = st.frozensets(NODE)
SEEDS_FOR_A_BREAK = 500
REPLICAS = st.lists(NODE, min_size=1, max_size=4, unique=True).map(tuple)


class AnyCluster(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(n=NODE)
    def fence(self, n: int) -> None:
        self.world.fence(n)

    @rule(n=NODE)
    def unfence(self, n: int) -> None:
        self.world.unfence(n)

    @rule(n=NODE, cleanly=st.booleans())
    def restart(self, n: int, cleanly: bool) -> None:
        self.world.restart(n, cleanly=cleanly)

    @rule(n=NODE, cleanly=st.booleans())
    def come_back(self, n: int, cleanly: bool) -> None:
        self.world.come_back(n, cleanly=cleanly)

    @rule(n=NODE)
    def change_disk(self, n: int) -> None:
        self.world.change_disk(n)

    @rule()
    def change_controller(self) -> None:
        self.world.change_controller()

    @rule(n=NODE)
    def hear(self, n: int) -> None:
        self.world.hear(n)

    @rule(n=NODE)
    def stop(self, n: int) -> None:
        self.world.stop(n)

    @rule(n=NODE, is_full=st.booleans())
    def report_disk(self, n: int, is_full: bool) -> None:
        self.world.report_disk(n, is_full=is_full)

    @rule(n=NODE)
    def unregister(self, n: int) -> None:
        self.world.unregister(n)

    @rule(name=NAMES)
    def commit(self, name: str) -> None:
        self.world.commit(name)

    @rule(name=NAMES)
    def fail_log(self, name: str) -> None:
        self.world.fail_log(name)

    @rule(name=NAMES, n=NODE)
    def catch_up(self, name: str, n: int) -> None:
        self.world.catch_up(name, n)

    @rule(name=NAMES, members=SOME_NODES)
    def propose(self, name: str, members: frozenset[int]) -> None:
        self.world.propose(name, members)

    @rule(which=st.integers(0, 9), again_later=st.booleans())
    def deliver(self, which: int, again_later: bool) -> None:
        self.world.deliver(which, again_later=again_later)

    @rule(name=NAMES, members=SOME_NODES)
    def change_in_sync(self, name: str, members: frozenset[int]) -> None:
        self.world.change_in_sync(name, members)

    @rule(name=NAMES, kind=st.sampled_from(ElectionKind))
    def elect(self, name: str, kind: ElectionKind) -> None:
        self.world.elect(name, kind)

    @rule(name=NAMES, replicas=REPLICAS | st.none())
    def reassign(self, name: str, replicas: tuple[int, ...] | None) -> None:
        self.world.reassign(name, replicas)

    @rule(name=NAMES, min_insync=st.integers(1, 3))
    def configure(self, name: str, min_insync: int) -> None:
        self.world.configure(name, min_insync)

    @rule(name=NAMES, flush=st.sampled_from(["ack", "os"]))
    def promise(self, name: str, flush: str) -> None:
        self.world.promise(name, flush)

    @rule(name=NAMES, n=NODE)
    def make_again(self, name: str, n: int) -> None:
        self.world.make_again(QUEUES.get(name, name), n)

    @invariant()
    def all_is_well(self) -> None:
        self.world.check_image()


def test_no_clean_election_can_lose_what_was_committed() -> None:
    told = settings(max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(AnyCluster, settings=told)  # type: ignore[no-untyped-call]


def run_seed(seed: int, steps: int = 80, *, fills_disks: bool = False) -> None:
    rng, world, disks = Random(seed), World(is_hasty=True), Random(f"disks {seed}")
    for _ in range(steps):
        world.step(rng)
        if fills_disks and disks.random() < 0.1:
            world.report_disk(disks.choice(NODES), is_full=disks.random() < 0.7)
    world.check_image()


def test_it_holds_for_many_seeds() -> None:
    for seed in range(120):
        run_seed(seed)


def test_it_holds_for_many_seeds_in_which_disks_fill_up() -> None:
    for seed in range(60):
        run_seed(seed, fills_disks=True)


# Stories that chance tells too seldom.


def a_wish_arrives_after_the_set_has_changed(world: World) -> None:
    world.change_in_sync("loose", frozenset({3, 1}))
    world.catch_up("loose", 2)
    world.propose("loose", frozenset({3, 2}))
    world.fence(1)
    world.commit("loose")
    world.deliver(0, again_later=False)


def a_wish_arrives_from_the_life_before(world: World) -> None:
    world.change_in_sync("loose", frozenset({3}))
    world.catch_up("loose", 1)
    world.propose("loose", frozenset({3, 1}))
    world.come_back(3, cleanly=True)
    world.commit("loose")
    world.deliver(0, again_later=False)


def only_who_is_being_added_has_everything(world: World) -> None:
    world.fence(1)
    world.reassign("flushed", (4, 1))
    world.change_in_sync("flushed", frozenset({2, 4}))
    world.commit("flushed")
    world.fence(2)
    world.change_disk(2)
    world.reassign("flushed", None)


STORIES = [a_wish_arrives_after_the_set_has_changed, a_wish_arrives_from_the_life_before, only_who_is_being_added_has_everything]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_it_holds_in_the_story_that(story: Callable[[World], None]) -> None:
    story(World())


# Broken rules: what each forgets, and how it is broken.

Break = Callable[[pytest.MonkeyPatch], None]


@breaks("controller.eligible-has-everything", "controller.no-eligible-behind-commit")
def whoever_leaves_stays_eligible(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moving, "effective_min", lambda least, replicas: 99)


@breaks("controller.unclean-election-explicit")
def anyone_who_is_up_may_lead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(drafting, "Circumstances", lambda nodes, least, _: moving.Circumstances(nodes, least, is_unclean_allowed=True))


@breaks("controller.unclean-stop-and-new-disk")
def an_unclean_stop_is_believed_to_be_clean(patch: pytest.MonkeyPatch) -> None:
    come_back = registering._come_back

    def broken(draft: Any, command: Any, *, has_other_disk: bool) -> None:
        come_back(draft, replace(command, was_stopped_cleanly=True), has_other_disk=has_other_disk)

    patch.setattr(registering, "_come_back", broken)


@breaks("controller.unclean-stop-and-new-disk")
def a_new_disk_is_believed_to_be_the_old_one(patch: pytest.MonkeyPatch) -> None:
    come_back = registering._come_back
    patch.setattr(registering, "_come_back", lambda draft, command, *, has_other_disk: come_back(draft, command, has_other_disk=False))


@breaks("controller.stale-requests-ignored")
def the_life_of_a_member_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    check = in_sync._check_member
    patch.setattr(in_sync, "_check_member", lambda draft, state, n, _: check(draft, state, n, draft.nodes[n].node_epoch))


@breaks("controller.stale-requests-ignored")
def the_life_of_the_leader_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    def broken(draft: Any, command: Any) -> Any:
        me, epoch = command.node_id, draft.image.nodes[command.node_id].node_epoch
        (wish,) = command.wishes
        wish = wish._replace(in_sync=tuple((n, epoch if n == me else known) for n, known in wish.in_sync))
        return in_sync.change_in_sync(draft, replace(command, node_epoch=epoch, wishes=(wish,)))

    patch.setattr(controller, "change_in_sync", broken)


@breaks("controller.eligible-has-everything")
def a_fenced_node_may_join(patch: pytest.MonkeyPatch) -> None:
    def broken(draft: Any, state: Any, n: Any, node_epoch: int) -> None:
        if draft.nodes[n].node_epoch != node_epoch:
            raise Refusal(ErrorCode.INELIGIBLE_REPLICA, "")

    patch.setattr(in_sync, "_check_member", broken)


@breaks("controller.stale-requests-ignored")
def a_wish_of_yesterday_is_taken(patch: pytest.MonkeyPatch) -> None:
    check = in_sync._check_epochs
    patch.setattr(in_sync, "_check_epochs", lambda state, n, wish: check(state, n, wish._replace(partition_epoch=state.partition_epoch)))


@breaks("controller.no-eligible-behind-commit")
def the_least_size_is_lowered_and_the_eligible_stay(patch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, command: Any) -> Any:
        try:
            configured = topic_configured(self.image, self.topic_defaults, command)
        except Refusal as refusal:
            return Decision((), (refusal,))
        return Decision((configured,), (configured,))

    patch.setattr(controller.Controller, "_configure_topic", broken)


def broken_move(patch: pytest.MonkeyPatch, spoil: Callable[[PartitionState, PartitionState], PartitionState]) -> None:
    moved = moving.moved

    def broken(states: Any, wishes: Any, now: Any) -> tuple[PartitionState, ...]:
        return tuple(spoil(before, after) for before, after in zip(states, moved(states, wishes, now), strict=True))

    patch.setattr(drafting, "moved", broken)


@breaks("controller.one-leader-per-epoch")
def a_new_leader_keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    broken_move(patch, lambda before, after: after._replace(leader_epoch=before.leader_epoch))


@breaks("controller.one-leader-per-epoch")
def a_change_keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    broken_move(patch, lambda before, after: after._replace(partition_epoch=before.partition_epoch))


@breaks("controller.eligible-has-everything")
def an_unclean_election_leaves_the_eligible(patch: pytest.MonkeyPatch) -> None:
    def spoil(before: PartitionState, after: PartitionState) -> PartitionState:
        is_unclean = after.leader not in (NO_NODE, *before.in_sync, *before.eligible)
        return after._replace(eligible=before.eligible) if is_unclean else after

    broken_move(patch, spoil)


@breaks("controller.reassignment-keeps-copies")
def a_reassignment_ends_when_the_first_is_in_sync(patch: pytest.MonkeyPatch) -> None:
    def finished(draft: PartitionState) -> PartitionState:
        staying = tuple(n for n in draft.in_sync if n in draft.target)
        return draft._replace(replicas=draft.target, in_sync=staying, adding=(), removing=()) if staying else draft

    patch.setattr(moving, "_finished_if_they_can_be", lambda drafts, _: [finished(draft) for draft in drafts])


@breaks("controller.reassignment-keeps-copies")
def a_reassignment_is_given_up_whoever_has_everything(patch: pytest.MonkeyPatch) -> None:
    def broken(draft: Any, topic: Any, index: int) -> PartitionState:
        state = draft.state(topic, index)
        back = tuple(n for n in state.replicas if n not in state.adding) or state.replicas
        return draft.move(topic, index, moving.Wish(replicas=back, adding=(), removing=()))  # type: ignore[no-any-return]

    patch.setattr(reassigning, "_given_up", broken)


@breaks("controller.weak-acks-remembered")
def a_stronger_promise_is_believed_to_hold_from_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controller, "topic_promises", lambda *_: ())


@breaks("controller.one-leader-per-epoch")
def a_fenced_node_keeps_its_places(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(registering, "_leave_in_sync_sets", lambda draft, n, even_if_last: None)


@breaks("controller.one-leader-per-epoch")
def who_is_back_is_not_elected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(registering, "_has_live", lambda draft, nodes: True)


@breaks("controller.snapshot-replays")
def a_snapshot_forgets_the_eligible(patch: pytest.MonkeyPatch) -> None:
    placement = records.Placement
    patch.setattr(image.records, "Placement", lambda *state: placement(*state[:5]))


@breaks("controller.queue-ledger-same-leader")
def a_queue_and_its_ledger_move_apart(patch: pytest.MonkeyPatch) -> None:
    moved = moving.moved
    patch.setattr(
        drafting, "moved", lambda states, wishes, now: tuple(moved((s,), (w,), now)[0] for s, w in zip(states, wishes, strict=True))
    )


@breaks("controller.queue-ledger-same-leader")
def a_leader_needs_everything_of_the_data_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moving, "in_sync_in_all", lambda states: states[0].in_sync)


@breaks("replication.full-disk-hands-over")
def a_full_disk_leads_as_any_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moving.Circumstances, "may_lead", moving.Circumstances.stays)


@breaks("replication.full-disk-hands-over")
def who_is_back_relieves_no_full_disk(patch: pytest.MonkeyPatch) -> None:
    unfence = registering.unfence

    def broken(draft: Any, command: Any) -> Decision:
        patch.setattr(registering, "_relieve_full_leaders", lambda draft, n: None)
        try:
            return unfence(draft, command)
        finally:
            patch.setattr(registering, "_relieve_full_leaders", relieve)

    relieve = registering._relieve_full_leaders
    patch.setattr(registering, "unfence", broken)


OF_FULL_DISKS: list[Break] = [a_full_disk_leads_as_any_other, who_is_back_relieves_no_full_disk]
BREAKS: list[Break] = [
    a_queue_and_its_ledger_move_apart,
    a_leader_needs_everything_of_the_data_only,
    whoever_leaves_stays_eligible,
    anyone_who_is_up_may_lead,
    an_unclean_stop_is_believed_to_be_clean,
    a_new_disk_is_believed_to_be_the_old_one,
    the_life_of_a_member_is_not_looked_at,
    the_life_of_the_leader_is_not_looked_at,
    a_fenced_node_may_join,
    a_wish_of_yesterday_is_taken,
    the_least_size_is_lowered_and_the_eligible_stay,
    a_new_leader_keeps_the_epoch,
    a_change_keeps_the_epoch,
    an_unclean_election_leaves_the_eligible,
    a_reassignment_ends_when_the_first_is_in_sync,
    a_reassignment_is_given_up_whoever_has_everything,
    a_stronger_promise_is_believed_to_hold_from_ever,
    a_fenced_node_keeps_its_places,
    who_is_back_is_not_elected,
    a_snapshot_forgets_the_eligible,
]


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.__name__)
def test_a_broken_rule_is_caught(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        for story in STORIES:
            story(World(is_hasty=True))
        for seed in range(SEEDS_FOR_A_BREAK):
            run_seed(seed)


@pytest.mark.parametrize("broken", OF_FULL_DISKS, ids=lambda broken: broken.__name__)
def test_a_broken_rule_of_full_disks_is_caught(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError, match="have room"):
        for seed in range(SEEDS_FOR_A_BREAK):
            run_seed(seed, fills_disks=True)
