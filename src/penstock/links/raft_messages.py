"""Bytes ⇄ messages between replicas of the metadata log.

Each begins with its number, its sender and the sender's term. Numbers are not negative, entries and voters are counted before they are
read, and a message ends where its last field ends; whatever is otherwise raises `MalformedInput`. What the payload of an entry means is
not looked at.
"""

from struct import Struct
from typing import Any, assert_never

from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.messages import Append, AppendReply, Chunk, ChunkReply, Knock, Message, TakeOver, VoteReply, VoteRequest
from penstock.consensus.nouns import DirectoryId, Entry, Kind, Replica, Term
from penstock.consensus.voters import Voters
from penstock.errors import MalformedInput
from penstock.packed import rows_of
from penstock.vocabulary import NodeId, Offset

_NUMBER_OF = {VoteRequest: 1, VoteReply: 2, Append: 3, AppendReply: 4, Chunk: 5, ChunkReply: 6, TakeOver: 7, Knock: 8}
_KNOWN = {number: kind for kind, number in _NUMBER_OF.items()}

_FRONT = Struct(">Bi16sq")  # number, sender's node and directory, term
_VOTE_REQUEST = Struct(">i16s??qq")  # voter's node and directory, is_trial, is_by_transfer, last_term, end
_VOTE_REPLY = Struct(">q??")  # asked_term, is_trial, is_granted
_APPEND = Struct(">qqqqI")  # first, previous_term, committed_end, round, number of entries
_ENTRY = Struct(">qBI")  # term, kind, bytes of payload
_APPEND_REPLY = Struct(">?qqqq")  # is_accepted, first, end, last_term, round
_CHUNK = Struct(">qqqqqI")  # the snapshot's end, term and size, position, round, number of voters
_VOTER = Struct(">i16s")
_CHUNK_REPLY = Struct(">qqq")  # end, position, round


def write_message(message: Message) -> bytes:
    return _FRONT.pack(_NUMBER_OF[type(message)], *message.sender, message.term) + _body(message)


def read_message(body: memoryview) -> Message:
    number, node, directory, term = _unpacked(_FRONT, body, 0)
    kind = _KNOWN.get(number)
    if kind is None:
        raise MalformedInput(f"there is no message {number} between replicas")
    sender, term = Replica(NodeId(node), DirectoryId(directory)), Term(_not_negative(term))
    at = _FRONT.size
    if kind is Append:
        return _read_append(sender, term, body, at)
    if kind is AppendReply:
        is_accepted, *numbers = _last(_APPEND_REPLY, body, at)
        first, end, last_term, round_number = map(_not_negative, numbers)
        return AppendReply(sender, term, is_accepted, Offset(first), Offset(end), Term(last_term), round_number)
    if kind is VoteRequest:
        voter, voter_directory, is_trial, is_by_transfer, last_term, end = _last(_VOTE_REQUEST, body, at)
        asked = Replica(NodeId(voter), DirectoryId(voter_directory))
        return VoteRequest(sender, term, asked, is_trial, is_by_transfer, Term(_not_negative(last_term)), Offset(_not_negative(end)))
    if kind is VoteReply:
        asked_term, is_trial, is_granted = _last(_VOTE_REPLY, body, at)
        return VoteReply(sender, term, Term(_not_negative(asked_term)), is_trial, is_granted)
    if kind is Chunk:
        return _read_chunk(sender, term, body, at)
    if kind is ChunkReply:
        end, position, round_number = map(_not_negative, _last(_CHUNK_REPLY, body, at))
        return ChunkReply(sender, term, Offset(end), position, round_number)
    _check_end(body, at)
    return TakeOver(sender, term) if kind is TakeOver else Knock(sender, term)


def _body(message: Message) -> bytes:
    match message:
        case Append():
            rows = [_ENTRY.pack(entry.term, entry.kind, len(entry.payload)) + entry.payload for entry in message.entries]
            return _APPEND.pack(message.first, message.previous_term, message.committed_end, message.round, len(rows)) + b"".join(rows)
        case AppendReply():
            return _APPEND_REPLY.pack(message.is_accepted, message.first, message.end, message.last_term, message.round)
        case VoteRequest():
            return _VOTE_REQUEST.pack(*message.voter, message.is_trial, message.is_by_transfer, message.last_term, message.end)
        case VoteReply():
            return _VOTE_REPLY.pack(message.asked_term, message.is_trial, message.is_granted)
        case Chunk():
            head, voters = message.head, message.head.voters.replicas
            front = _CHUNK.pack(head.end, head.term, head.size, message.position, message.round, len(voters))
            return b"".join((front, *(_VOTER.pack(*voter) for voter in voters), message.content))
        case ChunkReply():
            return _CHUNK_REPLY.pack(message.end, message.position, message.round)
        case TakeOver() | Knock():
            return b""
        case _:
            assert_never(message)


def _read_append(sender: Replica, term: Term, body: memoryview, at: int) -> Append:
    *numbers, count = _unpacked(_APPEND, body, at)
    first, previous_term, committed_end, round_number = map(_not_negative, numbers)
    at += _APPEND.size
    if count * _ENTRY.size > len(body) - at:
        raise MalformedInput("a message has more entries than bytes")
    entries = []
    for _ in range(count):
        entry_term, kind, size = _unpacked(_ENTRY, body, at)
        at += _ENTRY.size
        if size > len(body) - at or kind not in _ENTRY_KINDS:
            raise MalformedInput("an entry is cut off, or of no known kind")
        entries.append(Entry(Term(_not_negative(entry_term)), _ENTRY_KINDS[kind], bytes(body[at : at + size])))
        at += size
    _check_end(body, at)
    return Append(sender, term, Offset(first), Term(previous_term), tuple(entries), Offset(committed_end), round_number)


_ENTRY_KINDS = {int(kind): kind for kind in Kind}


def _read_chunk(sender: Replica, term: Term, body: memoryview, at: int) -> Chunk:
    *numbers, count = _unpacked(_CHUNK, body, at)
    end, last_term, size, position, round_number = map(_not_negative, numbers)
    at += _CHUNK.size
    voters_end = at + count * _VOTER.size
    if voters_end > len(body):
        raise MalformedInput("a snapshot's voters are cut off")
    voters = tuple(Replica(NodeId(node), DirectoryId(directory)) for node, directory in rows_of(_VOTER, body[at:voters_end]))
    if len({voter.node for voter in voters}) != count:
        raise MalformedInput("a node votes once")
    head = SnapshotHead(Offset(end), Term(last_term), Voters(voters), size)
    return Chunk(sender, term, head, position, bytes(body[voters_end:]), round_number)


def _unpacked(shape: Struct, body: memoryview, at: int) -> tuple[Any, ...]:
    if len(body) - at < shape.size:
        raise MalformedInput("a message between replicas is cut off")
    return shape.unpack_from(body, at)


def _last(shape: Struct, body: memoryview, at: int) -> tuple[Any, ...]:
    _check_end(body, at + shape.size)
    return shape.unpack_from(body, at)


def _check_end(body: memoryview, at: int) -> None:
    if len(body) != at:
        raise MalformedInput("a message between replicas does not end where its last field ends")


def _not_negative(number: int) -> int:
    if number < 0:
        raise MalformedInput("a message between replicas has a number that cannot be")
    return number
