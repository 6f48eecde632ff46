"""The bounds that a core lives in. Every one of them is right at any size, and the simulator tries them small."""

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True, slots=True)
class Options:
    # A follower that hears nothing for a time drawn between these two stands for election. The smaller one must be many heartbeats and
    # several flushes long; the distance between them keeps candidates out of each other's way.
    election_seconds_min: float = 1.0
    election_seconds_max: float = 2.0
    heartbeat_seconds: float = 0.2
    # One append, and how many of them may be on their way to one replica.
    batch_entries_max: int = 1_000
    batch_bytes_max: int = 256 * KIB
    in_flight_max: int = 8
    chunk_bytes_max: int = 256 * KIB
    # What a leader without a majority may heap up before it refuses.
    uncommitted_bytes_max: int = 16 * 1024 * KIB
    waiting_max: int = 10_000
    # An observer within this many entries of the leader's end has caught up and may vote: the vote must not wait for a long way.
    caught_up_entries_max: int = 100
    # Observers that say nothing for this long are forgotten; they knock when they are back.
    observer_seconds: float = 30.0
    observers_max: int = 1_000
