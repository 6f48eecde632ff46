"""Frames come out of the inbox whole and in order, however the network cuts them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import pick

from penstock.broker.inbox import OWN_BYTES_MIN, Inbox
from penstock.wire.frames import LENGTH


def framed(payload: bytes) -> bytes:
    return LENGTH.pack(len(payload)) + payload


def feed(inbox: Inbox, stream: bytes, cuts: list[int], handled: list[bytes], *, at_a_time: int = 1_000_000) -> None:
    """Plays the connection: receives in pieces, handles up to `at_a_time` frames of each chunk, keeps the rest."""
    at = 0
    for size in [*cuts, len(stream)]:
        while size > 0 and at < len(stream):
            room = inbox.room()
            taken = min(size, len(room), len(stream) - at)
            room[:taken] = stream[at : at + taken]
            at += taken
            size -= taken
            chunk = inbox.received(taken)
            while chunk is not None:
                used = handle(chunk, handled, at_a_time)
                inbox.keep(chunk[used:])
                chunk = inbox.waiting() if used else None


def handle(chunk: memoryview, handled: list[bytes], at_a_time: int) -> int:
    at = 0
    for _ in range(at_a_time):
        if len(chunk) - at < 4 or len(chunk) - at < 4 + LENGTH.unpack_from(chunk, at)[0]:
            break
        size = LENGTH.unpack_from(chunk, at)[0]
        handled.append(bytes(chunk[at + 4 : at + 4 + size]))
        at += 4 + size
    return at


@pytest.mark.repeats
@settings(max_examples=pick(test=50, slow=100))
@given(
    st.lists(st.binary(min_size=8, max_size=300), max_size=20),
    st.lists(st.integers(1, 700), max_size=40),
    st.integers(1, 5),
    st.integers(16, 512),
)
def test_frames_survive_every_way_of_cutting_the_stream(payloads: list[bytes], cuts: list[int], at_a_time: int, shared: int) -> None:
    inbox, handled = Inbox(memoryview(bytearray(shared))), []
    feed(inbox, b"".join(map(framed, payloads)), cuts, handled, at_a_time=at_a_time)
    assert handled == payloads
    inbox.let_go()
    assert inbox.own_capacity == 0


def test_a_long_frame_gets_room_as_it_comes_not_as_it_claims() -> None:
    inbox = Inbox(memoryview(bytearray(4096)))
    room = inbox.room()
    room[:4] = LENGTH.pack(100 << 20)
    chunk = inbox.received(100)
    assert chunk is not None
    inbox.keep(chunk)
    assert inbox.own_capacity == OWN_BYTES_MIN


def test_a_frame_of_many_mebibytes_arrives_whole() -> None:
    payload = bytes(range(256)) * (5 << 12)
    inbox, handled = Inbox(memoryview(bytearray(64 << 10))), []
    feed(inbox, framed(payload) + framed(b"the next"), [60_000] * 10, handled)
    assert handled == [payload, b"the next"]
    inbox.let_go()
    assert inbox.own_capacity == 0
