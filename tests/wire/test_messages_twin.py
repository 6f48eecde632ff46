"""What a queue reads of its records: the right ones, with the right headers, and the same by the compiled loop and its twin."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import pick

from penstock.errors import MalformedInput
from penstock.wire import _messages_py, messages
from penstock.wire.batches import HEADER_BYTES, Record, encode_batch

PREFIX = b"penstock."


@pytest.fixture(scope="module")
def compiled():
    return pytest.importorskip("penstock.wire._messages", reason="needs cc: the compiled loop was not built")


names = st.sampled_from(["penstock.priority", "penstock.", "penstoc", "other", "", "penstock.ü"]) | st.text(max_size=3)
records = st.builds(
    Record,
    key=st.none() | st.binary(max_size=4),
    value=st.none() | st.binary(max_size=100),
    headers=st.lists(st.tuples(names, st.none() | st.binary(max_size=3)), max_size=3).map(tuple),
    timestamp_ms=st.integers(0, 1000),
)
mutations = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=3)


def payload_of(chosen: list[Record]) -> bytes:
    return bytes(encode_batch(chosen)[HEADER_BYTES:])


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except MalformedInput:
        return "malformed"


@pytest.mark.repeats
@settings(max_examples=pick(test=80, slow=300))
@given(
    chosen=st.lists(records, min_size=1, max_size=5), changes=mutations, extra=st.integers(-1, 1), first=st.integers(-1, 5),
    end=st.integers(-1, 6),
)  # fmt: skip
def test_both_walks_say_the_same_of_any_bytes(compiled, *, chosen, changes, extra, first, end):
    payload = bytearray(payload_of(chosen))
    for where, byte in changes:
        payload[where % len(payload)] = byte
    count = len(chosen) + extra
    assert outcome(compiled.marked_records, payload, count, PREFIX) == outcome(_messages_py.marked_records, payload, count, PREFIX)
    assert outcome(compiled.pick_records, payload, count, first, end) == outcome(_messages_py.pick_records, payload, count, first, end)


def test_only_records_with_options_are_told_of_and_only_their_options():
    plain, marked = Record(value=b"a", headers=(("trace", b"1"),)), Record(value=b"b", headers=(("x", b"2"), ("penstock.group", b"g")))
    assert messages.marked_records(payload_of([plain, marked, plain]), 3, PREFIX) == [(1, 0, [("penstock.group", b"g")])]


def test_a_few_records_are_picked_whole():
    chosen = [Record(b"k%d" % at, b"v%d" % at, (("h", None),), timestamp_ms=at) for at in range(4)]
    picked = messages.pick_records(payload_of(chosen), 4, 1, 3)
    assert picked == [(at, at, b"k%d" % at, b"v%d" % at, (("h", None),)) for at in (1, 2)]
