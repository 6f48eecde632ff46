"""Who is there: two nodes prove to each other that they hold the cluster's secret, before anything else is read.

    caller                                                    called
      hello: versions, lane, node, directory, whom it calls, cluster, nonce  →
      ←  challenge: version, node, directory, cluster, nonce
      proof: HMAC-SHA256 of "caller", hello and challenge  →
      ←  welcome: HMAC-SHA256 of "called", hello and challenge

The proofs cover both messages as they were sent, so nonces, nodes, directories, cluster, lane and version cannot be changed on the way, an
old proof is worth nothing, and a proof sent back to its maker is of the wrong direction. The caller proves first: whoever merely knocks
gets nothing that a weak secret could be guessed from. Either side may answer with a refusal, a number that both turn into a sentence.

What is proven holds for the connection's beginning. Its bytes after that are neither hidden nor sealed: that is TLS's to do.
No I/O here: bytes in, bytes out. The secret and the proofs are never part of a sentence.
"""

import hmac
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from penstock.consensus.nouns import DirectoryId
from penstock.links.kinds import Lane
from penstock.vocabulary import Buffer, NodeId

VERSION_MIN, VERSION_MAX = 2, 2  # Of everything that is said over a link. From 2 on followers report where their logs start.
NONCE_BYTES = 32
PROOF_BYTES = 32
CLUSTER_ID_BYTES_MAX = 128

_MAGIC = b"penstock"
_HELLO_FORM, _CHALLENGE_FORM, _PROOF_FORM, _WELCOME_FORM, _REFUSAL_FORM = 1, 2, 3, 4, 5
_HELLO = Struct(">B8sHHBii16s32sB")  # form, magic, oldest and newest version, lane, node, node called, directory, nonce, cluster's length
_CHALLENGE = Struct(">BHi16s32sB")  # form, version, node, directory, nonce, cluster's length
_REFUSAL = Struct(">BBHH")  # form, reason, oldest and newest version
_BY_CALLER, _BY_CALLED = b"penstock link, proven by the caller\0", b"penstock link, proven by the called\0"


@dataclass(frozen=True, slots=True)
class Introduction:
    """Who a node says that it is."""

    cluster_id: str
    node_id: NodeId
    directory_id: DirectoryId


class Reason(IntEnum):
    VERSION = 1
    CLUSTER = 2
    NODE = 3
    SAME_NODE = 4
    SECRET = 5
    MALFORMED = 6


_SENTENCES = {
    Reason.VERSION: "it speaks another version of the nodes' own protocol: bring both to versions of Penstock that follow each other",
    Reason.CLUSTER: "it belongs to another cluster: check the addresses of the voters and cluster.id",
    Reason.NODE: "another node answered than was called: check which node listens at which address in controller.quorum.voters",
    Reason.SAME_NODE: "both are started with the same node id: give each node its own",
    Reason.SECRET: "the two do not have the same cluster secret: start every node with the same one",
    Reason.MALFORMED: "what it said is no handshake between nodes",
}


class HandshakeFailed(Exception):
    """The connection is to be closed. `refusal` is what the other side is told; None when it was that side who refused."""

    def __init__(self, reason: Reason, refusal: bytes | None) -> None:
        super().__init__(_SENTENCES[reason])
        self.reason = reason
        self.refusal = refusal


class Caller:
    """The side that opened the connection."""

    def __init__(self, me: Introduction, secret: bytes, *, called: NodeId, lane: Lane, nonce: bytes) -> None:
        self._me = me
        self._secret = secret
        self._called = called
        cluster = _cluster_bytes(me)
        self.hello = _HELLO.pack(
            _HELLO_FORM, _MAGIC, VERSION_MIN, VERSION_MAX, lane, me.node_id, called, me.directory_id, nonce, len(cluster)
        ) + cluster  # fmt: skip
        self._challenge = b""
        self.directory: DirectoryId | None = None  # Of the node that was called, once it has proven itself.

    def challenged(self, message: Buffer) -> bytes:
        """The proof to send."""
        _check_refusal(message)
        _, version, node, directory, _, length = _unpacked(_CHALLENGE, _CHALLENGE_FORM, message)
        if not VERSION_MIN <= version <= VERSION_MAX:
            raise _refused(Reason.VERSION)
        if bytes(message[_CHALLENGE.size :]) != _cluster_bytes(self._me) or length != len(message) - _CHALLENGE.size:
            raise _refused(Reason.CLUSTER)
        if node != self._called:
            raise _refused(Reason.NODE)
        self.directory = DirectoryId(directory)
        self._challenge = bytes(message)
        return bytes([_PROOF_FORM]) + _proof(self._secret, _BY_CALLER, self.hello, self._challenge)

    def welcomed(self, message: Buffer) -> None:
        """From here on the other side is who it says it is."""
        _check_refusal(message)
        _check_proof(message, _WELCOME_FORM, _proof(self._secret, _BY_CALLED, self.hello, self._challenge))


class Greeting(NamedTuple):
    """What a caller says of itself. Not to be believed before its proof."""

    node: NodeId
    directory: DirectoryId
    lane: Lane


class Called:
    """The side that accepted the connection."""

    def __init__(self, me: Introduction, secret: bytes, *, nonce: bytes) -> None:
        self._me = me
        self._secret = secret
        self._nonce = nonce
        self._hello = b""
        self._challenge = b""
        self.caller: Greeting | None = None

    def greeted(self, message: Buffer) -> bytes:
        """The challenge to send."""
        me = self._me
        _, magic, oldest, newest, lane, node, called, directory, _, length = _unpacked(_HELLO, _HELLO_FORM, message)
        if magic != _MAGIC:
            raise _refused(Reason.MALFORMED)
        if not oldest <= VERSION_MAX or not newest >= VERSION_MIN:
            raise _refused(Reason.VERSION)
        if bytes(message[_HELLO.size :]) != _cluster_bytes(me) or length != len(message) - _HELLO.size:
            raise _refused(Reason.CLUSTER)
        if called != me.node_id:
            raise _refused(Reason.NODE)
        if node == me.node_id:
            raise _refused(Reason.SAME_NODE)
        if lane not in Lane.__members__.values():
            raise _refused(Reason.MALFORMED)
        self.caller = Greeting(NodeId(node), DirectoryId(directory), Lane(lane))
        self._hello = bytes(message)
        cluster = _cluster_bytes(me)
        version = min(newest, VERSION_MAX)
        self._challenge = _CHALLENGE.pack(_CHALLENGE_FORM, version, me.node_id, me.directory_id, self._nonce, len(cluster)) + cluster
        return self._challenge

    def proven(self, message: Buffer) -> bytes:
        """The welcome to send: the caller is who it says it is."""
        _check_proof(message, _PROOF_FORM, _proof(self._secret, _BY_CALLER, self._hello, self._challenge))
        return bytes([_WELCOME_FORM]) + _proof(self._secret, _BY_CALLED, self._hello, self._challenge)


def check_secret(secret: bytes) -> None:
    """Without a secret anybody could prove it."""
    if not secret:
        raise ValueError("the nodes of a cluster need a secret")


def _cluster_bytes(me: Introduction) -> bytes:
    encoded = me.cluster_id.encode()
    if not 0 < len(encoded) <= CLUSTER_ID_BYTES_MAX:
        raise ValueError(f"a cluster id has 1 to {CLUSTER_ID_BYTES_MAX} bytes")
    return encoded


def _proof(secret: bytes, direction: bytes, hello: bytes, challenge: bytes) -> bytes:
    """Both messages tell their own length, so that no two conversations have the same bytes here."""
    return hmac.digest(secret, direction + hello + challenge, "sha256")


def _check_proof(message: Buffer, form: int, expected: bytes) -> None:
    if len(message) != 1 + PROOF_BYTES or message[0] != form:
        raise _refused(Reason.MALFORMED)
    if not hmac.compare_digest(bytes(message[1:]), expected):
        raise _refused(Reason.SECRET)


def _check_refusal(message: Buffer) -> None:
    """Whatever else the other side says is not for here."""
    if len(message) == _REFUSAL.size and message[0] == _REFUSAL_FORM:
        number = message[1]
        raise HandshakeFailed(Reason(number) if number in Reason.__members__.values() else Reason.MALFORMED, None)


def _unpacked(shape: Struct, form: int, message: Buffer) -> tuple[Any, ...]:
    if len(message) < shape.size or message[0] != form:
        raise _refused(Reason.MALFORMED)
    return shape.unpack_from(message)


def _refused(reason: Reason) -> HandshakeFailed:
    return HandshakeFailed(reason, _REFUSAL.pack(_REFUSAL_FORM, reason, VERSION_MIN, VERSION_MAX))
