"""What nodes say to each other about transactions reads back, and nothing else is taken for it."""

import pytest

from penstock.errors import ErrorCode, MalformedInput
from penstock.links import transaction_calls as calls
from penstock.links.transaction_calls import Added, AddToTransaction, Ended, Place
from penstock.vocabulary import ProducerId, TopicId

PLACES = (Place("orders", TopicId(bytes(range(16))), 3), Place("__consumer_offsets", TopicId(bytes(16)), 49))
ADD = AddToTransaction("mover-ä", ProducerId(4_000), 7, True, PLACES)
ENDED = Ended(ProducerId(4_000), 8, 12, is_commit=True, is_v2=False, coordinator_epoch=5, places=PLACES)


def test_it_reads_back():
    assert calls.read_add(memoryview(calls.write_add(ADD))) == ADD
    added = Added((ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE), 12)
    assert calls.read_added(memoryview(calls.write_added(added))) == added
    ends = [ENDED, ENDED._replace(is_commit=False)]
    assert calls.read_ended(memoryview(calls.write_ended(ends))) == ends
    codes = [(ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER), ()]
    assert calls.read_codes(memoryview(calls.write_codes(codes))) == codes


@pytest.mark.parametrize("read", [calls.read_add, calls.read_added, calls.read_ended, calls.read_codes])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"7", b"[7]", b'["x"]', b'[["x", "y"]]', b'[[1, 2, "zz", 4, 5, 6, [["t", "no hex", 1]]]]', b"\xff"]
)
def test_what_is_something_else_is_refused(read, body: bytes):
    with pytest.raises(MalformedInput):
        read(memoryview(body))
