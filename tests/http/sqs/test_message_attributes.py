"""Attributes of messages: digests against known ones, and that they lie in a header without loss. Pure."""

import pytest
from growth import assert_grows_slower_than_square
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import pick

from penstock.http.sqs.errors import SqsError
from penstock.http.sqs.message_attributes import (
    Attribute,
    NameFilter,
    body_digest,
    digest,
    pack_attributes,
    read_attributes,
    shown,
    unpack_attributes,
    weight,
)

TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xD7FF), min_size=1, max_size=30)
NAMES = st.text("abcXYZ019_-", min_size=1, max_size=20)
VALUES = st.one_of(
    st.builds(Attribute, st.sampled_from(("String", "String.x", "Number")), TEXTS),
    st.builds(Attribute, st.sampled_from(("Binary", "Binary.png")), st.binary(min_size=1, max_size=30)),
)


def test_digests_are_those_that_sdks_compute():
    assert body_digest("hé".encode()) == "33fcd01258e6ba07ef405dc9e721f3a7"
    assert digest({"a": Attribute("String", "b")}) == "bef8bf215374a0a228d67533b1a488be"
    both = {"n": Attribute("Number.int", "42"), "B": Attribute("Binary", b"\x00\xff")}
    assert digest(both) == "3f346be8859e3922fb444adfbe7f18b8"


@pytest.mark.repeats
@settings(max_examples=pick(test=50, slow=100))
@given(st.dictionaries(NAMES, VALUES, max_size=10))
def test_a_header_holds_attributes_without_loss(attributes: dict[str, Attribute]):
    assert unpack_attributes(pack_attributes(attributes)) == attributes


@pytest.mark.parametrize("text", ['"' * 5_000, "\\" * 4_000 + "x" * 4_000, '"\n\tü😀' * 2_000, "x" * 5_000])
def test_no_text_takes_more_than_a_third_more_in_a_header(text: str):
    attributes = {"a": Attribute("String", text), "b": Attribute("Number", "7")}
    packed = pack_attributes(attributes)
    assert unpack_attributes(packed) == attributes
    assert len(packed) <= len(text.encode()) * 4 // 3 + 100


@pytest.mark.repeats
@settings(max_examples=pick(test=50, slow=100))
@given(st.dictionaries(NAMES, VALUES.filter(lambda each: each.type != "Number"), max_size=10))
def test_what_is_shown_reads_the_same_again(attributes: dict[str, Attribute]):
    assert read_attributes(shown(attributes)) == attributes


@given(st.binary(max_size=40))
def test_a_header_of_somebody_else_is_no_attribute_and_no_error(content: bytes):
    assert isinstance(unpack_attributes(content), dict)


@pytest.mark.parametrize(
    "content",
    [
        b"7",
        b"[]",
        b'{"a":7}',
        b'{"a":["Binary","%"]}',
        b'{"a":["String","%","base64"]}',
        b'{"a":["String","/w==","base64"]}',
        b'{"a":["String","x","",""]}',
        b'{"a":[1,"x"]}',
        b"[" * 9999,
    ],
)
def test_a_header_that_is_json_and_no_attributes_is_passed_over(content: bytes):
    assert unpack_attributes(content) == {}


def test_names_types_and_values_weigh():
    assert weight({"é": Attribute("String", "ü"), "b": Attribute("Binary", b"\x00\xff")}) == 2 + 6 + 2 + 1 + 6 + 2


def test_a_filter_without_names_picks_nothing():
    attributes = {"a": Attribute("String", "b")}
    assert NameFilter(()).pick(attributes) == {}
    assert NameFilter(("ALL",)).pick(attributes) == NameFilter(("*",)).pick(attributes) == attributes


@pytest.mark.parametrize(("begin", "one", "end"), [("", "1", "x"), ("", "1.", ""), ("", "0", ""), ("1e", "9", ""), ("", ".", "")])
def test_what_is_no_number_is_known_at_once_however_long_it_is(begin: str, one: str, end: str) -> None:
    """Each digit was tried on both sides of a point that was not there: a mebibyte of them took hours."""

    def read(size: int) -> None:
        with pytest.raises(SqsError, match="to a number"):
            read_attributes({"n": {"DataType": "Number", "StringValue": begin + one * (size // len(one)) + end}})

    assert_grows_slower_than_square(read, 2_048)
    read(1 << 20)
