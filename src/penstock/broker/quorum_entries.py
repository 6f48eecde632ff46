"""Bytes of the metadata log's entries, and of what is in them.

An entry is the value of one record in a batch of its own, so that the log can be cut before any of them. The batch's leader epoch is the
entry's term. The term is told in the value too: the batch's checksum covers that one alone.
The payload of an entry is one decision: all of its records, which hold together or not at all.

Older Penstocks had no terms and no votes, and wrote several records into a batch, each as its own value, which begins with a zero. Each of
them is read as an entry of its own, with that record alone as its decision.
"""

from collections.abc import Iterable, Sequence
from struct import Struct

from penstock.cluster import records
from penstock.consensus.nouns import Entry, Kind, Term
from penstock.errors import BrokenPromise, require
from penstock.log.faults import NewerFormat

ENTRY_VERSION = 1
DECISION_VERSION = 1
NO_VERSION = 0  # What older ones began with: the upper half of a record's kind.

_ENTRY = Struct(">BBi")  # format version, kind, term
_DECISION = Struct(">B")  # format version
_LENGTH = Struct(">I")


def encode(entry: Entry) -> bytes:
    return _ENTRY.pack(ENTRY_VERSION, entry.kind, entry.term) + entry.payload


def decode(value: bytes, leader_epoch: int) -> Entry:
    """The entry in a record of a batch of this leader epoch."""
    if is_old(value):
        return Entry(Term(leader_epoch), Kind.PAYLOAD, value)
    if value[0] > ENTRY_VERSION:
        raise NewerFormat(f"the metadata log has entries of format {value[0]}, this Penstock knows {ENTRY_VERSION}: start a newer one")
    require(len(value) >= _ENTRY.size, "an entry has a kind and a term")
    _, kind, term = _ENTRY.unpack_from(value)
    require(term == leader_epoch, "an entry is of the term that its batch is of")
    if kind not in Kind.__members__.values():
        raise NewerFormat(f"the metadata log has entries of kind {kind}: start a newer Penstock on this data directory")
    return Entry(Term(term), Kind(kind), value[_ENTRY.size :])


def is_old(value: bytes) -> bool:
    """Whether it was written before there were votes."""
    require(bool(value), "an entry has a format")
    return value[0] == NO_VERSION


def encode_decision(made: Iterable[records.Record]) -> bytes:
    return _DECISION.pack(DECISION_VERSION) + pack_records(records.encode(record) for record in made)


def decode_decision(payload: bytes) -> list[records.Record]:
    if is_old(payload):
        return [records.decode(payload)]
    if payload[0] > DECISION_VERSION:
        raise NewerFormat(
            f"the metadata log has decisions of format {payload[0]}, this Penstock knows {DECISION_VERSION}: start a newer one"
        )
    return [records.decode(one) for one in unpack_records(payload, _DECISION.size)]


def pack_records(encoded: Iterable[bytes]) -> bytes:
    return b"".join(_LENGTH.pack(len(one)) + one for one in encoded)


def unpack_records(packed: bytes, at: int = 0) -> Sequence[bytes]:
    found: list[bytes] = []
    while at < len(packed):
        (length,) = _LENGTH.unpack_from(packed, at)
        at += _LENGTH.size
        found.append(packed[at : at + length])
        at += length
    if at != len(packed):
        raise BrokenPromise("what was packed ends where its last record ends")
    return found
