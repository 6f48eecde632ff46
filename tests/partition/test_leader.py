"""The leader machine: the watermark, and who hears when."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.partition.leader import AdvanceWatermark, Answer, Leader, LogFailed, Reached, Refuse

NOW = 0.0


def leader(*in_sync: int, end: int = 0) -> Leader[str]:
    return Leader(1, 0, in_sync or (1,), end)


def test_a_leader_alone_answers_when_it_has_reached_the_batch() -> None:
    alone = leader()
    assert alone.park(3, "a", needs_all=True)
    assert alone.step(Reached(1, 2), NOW) == [AdvanceWatermark(2)]
    assert alone.step(Reached(1, 3), NOW) == [AdvanceWatermark(3), Answer(("a",))]


def test_with_followers_the_slowest_in_sync_replica_holds_the_watermark() -> None:
    three = leader(1, 2, 3)
    three.park(5, "all", needs_all=True)
    three.park(5, "self", needs_all=False)
    assert three.step(Reached(1, 5), NOW) == [Answer(("self",))]
    assert three.step(Reached(2, 5), NOW) == []
    assert three.step(Reached(3, 4), NOW) == [AdvanceWatermark(4)]
    assert three.step(Reached(3, 5), NOW) == [AdvanceWatermark(5), Answer(("all",))]


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


def test_a_stranger_moves_nothing() -> None:
    assert leader(1, 2).step(Reached(9, 100), NOW) == []


@given(st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.integers(0, 50)), max_size=60))
def test_the_watermark_never_goes_back_and_is_never_above_a_replica(steps: list[tuple[int, int]]) -> None:
    three, reached, before = leader(1, 2, 3), {1: 0, 2: 0, 3: 0}, 0
    for replica, end in steps:
        three.step(Reached(replica, end), NOW)
        reached[replica] = max(reached[replica], end)
        assert before <= three.high_watermark == min(reached.values())
        before = three.high_watermark
