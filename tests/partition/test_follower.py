"""The follower machine: how two logs come to agree, and what is reported when."""

import pytest

from penstock.errors import ErrorCode
from penstock.partition.follower import (
    Append,
    Diverging,
    Fetch,
    Fetched,
    Follower,
    RaiseStart,
    StartOver,
    Truncate,
    Wait,
    diverging_at,
)
from penstock.partition.leader import AdvanceWatermark
from penstock.simulator.replicas.store import Store
from penstock.wire.batches import Record, empty_batch, encode_batch, read_header

EPOCH = 9


def batch(base: int, epoch: int, records: int = 1) -> bytes:
    return bytes(encode_batch([Record(value=b"%d" % epoch)] * records, base_offset=base, leader_epoch=epoch))


def store(*epochs: int, start: int = 0) -> Store:
    """A log of one record for each of these epochs."""
    made = Store()
    made.start_over(start)
    for epoch in epochs:
        one = batch(made.end_offset, epoch)
        made.append(one, read_header(one))
    return made


def answer(
    records: bytes = b"", *, watermark: int = 0, start: int = 0, diverging: Diverging | None = None, code: int = ErrorCode.NONE
) -> Fetched:
    return Fetched(code, watermark, start, diverging, records)


def meet(follower: Follower, log: Store, leader: Store) -> list[tuple[int, int]]:
    """Asks until the leader has nothing to object; where the follower was cut, and to what length."""
    cuts = []
    for _ in range(20):
        asked = follower.next_fetch()
        diverging = diverging_at(leader, asked.offset, asked.last_epoch)
        steps = follower.answered(asked, answer(diverging=diverging))
        if diverging is None:
            return cuts
        (cut,) = steps
        assert isinstance(cut, Truncate)
        log.truncate_to(cut.offset)
        cuts.append((cut.offset, log.end_offset))
    raise AssertionError("they never agree")


def test_it_asks_from_its_end_with_its_last_epoch() -> None:
    assert Follower(EPOCH, store(1, 1, 4), 0).next_fetch() == Fetch(EPOCH, 3, 4)
    assert Follower(EPOCH, store(), 0).next_fetch() == Fetch(EPOCH, 0, -1)


def test_what_comes_is_appended_and_the_watermark_follows_as_far_as_the_log_goes() -> None:
    log = store(1)
    follower = Follower(EPOCH, log, 0)
    steps = follower.answered(follower.next_fetch(), answer(batch(1, 1) + batch(2, EPOCH), watermark=7))
    assert [type(step) for step in steps] == [Append, AdvanceWatermark]
    assert isinstance(steps[0], Append)
    assert [header.base_offset for _, header in steps[0].batches] == [1, 2]
    assert steps[1] == AdvanceWatermark(3)


def test_the_watermark_never_goes_back() -> None:
    """A new leader's lags behind."""
    follower = Follower(EPOCH, store(1, 1, 1), 3)
    assert follower.answered(follower.next_fetch(), answer(watermark=1)) == []
    assert follower.high_watermark == 3


@pytest.mark.parametrize(
    ("mine", "leaders", "kept"),
    [
        ((1, 1, 1), (1, 1, 1), 3),
        ((1, 1, 1), (1, 1), 2),
        ((1, 1, 2, 2), (1, 1, 3), 2),
        ((1, 1, 2, 2), (1, 1, 1, 3), 2),
        ((1, 2, 2, 4, 4), (1, 2, 3, 3, 5), 2),
        ((1, 3, 3, 3), (1, 1, 2, 4), 1),
        ((2, 2), (3, 3), 0),
        ((1, 3, 5), (1, 2, 4, 6), 1),
    ],
)
def test_it_cuts_until_it_agrees_and_no_deeper(mine: tuple[int, ...], leaders: tuple[int, ...], kept: int) -> None:
    log = store(*mine)
    meet(Follower(EPOCH, log, 0), log, store(*leaders))
    assert log.end_offset == kept
    assert mine[:kept] == leaders[:kept]


def test_a_cut_below_the_watermark_is_called_a_loss() -> None:
    log = store(1, 1, 2, 2)
    follower = Follower(EPOCH, log, 3)
    assert follower.answered(follower.next_fetch(), answer(diverging=Diverging(1, 2))) == [Truncate(2, is_loss=True)]
    follower = Follower(EPOCH, log, 2)
    assert follower.answered(follower.next_fetch(), answer(diverging=Diverging(1, 2))) == [Truncate(2, is_loss=False)]


def test_it_starts_over_where_the_leader_begins_later_or_ends_earlier() -> None:
    follower = Follower(EPOCH, store(1, 1), 0)
    assert follower.answered(follower.next_fetch(), answer(code=ErrorCode.OFFSET_OUT_OF_RANGE, start=8)) == [StartOver(8)]
    late = Follower(EPOCH, store(3, 3, start=10), 0)
    assert late.answered(late.next_fetch(), answer(diverging=Diverging(2, 4))) == [StartOver(4)]


def test_it_adopts_the_leaders_start_but_never_past_its_own_end() -> None:
    follower = Follower(EPOCH, store(1, 1, 1), 0)
    assert follower.answered(follower.next_fetch(), answer(start=2)) == [RaiseStart(2)]
    assert follower.answered(follower.next_fetch(), answer(start=9)) == [RaiseStart(3)]


def test_an_answer_to_another_question_is_passed_over() -> None:
    log = store(1)
    follower = Follower(EPOCH, log, 0)
    asked = follower.next_fetch()
    for other in (asked._replace(epoch=EPOCH - 1), asked._replace(offset=0), asked._replace(last_epoch=0)):
        assert follower.answered(other, answer(batch(1, 1))) == []
    assert not follower.is_agreed


def test_a_batch_of_a_later_epoch_than_it_was_asked_for_under_is_refused() -> None:
    follower = Follower(EPOCH, store(1), 0)
    (wait,) = follower.answered(follower.next_fetch(), answer(batch(1, EPOCH + 1)))
    assert isinstance(wait, Wait)
    assert "later than the leader's 9" in wait.reason
    steps = follower.answered(follower.next_fetch(), answer(batch(1, EPOCH) + batch(2, EPOCH + 1)))
    assert isinstance(steps[0], Append)
    assert len(steps[0].batches) == 1


def test_what_does_not_join_or_came_damaged_is_refused() -> None:
    follower = Follower(EPOCH, store(1, 4), 0)
    damaged = bytearray(batch(2, 4))
    damaged[-1] ^= 1
    for records in (batch(2, 3), bytes(damaged)):
        (wait,) = follower.answered(follower.next_fetch(), answer(records))
        assert isinstance(wait, Wait)


def test_an_error_is_waited_out() -> None:
    follower = Follower(EPOCH, store(), 0)
    assert follower.answered(follower.next_fetch(), answer(code=ErrorCode.FENCED_LEADER_EPOCH)) == [
        Wait("the leader answers FENCED_LEADER_EPOCH")
    ]


def test_where_compaction_took_batches_an_empty_one_stands_for_them() -> None:
    log = store(1)
    follower = Follower(EPOCH, log, 0)
    (append,) = follower.answered(follower.next_fetch(), answer(batch(5, 3)))
    assert isinstance(append, Append)
    for content, header in append.batches:
        log.append(content, header)
    assert [(header.base_offset, header.end_offset, header.record_count) for header in log.headers()] == [(0, 1, 1), (1, 5, 0), (5, 6, 1)]
    assert list(log.epochs) == [(1, 0), (3, 1)]


def test_a_batch_that_begins_before_our_end_takes_the_place_of_what_we_have_of_it() -> None:
    log = store(1, 1, 1)
    follower = Follower(EPOCH, log, 0)
    larger = bytes(empty_batch(1, 6, 1))
    assert follower.answered(follower.next_fetch(), answer(larger)) == [Truncate(1, is_loss=False)]
    log.truncate_to(1)
    (append,) = follower.answered(follower.next_fetch(), answer(larger))
    assert isinstance(append, Append)


def test_an_empty_log_begins_with_the_whole_batch_that_the_leaders_start_stands_in() -> None:
    """DeleteRecords moves a start into the middle of a batch."""
    log = store(start=12)
    follower = Follower(EPOCH, log, 0)
    assert follower.answered(follower.next_fetch(), answer(batch(10, 1, records=5), start=12)) == [StartOver(10)]
    log.start_over(10)
    assert follower.next_fetch() == Fetch(EPOCH, 12, -1), "the leader has nothing before its start to tell"
    append, raise_start = follower.answered(follower.next_fetch(), answer(batch(10, 1, records=5), start=12))
    assert isinstance(append, Append)
    for content, header in append.batches:
        log.append(content, header)
    assert raise_start == RaiseStart(12)
    assert follower.next_fetch() == Fetch(EPOCH, 15, 1)


def test_nothing_is_reported_before_the_leader_has_agreed() -> None:
    """What lies here may be something that this leader never had."""
    log = store(1, 1, 2)
    follower = Follower(EPOCH, log, 0)
    assert follower.report(3) is None
    meet(follower, log, store(1, 1, 3))
    assert follower.report(2) == (2, 0)


def test_a_report_is_news_once_unless_it_may_have_been_lost() -> None:
    follower = Follower(EPOCH, store(1, 1), 0)
    follower.answered(follower.next_fetch(), answer())
    assert [follower.report(1), follower.report(1), follower.report(2)] == [(1, 0), None, (2, 0)]
    follower.report_again()
    assert follower.report(2) == (2, 0)


def test_a_start_that_has_moved_is_reported() -> None:
    log = store(1, 1)
    follower = Follower(EPOCH, log, 0)
    follower.answered(follower.next_fetch(), answer())
    assert follower.report(2) == (2, 0)
    log.raise_start(1)
    assert [follower.report(2), follower.report(2)] == [(2, 1), None]


def test_a_leader_whose_retention_took_the_followers_epoch_tells_where_its_own_begin() -> None:
    leader = store(5, 5, start=100)
    assert diverging_at(leader, 150, 3) == Diverging(3, 100)
    assert diverging_at(leader, 100, 3) is None
    assert diverging_at(leader, 100, -1) is None
