"""What traffic makes of its figures: expected rates, oddities, heavy keys and the advice about them. No Spark is needed for it."""

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.traffic.expected import NEW_RATE_AFTER, Oddity, expectations
from penstock.pipeline.traffic.skew import BALANCED_MAX, judge, partition_counts
from penstock.wire.murmur2 import partition_of_key


def steady(windows: int, rate: int = 400, seed: int = 1) -> list[int]:
    rng = random.Random(seed)
    return [max(0, round(rng.gauss(rate, rate**0.5))) for _ in range(windows)]


def test_the_noise_of_counting_is_no_oddity() -> None:
    for seed in range(10):
        assert expectations(steady(300, seed=seed))[1] == []
        assert expectations(steady(300, rate=3, seed=seed))[1] == []


def test_a_spike_a_drop_and_a_silence_are_found_where_they_are() -> None:
    counts = steady(100)
    counts[40:43] = [900, 950, 870]
    counts[60] = 200
    counts[80:82] = [0, 0]
    odd = expectations(counts)[1]
    assert [(one.first, one.end, one.oddity) for one in odd] == [(40, 43, Oddity.SPIKE), (60, 61, Oddity.DROP), (80, 82, Oddity.SILENCE)]
    assert odd[0].count == 2_720
    assert 1_100 < odd[0].expected < 1_300, "what was odd before is not learned from"


def test_a_rate_that_lasts_is_the_new_rate() -> None:
    counts = steady(50) + steady(50, rate=1_200)
    odd = expectations(counts)[1]
    assert [(one.first, one.end) for one in odd] == [(50, 50 + NEW_RATE_AFTER)]


def test_a_rate_that_was_given_needs_no_history() -> None:
    expected, odd = expectations([100, 100, 10, 0, 100], given=100.0)
    assert all(one.count == 100.0 for one in expected)
    assert [(one.first, one.oddity) for one in odd] == [(2, Oddity.DROP), (3, Oddity.SILENCE)]


@given(st.lists(st.integers(min_value=0, max_value=10_000), max_size=80))
def test_every_window_is_expected_or_part_of_one_span(counts: list[int]) -> None:
    expected, odd = expectations(counts)
    assert len(expected) == len(counts)
    inside = [number for one in odd for number in range(one.first, one.end)]
    assert len(inside) == len(set(inside))
    for number, (count, wanted) in enumerate(zip(counts, expected, strict=True)):
        differs = wanted.count is not None and not wanted.low <= count <= wanted.high
        assert differs == (number in inside)


def placed(keys: dict[bytes, int], counts: list[int]) -> dict[int, list[int]]:
    loads = {count: [0] * count for count in counts}
    for key, records in keys.items():
        for count in counts:
            loads[count][partition_of_key(key, count)] += records
    return loads


def judged(keys: dict[bytes, int], partitions: int, keyless: int = 0):  # type: ignore[no-untyped-def]
    where = placed(keys, partition_counts(partitions))
    loads = [load + keyless // partitions for load in where[partitions]]
    heaviest = sorted(((key, records, records * 10) for key, records in keys.items()), key=lambda row: -row[1])[:20]
    return judge(loads, heaviest, where, keyless=keyless)


def test_even_keys_need_no_advice() -> None:
    skew = judged({b"c-%d" % number: 10 for number in range(5_000)}, 6)
    assert skew.ratio < BALANCED_MAX
    assert skew.advice.text.startswith("balanced")


def test_one_key_that_is_too_heavy_for_any_partition_is_to_be_salted() -> None:
    keys = {b"c-%d" % number: 10 for number in range(2_000)} | {b"giant": 20_000}
    skew = judged(keys, 6)
    assert skew.advice.partitions is None
    assert skew.heavy[0].key == b"giant"
    assert skew.heavy[0].salt > 1
    assert all(key.salt == 1 for key in skew.heavy[1:])
    # Written as advised, the topic is as balanced as was told.
    salt = skew.heavy[0].salt
    spread = {key: records for key, records in keys.items() if key != b"giant"} | {b"giant#%d" % n: 20_000 // salt for n in range(salt)}
    again = judged(spread, 6)
    assert again.ratio <= BALANCED_MAX
    assert abs(again.ratio - (skew.advice.ratio or 0)) < 0.02


def test_keys_that_met_by_chance_are_parted_by_another_number_of_partitions() -> None:
    together = [key for number in range(400) if partition_of_key(key := b"m-%d" % number, 4) == 1][:3]
    keys = dict.fromkeys(together, 1_000) | {b"c-%d" % number: 4 for number in range(2_000)}
    skew = judged(keys, 4)
    assert skew.ratio > BALANCED_MAX
    assert skew.advice.partitions is not None
    again = judged(keys, skew.advice.partitions)
    assert again.ratio == skew.advice.ratio
    assert again.ratio <= BALANCED_MAX


def test_many_middling_keys_in_one_partition_are_salted_where_no_number_of_partitions_parts_them() -> None:
    together = [key for number in range(400) if partition_of_key(key := b"m-%d" % number, 4) == 1][:12]
    keys = dict.fromkeys(together, 300) | {b"c-%d" % number: 2 for number in range(1_500)}
    where = placed(keys, [4])
    skew = judge(where[4], [(key, 300, 300) for key in together], where)
    assert all(key.salt > 1 for key in skew.heavy)
    assert skew.advice.ratio is not None
    assert skew.advice.ratio <= BALANCED_MAX < skew.ratio


def test_a_writer_with_a_partitioner_of_its_own_is_told_so() -> None:
    keys = {b"c-%d" % number: 10 for number in range(1_000)}
    skew = judge([10_000, 0, 0], [(key, 10, 10) for key in list(keys)[:5]], placed(keys, partition_counts(3)))
    assert "in another way" in skew.advice.text
    assert skew.advice.ratio is not None and skew.advice.ratio <= BALANCED_MAX


def test_an_empty_topic_has_no_skew() -> None:
    assert judge([0, 0], [], {2: [0, 0]}).advice.text == "nothing was written"
