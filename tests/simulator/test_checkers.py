"""A good history passes every checker; a history that breaks one promise is caught by the rule of that promise."""

from collections.abc import Callable

import pytest

from penstock.simulator.checkers import RULES, VIOLATIONS_PER_RULE_MAX, check
from penstock.simulator.diary import Diary, Read
from penstock.simulator.group_rules import GROUP_RULES
from penstock.simulator.membership_rules import MEMBERSHIP_RULES
from penstock.simulator.queue_rules import QUEUE_RULES
from penstock.simulator.share_rules import SHARE_RULES
from penstock.simulator.transaction_rules import TRANSACTION_RULES
from penstock.vocabulary import TopicPartition

P = TopicPartition("orders", 0)


def good_history(count: int = 10) -> Diary:
    """Two producers take turns; one attempt is unknown but in the log, one unknown and not, one refused; a reader follows."""
    diary = Diary()
    for offset in range(count):
        began = float(offset)
        attempt = diary.attempt(P, f"p{offset % 2}", b"v%d" % offset, began)
        if offset != 5:
            attempt.acknowledged(offset, began + 0.5)
        diary.read(P, "r", offset, b"v%d" % offset, began + 0.6)
        diary.watermark(P, offset + 1, began=began + 0.7, ended=began + 0.8)
    diary.attempt(P, "p0", b"unknown", float(count))
    diary.attempt(P, "p0", b"refused", float(count)).failed(count + 0.5)
    diary.final(P, start_offset=0, end_offset=count, records=[(offset, b"v%d" % offset) for offset in range(count)])
    return diary


def broken_by(diary: Diary) -> set[str]:
    return {violation.rule for violation in check(diary)}


def test_a_good_history_has_no_violations() -> None:
    assert check(good_history()) == []


def another_value_at_an_offset(diary: Diary) -> None:
    diary.attempt(P, "p9", b"other", 0.0)
    diary.read(P, "r2", 3, b"other", 5.0)


def an_acknowledged_record_is_gone(diary: Diary) -> None:
    final = diary.finals[P]
    final.records.pop()
    final.end_offset -= 1


def an_acknowledged_record_was_replaced(diary: Diary) -> None:
    diary.finals[P].records[4] = (4, b"unknown")


def a_hole_in_the_log(diary: Diary) -> None:
    del diary.finals[P].records[5]  # The one whose fate was unknown: only the hole is wrong.


def an_end_that_cannot_be_read(diary: Diary) -> None:
    diary.finals[P].end_offset += 1


def a_value_twice(diary: Diary) -> None:
    diary.finals[P].records.append((10, b"v5"))
    diary.finals[P].end_offset += 1


def a_value_read_at_two_offsets(diary: Diary) -> None:
    diary.read(P, "r2", 10, b"v5", 20.0)


def two_of_one_producer_swapped(diary: Diary) -> None:
    diary.attempt(P, "p7", b"first", 20.0)
    diary.attempt(P, "p7", b"second", 20.0)
    diary.finals[P].records += [(10, b"second"), (11, b"first")]
    diary.finals[P].end_offset += 2


def a_reader_that_skips(diary: Diary) -> None:
    diary.read(P, "r2", 1, b"v1", 20.0)
    diary.read(P, "r2", 3, b"v3", 20.0)


def a_reader_that_goes_back(diary: Diary) -> None:
    diary.read(P, "r", 9, b"v9", 20.0)


def a_reader_that_ignores_its_seek(diary: Diary) -> None:
    diary.seek(P, "r", 4)
    diary.read(P, "r", 5, b"v5", 20.0)


def a_watermark_that_goes_back(diary: Diary) -> None:
    diary.watermark(P, 9, began=20.0, ended=21.0)


def a_watermark_below_what_was_acknowledged(diary: Diary) -> None:
    diary.watermarks.clear()
    diary.moves.clear()
    diary.watermark(P, 9, began=9.55, ended=9.6)


def a_watermark_that_goes_back_for_one_reader(diary: Diary) -> None:
    diary.watermark(P, 7, began=20.0, ended=21.0, reader="asker")
    diary.watermark(P, 6, began=22.0, ended=23.0, reader="asker")


def a_value_that_nobody_wrote(diary: Diary) -> None:
    diary.finals[P].records.append((10, b"phantom"))
    diary.finals[P].end_offset += 1


def a_value_read_before_it_was_written(diary: Diary) -> None:
    diary.moves.insert(0, Read(P, "r3", 9, b"v9", 1.0))


def a_refused_value(diary: Diary) -> None:
    diary.finals[P].records.append((10, b"refused"))
    diary.finals[P].end_offset += 1


def a_later_record_at_a_lower_offset(diary: Diary) -> None:
    diary.attempts[5].acknowledged(5, 5.1)
    diary.attempts[5].began = 8.0
    diary.attempts[5].ended = 8.2


def a_weak_partition_with_a_hole(diary: Diary) -> None:
    """Another record stands where one was acknowledged that is gone, and what came after that one is still there."""
    diary.weak[P], diary.cuts = "flush=os", [20.0]
    diary.attempt(P, "p9", b"other", 21.0)
    diary.finals[P].records[4] = (4, b"other")


def a_weak_partition_that_lost_without_a_cut(diary: Diary) -> None:
    diary.weak[P], diary.cuts = "flush=os", [4.0]  # Too early to excuse what was acknowledged later.
    diary.finals[P].records[6:] = [(6, b"v7"), (7, b"v8"), (8, b"v9")]
    diary.finals[P].end_offset = 9


def compacted(diary: Diary) -> None:
    """The log has the keys a and b in turns, and b is deleted at the end. Only the last records are left."""
    diary.compacted[P] = 5.0
    for attempt in diary.attempts:
        attempt.key = b"b" if attempt.producer == "p1" else b"a"
    diary.attempts[9].is_tombstone = True
    del diary.finals[P].records[:8]
    diary.finals[P].at = 12.0


def the_last_of_a_key_is_gone(diary: Diary) -> None:
    compacted(diary)
    diary.finals[P].records = [(9, b"v9")]


def an_older_record_of_a_key_is_left(diary: Diary) -> None:
    compacted(diary)
    diary.finals[P].records = [(6, b"v6"), (9, b"v9")]


def a_deleted_key_that_is_back(diary: Diary) -> None:
    compacted(diary)
    diary.finals[P].records = [(7, b"v7"), (8, b"v8")]


def a_tombstone_that_went_too_early(diary: Diary) -> None:
    compacted(diary)
    diary.finals[P].records = [(8, b"v8")]


BROKEN: list[tuple[Callable[[Diary], None], str]] = [
    (another_value_at_an_offset, "one offset, one value"),
    (an_acknowledged_record_is_gone, "acknowledged is kept"),
    (an_acknowledged_record_was_replaced, "acknowledged is kept"),
    (a_hole_in_the_log, "offsets are dense"),
    (an_end_that_cannot_be_read, "offsets are dense"),
    (a_value_twice, "idempotent is once"),
    (a_value_read_at_two_offsets, "idempotent is once"),
    (two_of_one_producer_swapped, "a producer's order is kept"),
    (a_reader_that_skips, "reads go on"),
    (a_reader_that_goes_back, "reads go on"),
    (a_reader_that_ignores_its_seek, "reads go on"),
    (a_watermark_that_goes_back, "the watermark never goes back"),
    (a_watermark_that_goes_back_for_one_reader, "the watermark never goes back"),
    (a_watermark_below_what_was_acknowledged, "the watermark never goes back"),
    (a_value_that_nobody_wrote, "nothing comes from nowhere"),
    (a_value_read_before_it_was_written, "nothing comes from nowhere"),
    (a_refused_value, "nothing comes from nowhere"),
    (a_later_record_at_a_lower_offset, "acknowledged in order of time"),
    (a_weak_partition_with_a_hole, "weak loses a suffix"),
    (a_weak_partition_that_lost_without_a_cut, "weak loses a suffix"),
    (the_last_of_a_key_is_gone, "the last of each key is kept"),
    (an_older_record_of_a_key_is_left, "the last of each key is kept"),
    (a_deleted_key_that_is_back, "the last of each key is kept"),
    (a_tombstone_that_went_too_early, "tombstones are seen in time"),
]


@pytest.mark.parametrize(("breaks", "rule"), BROKEN, ids=[breaks.__name__ for breaks, _ in BROKEN])
def test_a_broken_promise_is_caught(breaks: Callable[[Diary], None], rule: str) -> None:
    diary = good_history()
    breaks(diary)
    assert rule in broken_by(diary)


def test_every_rule_has_a_history_that_breaks_it() -> None:
    elsewhere = {*GROUP_RULES, *MEMBERSHIP_RULES, *TRANSACTION_RULES, *QUEUE_RULES, *SHARE_RULES}  # Each in a file of its own.
    assert {rule for _, rule in BROKEN} == set(RULES) - elsewhere


def test_what_is_allowed_is_not_called_broken() -> None:
    diary = good_history()
    diary.finals[P].records.append((10, b"unknown"))  # An attempt that nobody heard of again.
    diary.attempt(P, "old", b"twice", 11.0, is_idempotent=False)  # A producer without idempotence sends again.
    diary.finals[P].records += [(11, b"twice"), (12, b"twice")]
    diary.finals[P].end_offset = 13
    diary.seek(P, "r", 2)
    diary.read(P, "r", 2, b"v2", 30.0)
    diary.watermark(P, 4, began=3.0, ended=30.0)  # Asked early, answered late: it may be old.
    assert check(diary) == []


def test_compaction_leaves_gaps_without_blame_and_takes_tombstones_in_their_time() -> None:
    diary = good_history()
    compacted(diary)
    diary.seek(P, "r", 0)
    diary.read(P, "r", 8, b"v8", 12.0)
    assert check(diary) == []
    diary.finals[P].at = 20.0
    diary.finals[P].records.pop()
    assert check(diary) == []
    diary.attempt(P, "p0", b"unknown tombstone", 11.0, is_idempotent=False, key=b"a", is_tombstone=True)
    diary.finals[P].records.clear()
    assert check(diary) == [], "it may have been stored, and be gone again"


def test_retention_takes_the_oldest_without_blame() -> None:
    diary = good_history()
    diary.finals[P].start_offset = 4
    del diary.finals[P].records[:4]
    assert check(diary) == []


def test_weak_partitions_may_lose_and_reuse_what_was_not_flushed() -> None:
    diary = good_history()
    diary.weak[P], diary.cuts = "flush=os", [15.0]
    diary.finals[P].records[7:] = [(7, b"after the cut")]
    diary.attempt(P, "p2", b"after the cut", 20.0).acknowledged(7, 20.5)
    diary.finals[P].end_offset = 8
    diary.watermark(P, 8, began=30.0, ended=31.0)
    assert check(diary) == []
    diary.finals[P].records.append((8, b"after the cut"))
    diary.finals[P].end_offset = 9
    assert broken_by(diary) == {"idempotent is once"}


def test_of_a_damaged_partition_records_may_be_refused_but_never_replaced() -> None:
    diary = good_history()
    diary.damaged[P] = "a byte"
    final = diary.finals[P]
    del final.records[3:6]
    final.end_offset = 5  # The node says no more than it knows.
    diary.watermark(P, 5, began=30.0, ended=31.0)
    assert check(diary) == []
    final.records.insert(3, (3, b"unknown"))
    assert "acknowledged is kept" in broken_by(diary)


def test_a_run_that_is_broken_everywhere_gives_a_short_report() -> None:
    diary = good_history(1_000)
    diary.finals[P].records.clear()
    diary.finals[P].end_offset = 0
    violations = check(diary)
    assert len(violations) == VIOLATIONS_PER_RULE_MAX
    assert str(violations[0]).startswith("acknowledged is kept, orders-0: b'v0' was acknowledged at offset 0")


def test_a_reader_is_held_to_what_it_was_told_itself() -> None:
    """A leader of the past may tell it of less than others know."""
    diary = good_history()
    diary.watermark(P, 6, began=20.0, ended=21.0, reader="asker")
    diary.watermark(P, 7, began=22.0, ended=23.0, reader="asker")
    assert check(diary) == []
