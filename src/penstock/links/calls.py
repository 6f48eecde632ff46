"""Bytes ⇄ heartbeats and submitted commands: what a node asks of the controller, and hears.

A command and its replies are bytes here; cluster/ knows what is in them.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from penstock.errors import MalformedInput
from penstock.vocabulary import Offset

_HEARTBEAT = Struct(">qq??")
_HEARD = Struct(">B??")
_SUBMITTED = Struct(">Bq")


class Heartbeat(NamedTuple):
    node_epoch: int
    applied_end: Offset  # Of the metadata log: everything below is replayed at this node.
    is_ready: bool  # Its logs are open and it listens.
    wants_to_stop: bool


class Standing(IntEnum):
    """What the asked node says of the one that gives a sign of life."""

    REGISTERED = 0
    NOT_CONTROLLER = 1  # The asked node is not the controller, or no longer: ask another.
    STALE = 2  # A later life of this node has registered.
    NOT_REGISTERED = 3


class Heard(NamedTuple):
    standing: Standing
    is_fenced: bool = False
    may_stop: bool = False  # Whatever others can lead is led by others, and they know it.


class Verdict(IntEnum):
    """What became of a command."""

    DECIDED = 0
    NOT_CONTROLLER = 1  # Nothing was done.
    UNKNOWN = 2  # It may or may not have been done.
    REFUSED = 3  # The whole command, before it was looked at; the one reply says why.


class Submitted(NamedTuple):
    verdict: Verdict
    end: Offset = Offset(0)  # Whoever has replayed the metadata log up to here knows the decision.
    replies: bytes = b""


def write_heartbeat(heartbeat: Heartbeat) -> bytes:
    return _HEARTBEAT.pack(*heartbeat)


def read_heartbeat(body: memoryview) -> Heartbeat:
    _check(len(body) == _HEARTBEAT.size)
    return Heartbeat._make(_HEARTBEAT.unpack(body))


def write_heard(heard: Heard) -> bytes:
    return _HEARD.pack(*heard)


def read_heard(body: memoryview) -> Heard:
    _check(len(body) == _HEARD.size)
    number, is_fenced, may_stop = _HEARD.unpack(body)
    _check(number in _STANDINGS)
    return Heard(_STANDINGS[number], is_fenced, may_stop)


def write_submitted(submitted: Submitted) -> list[bytes]:
    return [_SUBMITTED.pack(submitted.verdict, submitted.end), submitted.replies]


def read_submitted(body: memoryview) -> Submitted:
    _check(len(body) >= _SUBMITTED.size)
    number, end = _SUBMITTED.unpack_from(body)
    _check(number in _VERDICTS and end >= 0)
    return Submitted(_VERDICTS[number], Offset(end), bytes(body[_SUBMITTED.size :]))


_STANDINGS = {int(standing): standing for standing in Standing}
_VERDICTS = {int(verdict): verdict for verdict in Verdict}


def _check(claim: bool) -> None:
    if not claim:
        raise MalformedInput("a call between nodes is not what it should be")
