"""The compiled loops over many messages do what their twins in Python do, for whatever they are given."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queues import _many_py
from penstock.queues.commands import ANY_LEASE, Settlement, Verb
from penstock.queues.ids import OFFSET_MAX
from penstock.queues.records import Leased
from penstock.queues.rows import ATTEMPTS_MAX, HEARD, LET_GO, Row, packed
from penstock.queues.states import State

NUMBERS = st.integers(0, (1 << 62) - 1)
OFFSETS = st.integers(0, 12)
LEASES = st.integers(1, 4)
TIMES = st.integers(98, 102)
ROWS = st.dictionaries(
    OFFSETS,
    st.builds(
        lambda state, attempts, flags, lease, when, place, first, taken, who: packed(
            Row(state, attempts, flags, lease, when, place, first, taken, who)
        ),
        st.sampled_from([State.READY.value, State.LEASED.value, State.BURYING.value]),
        st.sampled_from([0, 1, 7, ATTEMPTS_MAX - 1, ATTEMPTS_MAX]),
        st.sampled_from([0, HEARD, LET_GO]),
        LEASES,
        TIMES,
        NUMBERS,
        st.sampled_from([0, 5]),
        TIMES,
        st.binary(max_size=5),
    ),
)
LEASED = st.builds(
    Leased, st.just("$queue"), TIMES, NUMBERS, NUMBERS, st.binary(max_size=64), st.just(b""), st.lists(OFFSETS, unique=True).map(tuple)
)
SETTLEMENTS = st.lists(
    st.builds(
        Settlement,
        OFFSETS,
        st.one_of(LEASES, st.just(ANY_LEASE)),
        st.sampled_from([Verb.DONE, Verb.DONE, Verb.DONE, Verb.RELEASE]),
        st.sampled_from([None, None, None, 0]),
        st.just(""),
        st.just(""),
        st.sampled_from([0, 0, 0, 9]),
    ),
    max_size=4,
)
TOPICS = st.binary(min_size=6, max_size=6)
WORDS = st.integers(0, (1 << 32) - 1)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=!\x00é€ "


@pytest.fixture(scope="module")
def compiled() -> Any:
    return pytest.importorskip("penstock.queues._many", reason="needs cc: the compiled loops were not built")


@given(rows=ROWS, record=LEASED)
def test_leases_are_alike(compiled: Any, rows: dict[int, bytes], record: Leased) -> None:
    others = dict(rows)
    assert compiled.deliveries(rows, record) == _many_py.deliveries(others, record)
    assert all(type(each).__name__ == "Delivery" for each in compiled.deliveries(rows, record))
    assert compiled.lease_rows(rows, record) == _many_py.lease_rows(others, record)
    assert list(rows.items()) == list(others.items())


@given(rows=ROWS, items=SETTLEMENTS, wall_ms=TIMES)
def test_what_is_held_is_alike(compiled: Any, rows: dict[int, bytes], items: list[Settlement], wall_ms: int) -> None:
    assert compiled.held_offsets(rows, tuple(items), wall_ms) == _many_py.held_offsets(rows, tuple(items), wall_ms)


@given(rows=ROWS, start=OFFSETS, count=st.integers(0, 12))
def test_what_is_dropped_is_alike(compiled: Any, rows: dict[int, bytes], start: int, count: int) -> None:
    others = dict(rows)
    assert compiled.drop_rows(rows, start, start + count) == _many_py.drop_rows(others, start, start + count)
    assert rows == others


@given(topic=TOPICS, partition=WORDS, hashed=WORDS, pairs=st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12))
def test_handles_are_alike(compiled: Any, topic: bytes, partition: int, hashed: int, pairs: list[tuple[int, int]]) -> None:
    texts = compiled.write_handles(topic, partition, hashed, pairs)
    assert texts == _many_py.write_handles(topic, partition, hashed, pairs)
    for read in (compiled.read_handles, _many_py.read_handles):
        assert read(texts, topic, hashed) == ((partition if pairs else -1), pairs)
        assert not pairs or read(texts, topic, hashed ^ 1) is None
        assert not pairs or read([*texts, *_many_py.write_handles(topic, partition ^ 1, hashed, pairs)], topic, hashed) is None


@given(prefix=st.text("0123456789abcdef-", min_size=24, max_size=24), offsets=st.lists(st.integers(0, OFFSET_MAX)))
def test_ids_are_alike(compiled: Any, prefix: str, offsets: list[int]) -> None:
    assert compiled.write_ids(prefix, offsets) == _many_py.write_ids(prefix, offsets)


@given(topic=TOPICS, hashed=WORDS, data=st.data())
def test_what_is_no_handle_is_none_to_both(compiled: Any, topic: bytes, hashed: int, data: st.DataObject) -> None:
    text = list(_many_py.write_handles(topic, 3, hashed, [(data.draw(NUMBERS), 1)])[0])
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.sampled_from(LETTERS))
    changed = "".join(text)[: data.draw(st.sampled_from([47, 47, 46, 0]))] + data.draw(st.sampled_from(["", "", "A"]))
    assert compiled.read_handles([changed], topic, hashed) == _many_py.read_handles([changed], topic, hashed)


def test_a_row_that_is_cut_off_is_told(compiled: Any) -> None:
    with pytest.raises(ValueError, match="cut off"):
        compiled.drop_rows({1: b"short"}, 1, 2)
