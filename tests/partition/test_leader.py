"""The leader machine: the watermark, and who hears when."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.partition.leader import (
    AdvanceWatermark,
    Answer,
    InSyncChanged,
    Leader,
    LogFailed,
    MinInSyncChanged,
    ProposeInSync,
    Reached,
    Refuse,
    Resigned,
)

NOW = 0.0
EPOCH = 5
LIFE = 7  # The node epoch of every node, unless a test says otherwise.


def leader(
    *in_sync: int, end: int = 0, durable: int | None = None, watermark: int = 0, replicas: Sequence[int] = (1, 2, 3), min_insync: int = 1
) -> Leader[str]:
    members = in_sync or (1,)
    return Leader(
        1, EPOCH, in_sync=[(node, LIFE) for node in members], replicas=replicas if len(members) > 1 else members, partition_epoch=0,
        own_end=end if durable is None else durable, high_watermark=watermark, epoch_start=end, log_start=0, min_insync=min_insync,
        lag_max_s=10.0, now=NOW,
    )  # fmt: skip


def reached(node: int, end_offset: int, *, life: int = LIFE, epoch: int = EPOCH) -> Reached:
    return Reached(node, end_offset, life, epoch)


def test_a_leader_alone_answers_when_it_has_reached_the_batch() -> None:
    alone = leader()
    assert alone.park(3, "a", needs_all=True)
    assert alone.step(Reached(1, 2), NOW) == [AdvanceWatermark(2)]
    assert alone.step(Reached(1, 3), NOW) == [AdvanceWatermark(3), Answer(("a",))]


def test_those_whose_clients_have_given_up_are_dropped_before_they_are_half_of_all() -> None:
    alone = leader()
    gone: list[str] = []
    for number in range(100):
        alone.park(number + 1, f"gone {number}", needs_all=number % 2 == 0)
        if number % 10 == 0:
            alone.park(number + 1, f"waits {number}", needs_all=True)
        gone.append(f"gone {number}")
        alone.given_up(lambda token, end_offset: token in gone)
        assert alone.parked_count <= 2 * 10 + 1
    effects = alone.step(Reached(1, 100), NOW)
    answered = [token for effect in effects if isinstance(effect, Answer) for token in effect.tokens if token not in gone]
    assert answered == [f"waits {number}" for number in range(0, 100, 10)]


def test_with_followers_the_slowest_in_sync_replica_holds_the_watermark() -> None:
    three = leader(1, 2, 3)
    three.park(5, "all", needs_all=True)
    three.park(5, "self", needs_all=False)
    assert three.step(Reached(1, 5), NOW) == [Answer(("self",))]
    assert three.step(reached(2, 5), NOW) == []
    assert three.step(reached(3, 4), NOW) == [AdvanceWatermark(4)]
    assert three.step(reached(3, 5), NOW) == [AdvanceWatermark(5), Answer(("all",))]


def test_what_is_durable_already_is_not_parked() -> None:
    alone = leader(end=10)
    assert not alone.park(10, "late duplicate", needs_all=True)
    assert alone.park(11, "new", needs_all=True)


def test_a_failed_log_refuses_everybody_who_waits_and_moves_nothing() -> None:
    alone = leader()
    alone.park(1, "a", needs_all=True)
    alone.park(1, "b", needs_all=False)
    assert alone.step(LogFailed("EIO"), NOW) == [Refuse(("a", "b"), "EIO")]
    assert alone.high_watermark == 0
    assert alone.step(LogFailed("EIO"), NOW) == []


def test_a_leader_whose_log_fails_asks_to_be_left_out_if_others_can_lead() -> None:
    three = leader(1, 2, 3)
    assert three.step(LogFailed("EIO"), NOW) == [ProposeInSync(0, ((2, LIFE), (3, LIFE)))]
    assert leader(1).step(LogFailed("EIO"), NOW) == []


def test_who_waits_is_refused_when_another_node_leads() -> None:
    three = leader(1, 2, 3)
    three.park(1, "a", needs_all=True)
    assert three.step(Resigned("node 2 leads"), NOW) == [Refuse(("a",), "node 2 leads")]


def test_a_stranger_moves_nothing() -> None:
    assert leader(1, 2).step(reached(9, 100), NOW) == []


def test_what_a_follower_reached_under_another_leader_does_not_count() -> None:
    two = leader(1, 2)
    two.step(Reached(1, 9), NOW)
    for epoch in (EPOCH - 1, EPOCH + 1):
        assert two.step(reached(2, 9, epoch=epoch), NOW) == []
    assert two.step(reached(2, 9), NOW) == [AdvanceWatermark(9)]


def test_a_new_leader_begins_with_what_it_knew_and_tells_no_end_before_its_own_epoch_is_committed() -> None:
    """Its predecessor may have shown readers a later watermark than this one ever heard of (KIP-207)."""
    new = leader(1, 2, end=10, watermark=4)
    assert (new.high_watermark, new.may_tell_end) == (4, False)
    assert new.step(reached(2, 9), NOW) == [AdvanceWatermark(9)]
    assert not new.may_tell_end
    new.step(reached(2, 10), NOW)
    assert new.may_tell_end


def test_a_new_leader_that_is_alone_in_its_set_knows_at_once() -> None:
    assert leader(1, end=10, watermark=4, durable=8).high_watermark == 8
    assert leader(1, end=10, watermark=4).may_tell_end


def test_a_watermark_past_the_own_log_is_not_believed() -> None:
    """After an election that an operator forced upon a replica that lacks some."""
    assert leader(1, 2, end=10, watermark=12).high_watermark == 10


def test_the_watermark_stands_still_while_the_set_is_too_small() -> None:
    """Otherwise a replica that left before could not be trusted to lead again (KIP-966)."""
    three = leader(1, 2, 3, min_insync=2)
    three.park(5, "a", needs_all=True)
    three.step(Reached(1, 5), NOW)
    assert three.step(InSyncChanged([(1, LIFE)], 1, (1, 2, 3)), NOW) == []
    assert three.step(Reached(1, 6), NOW) == []
    assert three.step(MinInSyncChanged(1), NOW) == [AdvanceWatermark(6), Answer(("a",))]


def test_more_replicas_are_never_asked_for_than_there_are() -> None:
    alone = leader(1, min_insync=2)
    assert alone.step(Reached(1, 5), NOW) == [AdvanceWatermark(5)]


def test_a_smaller_set_releases_what_waited_for_the_one_that_left() -> None:
    three = leader(1, 2, 3)
    three.park(5, "a", needs_all=True)
    three.step(Reached(1, 5), NOW)
    three.step(reached(2, 5), NOW)
    assert three.step(InSyncChanged([(1, LIFE), (2, LIFE)], 1, (1, 2, 3)), NOW) == [AdvanceWatermark(5), Answer(("a",))]


def test_an_older_version_of_the_set_is_passed_over() -> None:
    three = leader(1, 2, 3)
    three.step(InSyncChanged([(1, LIFE), (2, LIFE)], 4, (1, 2, 3)), NOW)
    assert three.step(InSyncChanged([(1, LIFE)], 3, (1, 2, 3)), NOW) == []
    assert (three.in_sync, three.partition_epoch) == ((1, 2), 4)


@pytest.mark.invariant("log.reads-below-watermark")
@given(st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.integers(0, 50)), max_size=60))
def test_the_watermark_never_goes_back_and_is_never_above_a_replica(steps: list[tuple[int, int]]) -> None:
    three, known, before = leader(1, 2, 3), {1: 0, 2: 0, 3: 0}, 0
    for replica, end in steps:
        three.step(reached(replica, end), NOW)
        known[replica] = max(known[replica], end)
        assert before <= three.high_watermark == min(known.values())
        before = three.high_watermark
