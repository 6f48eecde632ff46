"""Heartbeats and submitted commands come back from their bytes as they were."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import MalformedInput
from penstock.links.calls import (
    Heard,
    Heartbeat,
    Standing,
    Submitted,
    Verdict,
    read_heard,
    read_heartbeat,
    read_submitted,
    write_heard,
    write_heartbeat,
    write_submitted,
)
from penstock.vocabulary import Offset

counts = st.integers(0, 2**63 - 1)
heartbeats = st.builds(Heartbeat, counts, counts.map(Offset), st.booleans(), st.booleans())
answers = st.builds(Heard, st.sampled_from(Standing), st.booleans(), st.booleans())
submitted = st.builds(Submitted, st.sampled_from(Verdict), counts.map(Offset), st.binary(max_size=50))


@given(heartbeats, answers, submitted)
def test_calls_come_back_as_they_were(heartbeat: Heartbeat, heard: Heard, done: Submitted) -> None:
    assert read_heartbeat(memoryview(write_heartbeat(heartbeat))) == heartbeat
    assert read_heard(memoryview(write_heard(heard))) == heard
    assert read_submitted(memoryview(b"".join(write_submitted(done)))) == done


@pytest.mark.parametrize("read", [read_heartbeat, read_heard, read_submitted])
@given(noise=st.binary(max_size=30))
def test_any_bytes_are_a_call_or_malformed(read: Callable[[memoryview], object], noise: bytes) -> None:
    try:
        read(memoryview(noise))
    except MalformedInput:
        return
    assert len(noise) in (18, 3) or len(noise) >= 9


def test_a_standing_or_verdict_that_nobody_knows_is_malformed() -> None:
    for read, body in ((read_heard, b"\x09\x00\x00"), (read_submitted, b"\x09" + bytes(8)), (read_submitted, b"\x00" + b"\xff" * 8)):
        with pytest.raises(MalformedInput):
            read(memoryview(body))
