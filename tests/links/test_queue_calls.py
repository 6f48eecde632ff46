"""Calls about queues between nodes come across as they were said, bytes and all; anything else is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.queues import packing
from penstock.broker.queues.calls import Code, Draft, Lent, Order, Outcome, Peeked, QueueRefusal, Sent, State, Verb, Verdict
from penstock.errors import MalformedInput
from penstock.links.queue_calls import QueueAnswer, QueueCall, read_answer, read_call, read_over, write_answer, write_call, write_over
from penstock.queues.views import Failure
from penstock.vocabulary import TopicId

TOPIC = TopicId(bytes(range(16)))
HEADERS = (("a", b"1"), ("b", None))


def across(fields: dict[str, object], blobs: packing.Blobs) -> QueueAnswer:
    return read_answer(memoryview(b"".join(write_answer(QueueAnswer("", fields=fields, blobs=blobs)))))


@given(blobs=st.lists(st.none() | st.binary(max_size=5), max_size=4), number=st.integers(0, 2**63))
def test_a_call_comes_across(blobs: list[bytes | None], number: int) -> None:
    call = QueueCall("send", TOPIC, 3, number, {"group": "ü", "count": 1, "none": None}, blobs)
    assert read_call(memoryview(b"".join(write_call(call)))) == call
    assert read_over(memoryview(write_over(number))) == number


@given(body=st.binary(max_size=30))
def test_noise_is_refused(body: bytes) -> None:
    for read in (read_call, read_answer):
        with pytest.raises(MalformedInput):
            read(memoryview(body))


def test_drafts_and_what_became_of_them_come_across() -> None:
    drafts = [Draft(b"body", b"key", HEADERS, 7, 10, None, 20, "g", "d", "id"), Draft(b"")]
    rows, blobs = packing.pack_drafts(drafts)
    answer = across({"drafts": rows}, blobs)
    assert packing.unpack_drafts(answer.fields["drafts"], answer.blobs) == drafts
    sent, refused = Sent("id", 1, 2, 3, True), QueueRefusal(Code.FULL, "no room")
    back = packing.unpack_sent(across({"sent": packing.pack_sent([sent, refused])}, []).fields["sent"])
    assert back[0] == sent
    assert isinstance(back[1], QueueRefusal)
    assert (back[1].code, back[1].words) == (Code.FULL, "no room")


def test_messages_and_verdicts_come_across() -> None:
    lent = [Lent("id", "handle", 1, 2, 3, 4, 5, 6, None, b"body", HEADERS), Lent("x", "y", 0, 0, 1, 0, 0, 0, b"k", b"", ())]
    rows, blobs = packing.pack_lent(lent)
    assert packing.unpack_lent(rows, blobs) == lent
    peeked = [
        Peeked("id", 0, 1, State.BLOCKED, 2, 3, "who", 4, b"k", None, HEADERS, (Failure(1, 2, "w", "r"),)),
        Peeked("id", 0, 1, State.READY, 0, 0, "", 4, None, b"", ()),
    ]
    rows, blobs = packing.pack_peeked(peeked)
    answer = across({"peeked": rows}, blobs)
    assert packing.unpack_peeked(answer.fields["peeked"], answer.blobs) == peeked
    orders = [Order("h", Verb.RELEASE, 5, "why", "who"), Order("h", Verb.DONE)]
    assert packing.unpack_orders(packing.pack_orders(orders)) == orders
    (verdict, refused) = packing.unpack_verdicts(
        packing.pack_verdicts([Verdict(Outcome.LOST, 7), Verdict(refusal=QueueRefusal(Code.INVALID_HANDLE, "none"))])
    )
    assert verdict == Verdict(Outcome.LOST, 7)
    assert refused.refusal is not None
    assert refused.refusal.code is Code.INVALID_HANDLE


def test_a_call_whose_blobs_are_missing_is_refused() -> None:
    rows, blobs = packing.pack_drafts([Draft(b"body", b"key")])
    with pytest.raises(ValueError, match="missing"):
        packing.unpack_drafts(rows, blobs[:1])
