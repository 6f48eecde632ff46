"""What is said between nodes comes back from its bytes as it was, and other bytes are refused."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.messages import Append, AppendReply, Chunk, ChunkReply, Knock, Message, TakeOver, VoteReply, VoteRequest
from penstock.consensus.nouns import DirectoryId, Entry, Kind, Replica, Term
from penstock.consensus.voters import Voters
from penstock.errors import MalformedInput
from penstock.links.raft_messages import read_message, write_message
from penstock.links.replica_fetch import (
    Answer,
    Fetched,
    ReplicaFetch,
    Wish,
    read_fetch,
    read_fetched,
    read_reached,
    write_fetch,
    write_fetched,
    write_reached,
)
from penstock.vocabulary import NodeId, Offset, TopicId

ids = st.binary(min_size=16, max_size=16)
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
sizes = st.integers(0, 2**32 - 1)
counts = st.integers(0, 2**63 - 1)
offsets = counts.map(Offset)
terms = counts.map(Term)
replicas = st.builds(Replica, ints.map(NodeId), ids.map(DirectoryId))
voters = st.lists(replicas, max_size=7, unique_by=lambda replica: replica.node).map(lambda some: Voters(tuple(some)))
entries = st.lists(st.builds(Entry, terms, st.sampled_from(Kind), st.binary(max_size=50)), max_size=5).map(tuple)
heads = st.builds(SnapshotHead, offsets, terms, voters, counts)
messages = st.one_of(
    st.builds(VoteRequest, replicas, terms, replicas, st.booleans(), st.booleans(), terms, offsets),
    st.builds(VoteReply, replicas, terms, terms, st.booleans(), st.booleans()),
    st.builds(Append, replicas, terms, offsets, terms, entries, offsets, counts),
    st.builds(AppendReply, replicas, terms, st.booleans(), offsets, offsets, terms, counts),
    st.builds(Chunk, replicas, terms, heads, counts, st.binary(max_size=50), counts),
    st.builds(ChunkReply, replicas, terms, offsets, counts, counts),
    st.builds(TakeOver, replicas, terms),
    st.builds(Knock, replicas, terms),
)
wishes = st.lists(st.builds(Wish, ids, ints, ints, longs, ints), max_size=5)
dropped = st.lists(st.tuples(ids, ints), max_size=5)
fetches = st.builds(ReplicaFetch, longs, st.booleans(), sizes, sizes, sizes, wishes, dropped)
codes = st.integers(-(2**15), 2**15 - 1)
diverging = st.none() | st.tuples(st.integers(0, 2**31 - 1), longs)
rows = st.lists(st.builds(Fetched, ids, ints, ints, longs, ints, codes, longs, longs, diverging, st.binary(max_size=50)), max_size=5)
reached = st.lists(st.tuples(ids, ints, ints, longs, longs), max_size=5)


def written(fetch: ReplicaFetch) -> bytes:
    return write_fetch(
        fetch.session, fetch.wishes, fetch.dropped,
        is_full=fetch.is_full, bytes_max=fetch.bytes_max, partition_bytes_max=fetch.partition_bytes_max, wait_ms=fetch.wait_ms,
    )  # fmt: skip


@given(messages)
def test_a_message_between_replicas_comes_back_as_it_was(message: Message) -> None:
    again = read_message(memoryview(write_message(message)))
    assert again == message
    assert type(again) is type(message)


@given(messages, st.data())
def test_a_message_between_replicas_that_is_cut_or_longer_is_refused(message: Message, data: st.DataObject) -> None:
    body = write_message(message)
    content_bytes = len(message.content) if isinstance(message, Chunk) else 0  # A chunk is as long as it is.
    cut = data.draw(st.integers(0, len(body) - content_bytes - 1))
    with pytest.raises(MalformedInput):
        read_message(memoryview(body[:cut]))
    if not isinstance(message, Chunk):
        with pytest.raises(MalformedInput):
            read_message(memoryview(body + b"\0"))


@given(st.binary(max_size=200), st.integers(0, 9))
def test_any_bytes_are_a_message_between_replicas_or_malformed(noise: bytes, number: int) -> None:
    for body in (noise, bytes([number]) + noise):
        try:
            message = read_message(memoryview(body))
        except MalformedInput:
            continue
        assert read_message(memoryview(write_message(message))) == message


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_it_is_believed() -> None:
    sender = Replica(NodeId(1), DirectoryId(bytes(16)))
    empty = write_message(Append(sender, Term(1), Offset(0), Term(0), (), Offset(0), 0))
    with pytest.raises(MalformedInput, match="more entries than bytes"):
        read_message(memoryview(empty[:-4] + b"\xff\xff\xff\xff"))
    head = SnapshotHead(Offset(1), Term(1), Voters(), 0)
    bare = write_message(Chunk(sender, Term(1), head, 0, b"", 0))
    with pytest.raises(MalformedInput, match="voters are cut off"):
        read_message(memoryview(bare[:-4] + b"\xff\xff\xff\xff"))
    for read in (read_fetch, read_fetched, read_reached):
        with pytest.raises(MalformedInput, match="rows"):
            read(memoryview(b"\xff" * 40))


def test_a_snapshot_in_which_a_node_votes_twice_is_malformed_and_no_broken_promise() -> None:
    sender = Replica(NodeId(1), DirectoryId(bytes(16)))
    twice = Voters((Replica(NodeId(1), DirectoryId(bytes(16))), Replica(NodeId(2), DirectoryId(bytes(16)))))
    body = write_message(Chunk(sender, Term(1), SnapshotHead(Offset(1), Term(1), twice, 0), 0, b"", 0))
    with pytest.raises(MalformedInput, match="votes once"):
        read_message(memoryview(body[:-20] + NodeId(1).to_bytes(4, "big") + body[-16:]))


@given(fetches)
def test_a_replicas_question_comes_back_as_it_was(fetch: ReplicaFetch) -> None:
    assert read_fetch(memoryview(written(fetch))) == fetch


@given(longs, rows, st.booleans())
def test_an_answer_comes_back_as_it_was(session: int, some: list[Fetched], is_unknown: bool) -> None:
    body = memoryview(b"".join(write_fetched(session, some, is_unknown=is_unknown)))
    assert read_fetched(body) == Answer(session, is_unknown, some)


@given(longs, reached)
def test_what_was_reached_comes_back_as_it_was(node_epoch: int, some: list[Any]) -> None:
    again, rows = read_reached(memoryview(write_reached(node_epoch, some)))
    assert (again, list(rows)) == (node_epoch, some)


def test_records_are_copied_on_neither_side() -> None:
    records = [bytearray(b"first"), memoryview(bytearray(b"second"))]
    wish = (1, Offset(7), 1)
    some = [Fetched(TopicId(bytes(16)), number, *wish, 0, Offset(9), Offset(0), None, each) for number, each in enumerate(records)]
    pieces = write_fetched(1, some)
    assert pieces[1] is records[0]
    assert pieces[2] is records[1]
    frame = bytearray(b"".join(pieces))
    read = read_fetched(memoryview(frame)).rows
    frame[-1:] = b"D"
    assert bytes(read[1].records) == b"seconD"


@given(
    st.one_of(
        fetches.map(lambda fetch: (read_fetch, written(fetch))),
        rows.map(lambda some: (read_fetched, b"".join(write_fetched(7, some)))),
        reached.map(lambda some: (read_reached, write_reached(7, some))),
    ),
    st.data(),
)
def test_what_replicas_say_is_refused_when_it_is_cut_or_longer(
    case: tuple[Callable[[memoryview], object], bytes], data: st.DataObject
) -> None:
    read, body = case
    with pytest.raises(MalformedInput):
        read(memoryview(body[: data.draw(st.integers(0, len(body) - 1))]))
    with pytest.raises(MalformedInput):
        read(memoryview(body + b"\0"))
