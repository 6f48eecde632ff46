"""What a leader asks its followers when records are deleted: bytes and back."""

import pytest

from penstock.errors import ErrorCode, MalformedInput
from penstock.links.trim_calls import TrimWish, read_outcome, read_wish, write_outcome, write_wish
from penstock.vocabulary import Offset, TopicId

WISH = TrimWish(TopicId(bytes(range(16))), 3, 7, Offset(1 << 40))


def test_what_is_written_is_read() -> None:
    assert read_wish(memoryview(write_wish(WISH))) == WISH
    assert read_outcome(memoryview(write_outcome(ErrorCode.KAFKA_STORAGE_ERROR))) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_later_version_may_say_more() -> None:
    assert read_wish(memoryview(write_wish(WISH)[:-1] + b',"more"]')) == WISH


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'["zz",0,0,0]', b"[[],0,0,0]", b"[[]]", b"[-30000]"])
def test_anything_else_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedInput):
        read_wish(memoryview(body))
    with pytest.raises(MalformedInput):
        read_outcome(memoryview(body))
