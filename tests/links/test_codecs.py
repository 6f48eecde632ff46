"""What is said between nodes comes back from its bytes as it was, and other bytes are refused."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.messages import Append, AppendReply, Chunk, ChunkReply, Knock, Message, TakeOver, VoteReply, VoteRequest
from penstock.consensus.nouns import DirectoryId, Entry, Kind, Replica, Term
from penstock.consensus.voters import Voters
from penstock.errors import MalformedInput
from penstock.links import raft_messages, replica_fetch
from penstock.links.replica_fetch import Reached, ReachedRow, Reply, Request, Row, Verdict, Wish
from penstock.vocabulary import NodeId, Offset

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
requests = st.builds(Request, longs, sizes, longs, sizes, sizes, sizes, wishes, dropped)
codes = st.integers(-(2**15), 2**15 - 1)
rows = st.lists(st.builds(Row, ids, ints, codes, longs, longs, ints, longs, st.binary(max_size=50)), max_size=5)
reached = st.builds(Reached, longs, st.lists(st.builds(ReachedRow, ids, ints, ints, longs), max_size=5))


@given(messages)
def test_a_message_between_replicas_comes_back_as_it_was(message: Message) -> None:
    again = raft_messages.decode(memoryview(raft_messages.encode(message)))
    assert again == message
    assert type(again) is type(message)


@given(messages, st.data())
def test_a_message_between_replicas_that_is_cut_or_longer_is_refused(message: Message, data: st.DataObject) -> None:
    body = raft_messages.encode(message)
    content_bytes = len(message.content) if isinstance(message, Chunk) else 0  # A chunk is as long as it is.
    cut = data.draw(st.integers(0, len(body) - content_bytes - 1))
    with pytest.raises(MalformedInput):
        raft_messages.decode(memoryview(body[:cut]))
    if not isinstance(message, Chunk):
        with pytest.raises(MalformedInput):
            raft_messages.decode(memoryview(body + b"\0"))


@given(st.binary(max_size=200), st.integers(0, 9))
def test_any_bytes_are_a_message_between_replicas_or_malformed(noise: bytes, number: int) -> None:
    for body in (noise, bytes([number]) + noise):
        try:
            message = raft_messages.decode(memoryview(body))
        except MalformedInput:
            continue
        assert raft_messages.decode(memoryview(raft_messages.encode(message))) == message


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_it_is_believed() -> None:
    sender = Replica(NodeId(1), DirectoryId(bytes(16)))
    empty = raft_messages.encode(Append(sender, Term(1), Offset(0), Term(0), (), Offset(0), 0))
    with pytest.raises(MalformedInput, match="more entries than bytes"):
        raft_messages.decode(memoryview(empty[:-4] + b"\xff\xff\xff\xff"))
    head = SnapshotHead(Offset(1), Term(1), Voters(), 0)
    bare = raft_messages.encode(Chunk(sender, Term(1), head, 0, b"", 0))
    with pytest.raises(MalformedInput, match="voters are cut off"):
        raft_messages.decode(memoryview(bare[:-4] + b"\xff\xff\xff\xff"))
    for decode in (replica_fetch.decode_request, replica_fetch.decode_reply, replica_fetch.decode_reached):
        with pytest.raises(MalformedInput):
            decode(memoryview(b"\0" + b"\xff" * 39))


def test_a_snapshot_in_which_a_node_votes_twice_is_malformed_and_no_broken_promise() -> None:
    sender = Replica(NodeId(1), DirectoryId(bytes(16)))
    twice = Voters((Replica(NodeId(1), DirectoryId(bytes(16))), Replica(NodeId(2), DirectoryId(bytes(16)))))
    body = raft_messages.encode(Chunk(sender, Term(1), SnapshotHead(Offset(1), Term(1), twice, 0), 0, b"", 0))
    with pytest.raises(MalformedInput, match="votes once"):
        raft_messages.decode(memoryview(body[:-20] + NodeId(1).to_bytes(4, "big") + body[-16:]))


@given(requests)
def test_a_replicas_question_comes_back_as_it_was(request: Request) -> None:
    assert replica_fetch.decode_request(memoryview(replica_fetch.encode_request(request))) == request


@given(rows, st.sampled_from(Verdict))
def test_a_reply_comes_back_as_it_was(some: list[Row], verdict: Verdict) -> None:
    body = memoryview(b"".join(replica_fetch.encode_reply(some, verdict)))
    assert replica_fetch.decode_reply(body) == Reply(verdict, some)


@given(reached)
def test_what_was_reached_comes_back_as_it_was(report: Reached) -> None:
    assert replica_fetch.decode_reached(memoryview(replica_fetch.encode_reached(report))) == report


def test_records_are_copied_on_neither_side() -> None:
    records = [bytearray(b"first"), memoryview(bytearray(b"second"))]
    some = [Row(bytes(16), number, 0, 9, 0, -1, -1, each) for number, each in enumerate(records)]
    pieces = replica_fetch.encode_reply(some)
    assert pieces[1] is records[0]
    assert pieces[2] is records[1]
    frame = bytearray(b"".join(pieces))
    read = replica_fetch.decode_reply(memoryview(frame)).rows
    frame[-1:] = b"D"
    assert bytes(read[1].records) == b"seconD"


@given(
    st.one_of(
        requests.map(lambda request: (replica_fetch.decode_request, replica_fetch.encode_request(request))),
        rows.map(lambda some: (replica_fetch.decode_reply, b"".join(replica_fetch.encode_reply(some)))),
        reached.map(lambda report: (replica_fetch.decode_reached, replica_fetch.encode_reached(report))),
    ),
    st.data(),
)
def test_what_replicas_say_is_refused_when_it_is_cut_or_longer(
    case: tuple[Callable[[memoryview], object], bytes], data: st.DataObject
) -> None:
    decode, body = case
    with pytest.raises(MalformedInput):
        decode(memoryview(body[: data.draw(st.integers(0, len(body) - 1))]))
    with pytest.raises(MalformedInput):
        decode(memoryview(body + b"\0"))
