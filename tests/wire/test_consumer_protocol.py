"""The bytes that consumers pass each other through a group, against what a real client writes; and bytes that are something else."""

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.consumer_protocol import read_assignment, read_subscription


def test_an_assignment_is_read_as_aiokafka_writes_it() -> None:
    content = ConsumerProtocolMemberAssignment(0, [("orders", [0, 3]), ("größe", [1])], b"user data").encode()
    assert read_assignment(content) == {"orders": [0, 3], "größe": [1]}


def test_a_subscription_is_read_as_aiokafka_writes_it() -> None:
    assert read_subscription(ConsumerProtocolMemberMetadata(0, ["a", "b"], b"").encode()) == ["a", "b"]


def test_later_versions_only_append() -> None:
    content = bytearray(ConsumerProtocolMemberAssignment(0, [("orders", [7])], b"").encode())
    content[1] = 3
    assert read_assignment(bytes(content) + b"something new") == {"orders": [7]}


def test_no_bytes_are_no_partitions() -> None:
    assert read_assignment(b"") == {}


@pytest.mark.parametrize(
    "content", [b"\x00", b"words", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x09a"]
)
def test_other_bytes_are_nobodys_fault(content: bytes) -> None:
    assert read_assignment(content) is None
    assert read_subscription(content) is None


@given(st.binary(max_size=200))
def test_no_bytes_whatever_raise(content: bytes) -> None:
    read_assignment(content)
    read_subscription(content)
