"""Replicas that need entries which are gone."""

from consensus.scene import Scene

from penstock.consensus.messages import Chunk, ChunkReply
from penstock.consensus.options import Options


def one_behind(chunk_bytes_max: int = 5) -> Scene:
    """The third voter is away while the others go on and take snapshots."""
    scene = Scene(3, options=Options(chunk_bytes_max=chunk_bytes_max))
    scene.elect(1)
    scene.beat(1)
    scene.crash(3)
    for number in range(5):
        scene.propose(1, b"v%d" % number)
    scene.deliver()
    scene.beat(1)
    scene.take_snapshot(1)
    scene.take_snapshot(2)
    return scene


def test_a_snapshot_arrives_in_pieces_and_the_log_goes_on_after_it() -> None:
    scene = one_behind()
    scene.start(3)
    pieces = []

    def count(sender: int, to: int, message: object) -> bool:
        if isinstance(message, Chunk):
            pieces.append(message)
        return True

    scene.pass_time(scene.options.heartbeat_seconds + 0.001, 1)
    scene.deliver(count)
    scene.propose(1, b"v9")
    scene.deliver()
    scene.beat(1)
    assert len(pieces) > 3
    assert scene.values(3) == [b"v0", b"v1", b"v2", b"v3", b"v4", b"v9"]
    scene.restart(3)
    assert scene.values(3) == [b"v0", b"v1", b"v2", b"v3", b"v4"], "what is not in the snapshot is applied when it is known to be committed"
    scene.beat(1)
    assert scene.values(3)[-1] == b"v9"


def test_pieces_that_are_lost_or_doubled_change_nothing() -> None:
    scene = one_behind()
    scene.start(3)
    lost = iter(range(1_000))

    def every_third_is_lost(sender: int, to: int, message: object) -> bool:
        return not isinstance(message, Chunk | ChunkReply) or next(lost) % 3 != 1

    for _ in range(40):
        scene.pass_time(scene.options.heartbeat_seconds + 0.001, 1)
        scene.links = [link for link in scene.links for _ in range(2)]
        scene.deliver(every_third_is_lost)
    assert scene.values(3) == [b"v0", b"v1", b"v2", b"v3", b"v4"]


def test_a_restart_in_the_middle_begins_anew() -> None:
    scene = one_behind()
    scene.start(3)
    scene.pass_time(scene.options.heartbeat_seconds + 0.001, 1)
    passed = iter(range(1_000))
    scene.deliver(lambda sender, to, message: not isinstance(message, Chunk) or next(passed) < 2)
    scene.restart(3)
    for _ in range(3):
        scene.beat(1)
    assert scene.values(3) == [b"v0", b"v1", b"v2", b"v3", b"v4"]


def test_a_snapshot_counts_when_it_is_on_the_disk() -> None:
    scene = one_behind()
    scene.crash(2)
    scene.start(3)
    scene.slow = [3]
    scene.pass_time(scene.options.heartbeat_seconds + 0.001, 1)
    scene.propose(1, b"v9")
    for _ in range(3):
        scene.deliver()
        scene.pass_time(scene.options.heartbeat_seconds + 0.001, 1)
    assert b"v9" not in scene.answers
    assert scene[3].store.end == 2
    scene.slow = []
    scene.flush(3)
    scene.deliver()
    scene.beat(1)
    assert b"v9" in scene.answers
    assert scene[3].store.start >= 7


def test_a_newer_snapshot_takes_the_place_of_the_one_on_its_way() -> None:
    scene = one_behind()
    scene.start(3)
    scene.pass_time(scene.options.heartbeat_seconds + 0.001, 1)
    passed = iter(range(1_000))
    scene.deliver(lambda sender, to, message: not isinstance(message, Chunk) or next(passed) < 2)
    scene.propose(1, b"v5")
    scene.deliver(lambda sender, to, message: to != 3)
    scene.take_snapshot(1)
    for _ in range(3):
        scene.beat(1)
    assert scene.values(3) == [b"v0", b"v1", b"v2", b"v3", b"v4", b"v5"]
