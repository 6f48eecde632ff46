"""What a leader sends to a peer next: entries, a heartbeat, or a piece of its snapshot."""

from penstock.consensus.messages import Append, Chunk
from penstock.consensus.peer import Pace, Peer
from penstock.consensus.state import State
from penstock.vocabulary import Offset


def feed(state: State, peer: Peer, round_number: int, *, is_beat: bool = False) -> None:
    """Sends what the peer can take now. On a beat something is always sent: it is how a peer hears that the leader lives."""
    if peer.next < state.log.start and peer.pace is not Pace.INSTALLING:
        _begin_snapshot(state, peer)
    match peer.pace:
        case Pace.INSTALLING:
            _send_chunk(state, peer, round_number, is_beat=is_beat)
        case Pace.PROBING:
            if is_beat or not peer.is_waiting:
                peer.is_waiting = True
                _send_append(state, peer, round_number)
        case Pace.STREAMING:
            _stream(state, peer, round_number, is_beat=is_beat)


def _stream(state: State, peer: Peer, round_number: int, *, is_beat: bool) -> None:
    has_sent = False
    while peer.next < state.log.end and len(peer.in_flight) < state.options.in_flight_max:
        peer.next = _send_append(state, peer, round_number)
        peer.in_flight.append(peer.next)
        has_sent = True
    if not has_sent and (is_beat or peer.committed_end < state.committed_end):
        _send_append(state, peer, round_number, is_empty=True)


def _send_append(state: State, peer: Peer, round_number: int, *, is_empty: bool = False) -> Offset:
    log, options = state.log, state.options
    entries = () if is_empty else log.entries(peer.next, entries_max=options.batch_entries_max, bytes_max=options.batch_bytes_max)
    previous_term = log.term_before(peer.next)
    state.send(peer.replica, Append(state.me, state.term, peer.next, previous_term, entries, state.committed_end, round_number))
    peer.committed_end = state.committed_end
    return Offset(peer.next + len(entries))


def _begin_snapshot(state: State, peer: Peer) -> None:
    head = state.log.snapshot
    if head is None:
        # It was itself installed just now and is not durable yet: what can be sent is that this leader lives.
        peer.probe(state.log.end)
    else:
        peer.install(head)


def _send_chunk(state: State, peer: Peer, round_number: int, *, is_beat: bool) -> None:
    head = state.log.snapshot
    if head is not None and head != peer.head:
        peer.install(head)  # A newer one has taken its place: the pieces of the old one are gone.
    if head is None or (peer.is_waiting and not is_beat):
        return
    content = state.log.read_snapshot(peer.position, state.options.chunk_bytes_max)
    peer.is_waiting = True
    state.send(peer.replica, Chunk(state.me, state.term, head, peer.position, content, round_number))
