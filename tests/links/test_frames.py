"""Frames come out as they went in, however the bytes were cut on the way; and each has memory of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import MalformedInput
from penstock.links.frames import HEAD, LENGTH, Assembler, Form, front

SHARED = 64  # Small, so that every case is met: many frames in one buffer, and one frame in many.
bodies = st.lists(st.binary(min_size=1, max_size=300), max_size=12)


def feed(assembler: Assembler, content: bytes, cuts: list[int]) -> list[memoryview]:
    frames, at = [], 0
    sizes = iter([*cuts, *[len(content)] * (len(content) + 1)])
    while at < len(content):
        room = assembler.room()
        size = min(max(1, next(sizes)), len(room), len(content) - at)
        room[:size] = content[at : at + size]
        at += size
        assembler.received(size)
        while (frame := assembler.next_frame()) is not None:
            frames.append(frame)
    return frames


@given(bodies, st.lists(st.integers(1, 200)))
def test_frames_come_out_as_they_went_in_however_the_bytes_are_cut(some: list[bytes], cuts: list[int]) -> None:
    content = b"".join(LENGTH.pack(len(body)) + body for body in some)
    frames = feed(Assembler(SHARED, 1_000), content, cuts)
    assert [bytes(frame) for frame in frames] == some  # Looked at last: no later frame has overwritten an earlier one.


@given(bodies, st.lists(st.integers(1, 200)), st.integers(0, 11))
def test_what_has_come_stays_when_the_room_gets_wider(some: list[bytes], cuts: list[int], place: int) -> None:
    small = [body[: SHARED - LENGTH.size] for body in some]
    content = b"".join(LENGTH.pack(len(body)) + body for body in small)
    split = min(place * 20, len(content))
    assembler = Assembler(SHARED, 1_000)
    frames = feed(assembler, content[:split], cuts)
    assembler.widen(4 * SHARED, 2_000)
    frames += feed(assembler, content[split:], cuts)
    assert [bytes(frame) for frame in frames] == small


@pytest.mark.parametrize("size", [0, 1_001, 0xFFFFFFFF])
def test_a_frame_that_cannot_be_is_refused_by_its_first_four_bytes(size: int) -> None:
    with pytest.raises(MalformedInput, match="announced a frame"):
        feed(Assembler(SHARED, 1_000), LENGTH.pack(size), [])


def test_the_front_of_a_frame_tells_its_length_and_what_it_is() -> None:
    (frame,) = feed(Assembler(SHARED, 1_000), front(Form.ASK, 2, 77, 4) + b"body", [])
    assert HEAD.unpack_from(frame) == (Form.ASK, 2, 77)
    assert bytes(frame[HEAD.size :]) == b"body"
