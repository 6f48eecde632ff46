"""Which stored batches go with which lent records, and how deliveries become ranges."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import pick as examples

from penstock.broker.shares.acknowledging import AcknowledgeType, runs_of
from penstock.broker.shares.acquiring import ranges
from penstock.broker.shares.batches import pick
from penstock.queues.replies import Delivery
from penstock.wire.batches import Record, encode_batch, read_header
from penstock.wire.share_requests import Acknowledged

EXAMPLES = examples(test=50, slow=100)

kinds = st.lists(st.sampled_from(AcknowledgeType), min_size=1, max_size=5)


@pytest.mark.repeats
@settings(max_examples=EXAMPLES)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=8), st.data())
def test_every_batch_with_a_lent_record_is_picked_and_no_other(shape: list[tuple[int, int]], data: st.DataObject) -> None:
    """`shape`: records of each batch, and offsets that compaction left out before it."""
    content, spans, at = b"", [], 0
    for count, gap in shape:
        batch = bytes(encode_batch([Record(value=b"v")] * count, base_offset=at + gap))
        spans.append((at + gap, at + gap + count, batch))
        content += batch
        at += gap + count
    wanted = sorted(data.draw(st.sets(st.integers(0, at - 1), min_size=1)))
    gone: list[int] = []
    seen = pick(memoryview(content), wanted, 0, gone)
    assert b"".join(map(bytes, seen.pieces)) == b"".join(
        batch for start, end, batch in spans if any(start <= offset < end for offset in wanted)
    )
    assert gone == [offset for offset in wanted if not any(start <= offset < end for start, end, _ in spans)]
    assert (seen.at, seen.size) == (len(wanted), sum(map(len, seen.pieces)))
    assert all(read_header(bytes(piece)).size <= len(piece) for piece in seen.pieces)


@pytest.mark.repeats
@settings(max_examples=EXAMPLES)
@given(st.dictionaries(st.integers(0, 30), st.integers(1, 3), max_size=20))
def test_ranges_hold_each_delivery_once_with_its_count(found: dict[int, int]) -> None:
    deliveries = [Delivery(offset, count, 1, 0, 0) for offset, count in sorted(found.items())]
    told = ranges(deliveries)
    assert {offset: each.delivery_count for each in told for offset in range(each.first_offset, each.last_offset + 1)} == found
    assert all(
        (one.last_offset + 1, one.delivery_count) != (next_.first_offset, next_.delivery_count) for one, next_ in itertools.pairwise(told)
    )


@pytest.mark.repeats
@settings(max_examples=EXAMPLES)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.sampled_from(AcknowledgeType), min_size=1, max_size=5), st.booleans()), max_size=6)
)
def test_acknowledgements_become_runs_of_one_type(said: list[tuple[int, list[AcknowledgeType], bool]]) -> None:
    acknowledged: list[Acknowledged] = []
    meant: dict[int, AcknowledgeType] = {}
    at = 0
    for gap, types, is_one in said:
        at += gap
        each = [types[0]] * len(types) if is_one else types
        meant |= {at + place: kind for place, kind in enumerate(each)}
        acknowledged.append(Acknowledged(at, at + len(types) - 1, bytes(each[:1] if is_one else each)))
        at += len(types)
    runs = list(runs_of(acknowledged))
    assert {offset: kind for start, end, kind in runs for offset in range(start, end)} == meant
    assert all((one[1], one[2]) != (other[0], other[2]) for one, other in itertools.pairwise(runs))
