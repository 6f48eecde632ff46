"""Records, commands and replies travel and are stored without loss; what isn't known is told, what is broken is refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster import commands, records, replies
from penstock.errors import BrokenPromise, ErrorCode, MalformedInput, Refusal

REPLIES = [kind for number, (kind, _) in replies.KINDS.items() if number > 1000 and kind not in (replies.Refused, replies.Changed)]


def of_kinds(kinds: dict[int, tuple[type[Any], int]]) -> list[type[Any]]:
    return [kind for kind, _ in kinds.values()]


@pytest.mark.parametrize("kind", of_kinds(records.KINDS), ids=lambda kind: kind.__name__)
def test_every_record_comes_back_as_it_was(kind: type[Any]) -> None:
    @settings(max_examples=15)
    @given(st.from_type(kind))
    def round_trip(record: Any) -> None:
        assert records.decode(records.encode(record)) == record

    round_trip()


@pytest.mark.parametrize("kind", of_kinds(commands.KINDS), ids=lambda kind: kind.__name__)
def test_every_command_comes_back_as_it_was(kind: type[Any]) -> None:
    @settings(max_examples=15)
    @given(st.from_type(kind))
    def round_trip(command: Any) -> None:
        assert commands.decode(commands.encode(command)) == command

    round_trip()


@pytest.mark.parametrize("kind", [*REPLIES, records.PartitionChange, *of_kinds(records.KINDS)], ids=lambda kind: kind.__name__)
def test_every_reply_comes_back_as_it_was(kind: type[Any]) -> None:
    @settings(max_examples=5)
    @given(st.lists(st.from_type(kind), max_size=3))
    def round_trip(answers: list[Any]) -> None:
        assert replies.decode(replies.encode(answers)) == tuple(answers)

    round_trip()


def test_a_refusal_travels_with_its_code_and_its_words() -> None:
    (refusal,) = replies.decode(replies.encode([Refusal(ErrorCode.INELIGIBLE_REPLICA, "node 3 is fenced")]))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.reason) == (ErrorCode.INELIGIBLE_REPLICA, "node 3 is fenced")


def test_every_kind_that_can_be_made_has_a_number() -> None:
    assert set(of_kinds(records.KINDS)) == set(records.Record.__args__)
    assert set(of_kinds(commands.KINDS)) == set(commands.Command.__args__)


def test_a_command_of_a_newer_node_is_refused_and_not_guessed_at() -> None:
    payload = bytearray(commands.encode(commands.Settle()))
    payload[3] = 99
    with pytest.raises(Refusal) as refused:
        commands.decode(bytes(payload))
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_reply_of_a_newer_node_is_told_as_such() -> None:
    payload = bytearray(replies.encode([replies.Settled(1, is_done=True)]))
    payload[4:6] = (2000).to_bytes(2, "big")
    with pytest.raises(Refusal):
        replies.decode(bytes(payload))


@given(st.binary(max_size=60))
def test_bytes_that_are_nothing_are_malformed(junk: bytes) -> None:
    for decode in (commands.decode, replies.decode):
        for payload in (junk, b"\0\2\0\1" + junk, b"\0\0\0\x20\0\2\0\1" + junk):
            try:
                decode(payload)
            except (MalformedInput, Refusal):
                continue


@pytest.mark.parametrize("payload", [b"", b"\0", b"\0\2\0\1", b"\0\2\0\1{", b"\0\2\0\1[]", b'\0\2\0\1{"x":1}'])
def test_a_stored_record_that_is_broken_stops_the_node(payload: bytes) -> None:
    with pytest.raises(BrokenPromise):
        records.decode(payload)
