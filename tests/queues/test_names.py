"""Options as headers, message ids and receipt handles: what is written reads back, and garbage is nothing."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queues import headers
from penstock.queues.headers import PRIORITY_DEFAULT, Traits
from penstock.queues.ids import (
    LEASE_MAX,
    OFFSET_MAX,
    PARTITION_MAX,
    message_id,
    read_handle,
    read_handles,
    read_id,
    receipt_handle,
    receipt_handles,
)
from penstock.vocabulary import TopicId

texts = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=128).map(str.encode)
times = st.integers(0, headers.TIME_MS_MAX)
topics = st.binary(min_size=16, max_size=16).map(TopicId)
partitions = st.integers(0, PARTITION_MAX)
offsets = st.integers(0, OFFSET_MAX)


@given(st.builds(Traits, st.integers(0, 9), times, times, texts, texts, times, texts, st.booleans()))
def test_options_read_back_from_their_headers(traits: Traits) -> None:
    traits = traits._replace(is_first=traits.is_first and bool(traits.dedup))  # Without an id there is nothing to be the first of.
    assert headers.parse(headers.write(traits), traits.written_ms) == traits


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (headers.PRIORITY, b"10"), (headers.PRIORITY, b"-1"), (headers.PRIORITY, b"high"), (headers.PRIORITY, b""),
        (headers.PRIORITY, None),
        (headers.DELIVER_AT, b"9" * 15), (headers.DELIVER_AT, b"9" * 5_000), (headers.EXPIRES_AT, b"1.5"),
        (headers.EXPIRES_AT, "²".encode()),
        (headers.GROUP, b"x" * 129), (headers.GROUP, "é".encode()), (headers.DEDUP, b"\xff"), ("other", b"1"),
    ],
)  # fmt: skip
def test_a_header_that_makes_no_sense_is_as_good_as_none(name: str, content: bytes | None) -> None:
    assert headers.parse([(name, content)], 5) == Traits(written_ms=5)


def test_the_last_header_of_a_name_counts() -> None:
    assert headers.parse([(headers.PRIORITY, b"1"), (headers.PRIORITY, b"7")], 0).priority == 7


@pytest.mark.parametrize(
    ("traits", "word"),
    [
        (Traits(priority=10), "priority"), (Traits(priority=-1), "priority"), (Traits(deliver_at=-1), "delivery"),
        (Traits(expires_at=headers.TIME_MS_MAX + 1), "expiry"), (Traits(group=b"x" * 129), "group"),
        (Traits(dedup=b"\xff"), "deduplication"),
    ],
)  # fmt: skip
def test_a_sender_hears_which_option_is_wrong(traits: Traits, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        headers.write(traits)


def test_plain_messages_have_no_headers() -> None:
    assert headers.write(Traits(PRIORITY_DEFAULT, written_ms=5)) == []


@given(topics, partitions, offsets)
def test_a_message_id_says_where_the_message_is_and_is_a_uuid(topic_id: TopicId, partition: int, offset: int) -> None:
    text = message_id(topic_id, partition, offset)
    found = read_id(text)
    assert found is not None and (found.partition, found.offset) == (partition, offset)
    assert found.is_of(topic_id)
    assert str(uuid.UUID(text)) == text and uuid.UUID(text).version == 8


@given(topics, partitions, offsets, st.integers(1, LEASE_MAX), st.text(max_size=20))
def test_a_receipt_handle_reads_back(topic_id: TopicId, partition: int, offset: int, lease: int, group: str) -> None:
    handle = read_handle(receipt_handle(topic_id, partition, offset, lease, group))
    assert handle is not None and (handle.partition, handle.offset, handle.lease) == (partition, offset, lease)
    assert handle.is_of(topic_id, group) and not handle.is_of(topic_id, group + "x")


@given(st.one_of(st.text(max_size=100), st.uuids(version=4).map(str)))
def test_garbage_is_neither(text: str) -> None:
    assert read_id(text) is None
    assert read_handle(text) is None


@given(st.data())
def test_a_handle_with_one_character_changed_is_none(data: st.DataObject) -> None:
    text = receipt_handle(TopicId(bytes(range(16))), 3, 99, 7, "$queue")
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("ABCXYZabcxyz0189-_").filter(lambda each: each != text[at]))
    changed = text[:at] + other + text[at + 1 :]
    assert read_handle(changed) is None or read_handle(changed) == read_handle(text), "unused bits of the last character may differ"


pairs = st.lists(st.tuples(offsets, st.integers(1, LEASE_MAX)), min_size=1, max_size=12)


@given(topics, partitions, st.text(max_size=20), pairs)
def test_many_handles_are_written_and_read_as_one_by_one(
    topic_id: TopicId, partition: int, group: str, pairs: list[tuple[int, int]]
) -> None:
    handles = receipt_handles(topic_id, partition, group, pairs)
    assert [(each.offset, each.lease) for each in map(read_handle, handles) if each is not None and each.is_of(topic_id, group)] == pairs
    assert read_handles(handles, topic_id, group) == (partition, pairs)
    assert read_handles(handles, topic_id, group + "x") is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.text("Az09-_=+ é", max_size=3)), min_size=1, max_size=4), pairs)
def test_whatever_many_at_once_read_is_what_one_by_one_reads(changes: list[tuple[int, int, str]], pairs: list[tuple[int, int]]) -> None:
    topic_id, handles = TopicId(bytes(range(16))), list[str]()
    for at, pair in enumerate(pairs):
        text = receipt_handle(topic_id, changes[0][1], *pair, "$queue")
        for which, place, other in changes:
            if which == at:
                text = text[: 20 * place] + other + text[20 * place + len(other) :]
        handles.append(text)
    found, each = read_handles(handles, topic_id, "$queue"), [read_handle(text) for text in handles]
    if found is not None:
        assert [(found[0], *pair) for pair in found[1]] == [(one.partition, one.offset, one.lease) for one in each if one is not None]
