"""Variable-length integers: what is written reads back, and what is too long or cut off is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import MalformedInput
from penstock.wire.varints import read_uvarint, read_varint, read_varlong, uvarint, varint


@given(st.integers(0, 2**32 - 1))
def test_unsigned_numbers_read_back(number):
    encoded = uvarint(number)
    assert read_uvarint(b"\xff" + encoded + b"\xff", 1, 1 + len(encoded)) == (number, 1 + len(encoded))


@given(st.integers(-(2**31), 2**31 - 1))
def test_signed_numbers_of_32_bits_read_back(number):
    encoded = varint(number)
    assert read_varint(encoded, 0, len(encoded)) == (number, len(encoded))


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_numbers_of_64_bits_read_back(number):
    encoded = varint(number)
    assert read_varlong(encoded, 0, len(encoded)) == (number, len(encoded))


@pytest.mark.parametrize(
    ("number", "encoded"), [(0, b"\0"), (-1, b"\x01"), (1, b"\x02"), (-64, b"\x7f"), (64, b"\x80\x01"), (300, b"\xd8\x04")]
)
def test_small_numbers_are_what_kafka_writes(number, encoded):
    assert varint(number) == encoded


@pytest.mark.parametrize("read", [read_uvarint, read_varint, read_varlong])
def test_a_number_cut_at_any_byte_is_malformed(read):
    encoded = uvarint(2**31)
    for end in range(len(encoded)):
        with pytest.raises(MalformedInput):
            read(encoded, 0, end)


def test_longer_encodings_than_needed_are_legal():
    assert read_uvarint(b"\x81\x80\x80\x80\x00", 0, 5) == (1, 5)


@pytest.mark.parametrize("read", [read_uvarint, read_varint])
@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00", b"\xff" * 10])
def test_more_than_32_bits_are_malformed(read, encoded):
    with pytest.raises(MalformedInput):
        read(encoded, 0, len(encoded))


@pytest.mark.parametrize("encoded", [b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x00"])
def test_more_than_64_bits_are_malformed(encoded):
    with pytest.raises(MalformedInput):
        read_varlong(encoded, 0, len(encoded))
