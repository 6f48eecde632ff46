"""The heartbeat of a member at rest, read and written by hand (ConsumerGroupHeartbeat, versions 0 and 1).

A node with thousands of members of the new group protocol reads and writes hardly anything else. Such a request names the group, the member
and its epoch, perhaps its instance, and nothing that has changed; its answer says the epoch and the interval. Anything else goes through
`schemas`.
"""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from penstock.vocabulary import Buffer

_INT = Struct(">i")
_SHORT_TEXT_MAX = 127  # A text whose length fits into one byte of a varint: all that people use.

# What follows the instance id where nothing has changed: no rack, no time-out, no topics, no pattern (from version 1 on), no assignor,
# nothing owned, no tagged fields.
_NOTHING_NEW = {0: b"\x00" + b"\xff" * 4 + b"\x00" * 4, 1: b"\x00" + b"\xff" * 4 + b"\x00" * 5}

_ANSWER_HEAD = Struct(">iiBihB")  # length, correlation id, no tags, throttle time, no error, no message
_ANSWER_TAIL = Struct(">iibB")  # epoch, interval, no assignment, no tags


class QuietHeartbeat(NamedTuple):
    group: str
    member_id: str
    member_epoch: int
    instance_id: str | None


def read_quiet_heartbeat(version: int, frame: Buffer, at: int) -> QuietHeartbeat | None:
    """The request whose body begins at `frame[at]`; None where it says more, or is not as it should be."""
    body = bytes(frame[at:])
    tail = _NOTHING_NEW[version]
    try:
        group, at = _text(body, 0)
        member_id, at = _text(body, at)
        (member_epoch,) = _INT.unpack_from(body, at)
        instance_id, at = _text(body, at + 4)
        if group is None or member_id is None or body[at:] != tail:
            return None
    except (IndexError, ValueError, StructError):
        return None
    return QuietHeartbeat(group, member_id, member_epoch, instance_id)


def write_quiet_answer(correlation_id: int, member_id: str, member_epoch: int, heartbeat_interval_ms: int) -> bytes | None:
    """A whole frame, its length in front; None where the member id is longer than anybody's."""
    name = member_id.encode()
    if len(name) >= _SHORT_TEXT_MAX:
        return None
    length = _ANSWER_HEAD.size - 4 + 1 + len(name) + _ANSWER_TAIL.size
    head = _ANSWER_HEAD.pack(length, correlation_id, 0, 0, 0, 0)
    return head + bytes((len(name) + 1,)) + name + _ANSWER_TAIL.pack(member_epoch, heartbeat_interval_ms, -1, 0)


def _text(body: bytes, at: int) -> tuple[str | None, int]:
    length = body[at]
    if length == 0:
        return None, at + 1
    if length > _SHORT_TEXT_MAX:
        raise ValueError("a long text")
    end = at + length  # The length is one more than that of the text, and takes one byte itself.
    if end > len(body):
        raise ValueError("a text reaches past the end")
    return body[at + 1 : end].decode(), end
