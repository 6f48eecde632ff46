"""Nobody is let in, and nobody is believed, without the secret: both sides, both directions, this cluster, this node, this connection."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from links.scene import ONE, SECRET, THREE, TWO, Stranger, Table, introduction

from penstock.links.channel import DEADLINES
from penstock.links.door import UNPROVEN_MAX
from penstock.links.failures import LinkLost
from penstock.links.frames import LENGTH, Form, front
from penstock.links.handshake import NONCE_BYTES, Called, Caller, HandshakeFailed, Introduction, Reason
from penstock.links.kinds import Kind, Lane
from penstock.links.links import Links
from penstock.vocabulary import NodeId


def caller(me: NodeId = ONE, called: NodeId = TWO, *, secret: bytes = SECRET, nonce: bytes = b"a" * NONCE_BYTES, **who: str) -> Caller:
    return Caller(introduction(me, **who), secret, called=called, lane=Lane.CALLS, nonce=nonce)


def called(me: NodeId = TWO, *, secret: bytes = SECRET, nonce: bytes = b"b" * NONCE_BYTES, **who: str) -> Called:
    return Called(introduction(me, **who), secret, nonce=nonce)


def shake(one: Caller, other: Called) -> None:
    one.welcomed(other.proven(one.challenged(other.greeted(one.hello))))


def refusal(one: Caller, other: Called) -> tuple[Reason, Reason | None]:
    """Why it failed: at the side that noticed, and as the other side was told."""
    with pytest.raises(HandshakeFailed) as noticed:
        shake(one, other)
    if noticed.value.refusal is None:
        return noticed.value.reason, None
    with pytest.raises(HandshakeFailed) as told:
        caller().challenged(noticed.value.refusal)
    return noticed.value.reason, told.value.reason


# The conversation itself.


def test_two_nodes_of_one_cluster_believe_each_other() -> None:
    one, other = caller(), called()
    shake(one, other)
    assert other.caller is not None
    assert (other.caller.node, other.caller.directory, other.caller.lane) == (ONE, introduction(ONE).directory_id, Lane.CALLS)
    assert one.directory == introduction(TWO).directory_id


def test_another_secret_is_refused_on_either_side_and_both_learn_why() -> None:
    assert refusal(caller(secret=b"guess"), called()) == (Reason.SECRET, Reason.SECRET)
    assert refusal(caller(), called(secret=b"guess")) == (Reason.SECRET, Reason.SECRET)


def test_a_listener_that_does_not_know_the_secret_cannot_pretend_to() -> None:
    """It takes any proof, and must then give its own."""
    one, other = caller(), called(secret=b"guess")
    one.challenged(other.greeted(one.hello))
    with pytest.raises(HandshakeFailed) as refused:
        one.welcomed(bytes([4]) + bytes(32))
    assert refused.value.reason is Reason.SECRET


def test_another_cluster_another_node_and_the_node_itself_are_refused() -> None:
    assert refusal(caller(cluster="other"), called()) == (Reason.CLUSTER, Reason.CLUSTER)
    assert refusal(caller(called=THREE), called()) == (Reason.NODE, Reason.NODE)
    assert refusal(caller(me=TWO), called()) == (Reason.SAME_NODE, Reason.SAME_NODE)


def test_a_listener_that_says_it_is_another_node_or_cluster_is_not_believed() -> None:
    """A node at the wrong address, which for some reason did not mind being called by another name."""
    for liar, deceived, reason in (
        (called(me=THREE), caller(called=THREE), Reason.NODE),
        (called(cluster="other"), caller(cluster="other"), Reason.CLUSTER),
    ):
        with pytest.raises(HandshakeFailed) as refused:
            caller().challenged(liar.greeted(deceived.hello))
        assert refused.value.reason is reason


def test_a_version_that_is_not_known_is_refused_by_either_side() -> None:
    hello = bytearray(caller().hello)
    hello[9:13] = b"\x00\x07\x00\x09"  # It speaks 7 to 9.
    with pytest.raises(HandshakeFailed) as refused:
        called().greeted(bytes(hello))
    assert refused.value.reason is Reason.VERSION
    challenge = bytearray(called().greeted(caller().hello))
    challenge[1:3] = b"\x00\x07"
    with pytest.raises(HandshakeFailed) as refused:
        caller().challenged(bytes(challenge))
    assert refused.value.reason is Reason.VERSION


def test_a_caller_that_speaks_more_than_we_do_is_answered_in_what_both_speak() -> None:
    hello = bytearray(caller().hello)
    hello[11:13] = b"\x00\x09"  # It speaks 1 to 9.
    assert called().greeted(bytes(hello))[1:3] == b"\x00\x02"


def test_a_proof_that_was_heard_once_is_worth_nothing_the_next_time() -> None:
    one, other = caller(), called()
    proof = one.challenged(other.greeted(one.hello))
    other.proven(proof)
    later = called(nonce=b"c" * NONCE_BYTES)
    later.greeted(one.hello)  # The same hello, replayed.
    with pytest.raises(HandshakeFailed) as refused:
        later.proven(proof)
    assert refused.value.reason is Reason.SECRET


def test_a_proof_sent_back_to_its_maker_is_not_believed() -> None:
    one, other = caller(), called()
    proof = one.challenged(other.greeted(one.hello))
    with pytest.raises(HandshakeFailed) as refused:
        one.welcomed(bytes([4]) + proof[1:])
    assert refused.value.reason is Reason.SECRET


@given(st.data())
def test_nothing_that_either_side_said_can_be_changed_on_the_way(data: st.DataObject) -> None:
    """Whoever sits between them flips one bit of one message: the handshake fails, whatever it was."""
    one, other = caller(), called()
    which = data.draw(st.integers(0, 3))
    messages: list[bytes] = []

    def pass_on(message: bytes) -> bytes:
        if len(messages) == which:
            at = data.draw(st.integers(0, 8 * len(message) - 1))
            message = message[: at // 8] + bytes([message[at // 8] ^ (1 << at % 8)]) + message[at // 8 + 1 :]
        messages.append(message)
        return message

    with pytest.raises(HandshakeFailed):
        one.welcomed(pass_on(other.proven(pass_on(one.challenged(pass_on(other.greeted(pass_on(one.hello))))))))


@given(st.binary(max_size=200), st.integers(0, 6))
def test_any_bytes_are_refused_and_break_nothing(noise: bytes, form: int) -> None:
    challenged = called()
    challenged.greeted(caller().hello)
    for message in (noise, bytes([form]) + noise):
        for hear in (called().greeted, caller().challenged, caller().welcomed, challenged.proven):
            with pytest.raises(HandshakeFailed):
                hear(message)


def test_no_secret_is_no_secret() -> None:
    with pytest.raises(ValueError, match="need a secret"), Table(1) as table:
        Links(table.world.hosts["node-1"].env, introduction(ONE), b"", address_of=lambda node: None, report=print)  # type: ignore[arg-type]


# At the door.


def test_a_node_with_another_secret_is_turned_away_and_both_operators_read_why() -> None:
    with Table() as table:
        table.world.kill("node-2")
        table.start(TWO, secret=b"something else entirely")
        with pytest.raises(LinkLost, match="do not have the same cluster secret"):
            table.ask(TWO, ONE, b"let me in")
        told = table.parties[ONE].reports + table.parties[TWO].reports
        assert [report for report in told if "same cluster secret" in report] == told
        assert len(table.parties[ONE].reports) == len(table.parties[TWO].reports) == 1
        assert "which says that it is node 2" in table.parties[ONE].reports[0]
        assert table.parties[ONE].door.turned_away["secret"] == 1
        for secret in (SECRET, b"something else entirely"):
            assert not any(secret.decode() in report or secret.hex() in report for report in told)


def test_a_node_of_another_cluster_and_a_node_at_the_wrong_address_are_turned_away() -> None:
    with Table() as table:
        table.world.kill("node-2")
        table.start(TWO, Introduction("other", TWO, introduction(TWO).directory_id))
        with pytest.raises(LinkLost, match="another cluster"):
            table.ask(TWO, ONE, b"let me in")
        table.addresses[THREE] = table.addresses[ONE]
        table.world.kill("node-2")
        table.start(TWO)
        with pytest.raises(LinkLost, match="another node answered than was called"):
            table.ask(TWO, THREE, b"are you three?")


def test_strangers_are_reported_now_and_then_and_counted_always() -> None:
    with Table(1) as table:
        for number in range(20):
            stranger = table.dial(f"stranger-{number}", ONE)
            stranger.say(b"GET / HTTP/1.1")
            table.world.run_for(0.1)
            assert stranger.is_closed
        party = table.parties[ONE]
        assert party.door.turned_away["malformed"] == 20
        assert 1 <= len(party.reports) <= 2


def test_a_caller_that_takes_too_long_is_closed() -> None:
    with Table(1) as table:
        stranger = table.dial("stranger", ONE)
        hello = caller(me=TWO, called=ONE).hello
        for byte in (LENGTH.pack(len(hello)) + hello)[:4]:
            stranger.transport.write(bytes([byte]))
            table.world.run_for(1)
        assert not stranger.is_closed
        table.world.run_for(DEADLINES.unproven_s)
        assert stranger.is_closed
        assert table.parties[ONE].door.turned_away["unproven"] == 1


def test_those_who_only_hold_the_door_do_not_keep_a_node_out() -> None:
    with Table() as table:
        strangers = [table.dial(f"stranger-{number}", ONE, settle_s=0.002) for number in range(UNPROVEN_MAX + 20)]
        assert [stranger.is_closed for stranger in strangers] == [True] * 20 + [False] * UNPROVEN_MAX
        assert table.ask(TWO, ONE, b"it is me") == b"echo it is me"


def test_no_more_than_a_kilobyte_is_read_of_a_caller_that_proves_nothing() -> None:
    with Table(1) as table:
        stranger = table.dial("stranger", ONE)
        stranger.transport.write(LENGTH.pack(1020) + bytes(100_000))
        table.world.run_for(0.1)
        assert stranger.is_closed
        announcer = table.dial("announcer", ONE)
        announcer.transport.write(LENGTH.pack(1 << 30))
        table.world.run_for(0.1)
        assert announcer.is_closed


def test_nothing_is_understood_before_the_proof() -> None:
    with Table(1) as table:
        stranger = table.dial("stranger", ONE)
        stranger.transport.write(front(Form.TELL, Kind.RAFT, 0, 5) + b"hello")
        table.world.run_for(0.1)
        assert stranger.is_closed
        assert table.parties[ONE].told == []
        patient = table.dial("patient", ONE)
        patient.say(caller(me=TWO, called=ONE).hello)
        table.world.run_for(0.1)
        patient.transport.write(front(Form.TELL, Kind.RAFT, 0, 5) + b"hello")
        table.world.run_for(0.1)
        assert patient.is_closed
        assert table.parties[ONE].told == []


def test_a_recorded_conversation_played_again_is_turned_away() -> None:
    """Everything that a real caller once sent, byte for byte."""
    with Table(1) as table:
        first = table.dial("node-of-old", ONE)
        real = caller(me=TWO, called=ONE)
        _converse(table, first, real)
        recorded = [real.hello, real.challenged(first.heard()[0])]
        replayer = table.dial("replayer", ONE)
        for message in recorded:
            replayer.say(message)
            table.world.run_for(0.1)
        assert replayer.is_closed
        assert table.parties[ONE].door.turned_away["secret"] == 1
        assert not first.is_closed


def test_a_nodes_own_proof_does_not_open_its_own_door() -> None:
    """A node calls, is passed on to itself, and hears everything that it said."""
    with Table(1) as table:
        mirror = table.dial("mirror", ONE)
        mirror.say(caller(me=ONE, called=TWO).hello)
        table.world.run_for(0.1)
        assert mirror.is_closed
        assert table.parties[ONE].door.turned_away["node"] == 1


def _converse(table: Table, stranger: Stranger, real: Caller) -> None:
    stranger.say(real.hello)
    table.world.run_for(0.1)
    stranger.say(real.challenged(stranger.heard()[0]))
    table.world.run_for(0.1)
    real.welcomed(stranger.heard()[1])
