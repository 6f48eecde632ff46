"""What `penstock cluster moves` tells of moves under way, in virtual time: how far they are, how fast, and what stands still."""

import pytest
from clusters.scene import CLIENT, TOPIC, Scene
from clusters.test_moves import reassign

from penstock.cli.cluster_list_moves import Moves, as_plain, look_twice, silent_lines, watch_all
from penstock.vocabulary import TopicPartition

WHERE = TopicPartition(TOPIC, 0)
RATE = 2_000
SLOW = {"replication_throttle": RATE, "replica_fetch_bytes": 1_000}
VALUE = bytes(500)
RECORDS = 40


def begun(scene: Scene) -> tuple[list[int], int]:
    """A move of a partition with some records to a third node; its old replicas and the new one."""
    scene.create(replicas=2)
    for _ in range(RECORDS):
        scene.produce(VALUE)
    state = scene.cluster.state(TOPIC, 0)
    assert state is not None
    old = [int(node) for node in state.replicas]
    (new,) = {1, 2, 3} - set(old)
    reassign(scene, [old[1], new])
    return old, new


def looked(scene: Scene, apart_s: float = 3.0) -> Moves:
    return scene.do(lambda client: look_twice(client, apart_s))


def test_a_move_is_told_with_its_bytes_its_rate_the_time_left_and_its_throttle() -> None:
    with Scene(**SLOW) as scene:
        old, new = begun(scene)
        found = looked(scene)
        (each,) = found.progress
        assert (each.where, set(each.old), set(each.new)) == (WHERE, set(old), {old[1], new})
        assert each.whole_bytes is not None and each.whole_bytes > RECORDS * len(VALUE)
        assert each.copied_bytes is not None and 0 < each.copied_bytes < each.whole_bytes
        assert each.bytes_per_second is not None and RATE / 3 < each.bytes_per_second < 3 * RATE
        assert each.seconds_left == pytest.approx((each.whole_bytes - each.copied_bytes) / each.bytes_per_second)
        assert (each.still_since, found.throttle(each), found.state(each)) == (None, RATE, "is copied now")
        (row,) = as_plain(found)["moves"]
        assert (sorted(row["from"]), row["stands_still"], row["throttle"]) == (sorted(old), False, RATE)
        scene.until(lambda: scene.in_sync() == {old[1], new}, within=60.0)
        assert looked(scene).progress == []


def test_a_move_whose_new_node_is_away_stands_still_and_the_node_is_named() -> None:
    with Scene(**SLOW) as scene:
        _, new = begun(scene)
        scene.kill(new)
        scene.until(lambda: not scene.node(scene.controller()).image.nodes[new].is_live)  # type: ignore[index]
        found = looked(scene)
        (each,) = found.progress
        assert (found.away, each.copied_bytes, each.seconds_left) == ([new], None, None)
        assert found.state(each) == f"waits: node {new} is away"
        (line,) = silent_lines(found)
        assert line.startswith(f"node {new} could not be asked: ")


def test_a_move_that_gets_nothing_between_two_looks_stands_still_since_the_first() -> None:
    with Scene(session_timeout_ms=600_000, **SLOW) as scene:
        old, new = begun(scene)
        scene.run_for(2.0)
        scene.cut(new, *old)
        found = looked(scene)
        (each,) = found.progress
        assert each.still_since is not None and found.now - each.still_since == pytest.approx(3.0, abs=1.0)
        assert each.bytes_per_second == 0 and each.seconds_left is None
        assert found.state(each).startswith("stands still since ")
        assert as_plain(found)["moves"][0]["stands_still"]
        scene.heal()
        scene.until(lambda: scene.in_sync() == {old[1], new}, within=60.0)


def test_a_node_that_the_command_cannot_reach_is_named_and_holds_nothing_up() -> None:
    with Scene(**SLOW) as scene:
        old, new = begun(scene)
        scene.do(lambda client: client.metadata())
        scene.cut_clients(new)
        before = scene.world.hosts[CLIENT].env.now()  # type: ignore[union-attr]
        found = looked(scene)
        assert scene.world.hosts[CLIENT].env.now() - before < 20.0  # type: ignore[union-attr]
        (each,) = found.progress
        assert list(found.silent) == [new] and each.copied_bytes is None and each.whole_bytes is not None
        assert found.state(each) == "unknown: its new replicas cannot be asked"
        assert as_plain(found)["not_asked"][0]["node"] == new
        scene.heal()
        scene.until(lambda: scene.in_sync() == {old[1], new}, within=60.0)


def test_watching_ends_with_the_last_move(capsys: pytest.CaptureFixture[str]) -> None:
    with Scene(**SLOW) as scene:
        old, new = begun(scene)
        scene.do(watch_all, within=120.0)
        assert scene.in_sync() == {old[1], new}
        assert "100 %  nothing is on its way" in capsys.readouterr().err
