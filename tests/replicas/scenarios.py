"""Stories that have lost records before, here or elsewhere. Each passes as replication is, and fails with the defect it is named for."""

from collections.abc import Callable

from replicas.scene import Scene

from penstock.errors import ErrorCode
from penstock.partition.follower import Append, Fetch, Fetched, Follower, StartOver, Truncate
from penstock.partition.in_sync import LOOKS_PER_LAG
from penstock.partition.leader import Reached, TimePassed
from penstock.simulator.replicas import leading
from penstock.simulator.replicas.asked import Result
from penstock.wire.batches import Record, encode_batch, read_header


def kip_101_a_cut_by_the_watermark() -> None:
    """A follower knows of a watermark only from the next answer. A cut there loses what was acknowledged, once its new leader dies too."""
    scene = Scene()
    (kept,) = scene.acknowledged()
    assert scene[3].watermark == 0, "it has not heard yet"
    scene[1].kill()
    scene.until(lambda: scene.state.leader == 2)
    scene.cut((2, 3))
    scene.until(lambda: scene[3].epoch == scene.state.leader_epoch)
    scene[2].kill()
    scene.until(lambda: scene.leader is scene[3])
    assert scene.crcs(3) == [kept.crc]


def kip_279_an_epoch_that_the_follower_never_had() -> None:
    """The leader's last epoch before ours is one that we never saw: one answer does not tell how far the logs agree."""
    scene = Scene(replicas=2, nodes=2)
    scene.acknowledged()
    scene.cut_off(2)
    scene.produce(1, needs_all=False)  # Of epoch 0, at the first node only.
    scene.produce(1, needs_all=False)
    scene.run(0.05)
    first, second = scene[1].store, scene[2].store
    assert (first.end_offset, second.end_offset) == (3, 1)
    _as_if_written(scene, 2, epoch=1, count=1)
    _as_if_written(scene, 1, epoch=2, count=2)
    _as_if_written(scene, 2, epoch=3, count=4)
    scene.heal()
    _follow_for_a_while(scene, follower=2, leader=1, epoch=4)
    assert second.headers() == first.headers()


def kip_320_a_report_meant_for_another_leader() -> None:
    """What was reached under an earlier leader says nothing about this one's log, though it arrives here."""
    scene = Scene()
    scene.acknowledged()
    scene.cut_off(3, but=(0,))
    scene.cut((1, 2))
    leads = scene[1].leading
    assert leads is not None
    scene.produce(needs_all=False)
    scene.run(0.02)
    leads.follower_reached(Reached(2, 2, scene[2].node_epoch, scene[1].epoch - 1))
    leads.follower_reached(Reached(3, 2, scene[3].node_epoch, scene[1].epoch + 1))
    assert leads.core.high_watermark == 1


def a_fetch_under_another_epoch() -> None:
    """Whoever asks an earlier leader gets nothing of a later one, though it is the same node."""
    scene = Scene()
    scene.acknowledged(2)
    leads = scene[1].leading
    assert leads is not None
    for epoch, code in ((-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        answer = leads._answer_to(Fetch(epoch, 1, 0))
        assert (answer.error_code, answer.records) == (code, b"")


def kip_966_the_last_replica_standing() -> None:
    """T0: both followers fall out. T1: the leader alone acknowledges. T2: it loses power. T3: the followers are back, and must not lead.
    T4: it is back, and everything is there."""
    scene = Scene()
    scene.acknowledged()
    scene.cut_off(2)
    scene.cut_off(3)
    scene.until(lambda: scene.state.in_sync == (1,))
    scene.acknowledged()
    scene[1].lose_power()
    scene.heal()
    scene.run(2.0)
    assert scene.state.leader == -1, "a replica leads that never had the last record"
    scene[1].start()
    scene.until(lambda: scene.leader is not None and set(scene.state.in_sync) == {1, 2, 3})
    assert [len(scene.crcs(number)) for number in (1, 2, 3)] == [2, 2, 2]


def kip_966_nothing_is_committed_below_the_least_set() -> None:
    """Whoever left a set that became too small may lead again: nothing was committed without it."""
    scene = Scene(min_insync=2)
    scene.acknowledged()
    scene.cut_off(2)
    scene.cut_off(3)
    scene.until(lambda: len(scene.state.in_sync) == 1)
    scene.run(0.1)
    scene.produce(1, needs_all=False)
    scene.run(0.1)
    scene[1].kill()
    scene.heal()
    scene.until(lambda: scene.leader is not None and scene.leader.leading is not None and scene.leader.leading.core.is_enough)
    scene.acknowledged(2)
    scene[1].start()
    scene.until(lambda: set(scene.state.in_sync) == {1, 2, 3})
    assert scene.crcs(1) == scene.crcs(2) == scene.crcs(3)


def kip_903_a_life_that_is_over() -> None:
    """A follower reports, restarts with less, and only then the leader's proposal to let it in arrives."""
    scene = Scene(flushes_before_ack=False, min_insync=1)
    scene.acknowledged()
    scene.stop_flushing(3)
    scene[3].kill()
    scene[3].start()
    held = scene.hold_questions(1)
    scene.until(lambda: bool(held))
    scene.acknowledged(3)
    scene.run(0.05)
    scene[3].lose_power()
    scene[3].store.truncate_to(scene[3].store.start_offset)  # All of it was lost, as it may.
    scene.cut((1, 3), (2, 3))
    scene[3].start()
    scene.until(lambda: scene.world.controller.image.nodes[3].is_live and scene[3].epoch >= 0)
    before = scene.state.partition_epoch
    for arrive in list(held):
        arrive()
    assert scene.state.partition_epoch == before and 3 not in scene.state.in_sync


def an_answer_that_never_comes() -> None:
    """The set was changed, and its leader does not hear of it: nothing is acknowledged that the new member lacks."""
    scene = Scene(flushes_before_ack=True)
    scene.acknowledged()
    scene[3].kill()
    scene.until(lambda: 3 not in scene.state.in_sync)
    scene[3].start()
    scene.run(0.001)
    scene.until(lambda: scene[1].leading is not None and scene[1].leading.core._set._proposal is not None)
    scene.cut((1, 0), (1, 3))
    scene.until(lambda: 3 in scene.state.in_sync)
    late = scene.produce(1)
    scene.run(0.1)
    assert late.result is not Result.ACKNOWLEDGED
    scene[1].kill()
    scene[2].kill()
    scene.until(lambda: scene.leader is scene[3])


def a_no_that_was_not_the_last_word() -> None:
    """A proposal is refused while an earlier attempt at it is still on its way. It arrives after all."""
    scene = Scene(nodes=2, replicas=2, asks_again=True)
    scene.acknowledged()
    scene.cut_off(2)
    scene.until(lambda: scene.state.in_sync == (1,))
    held = scene.hold_questions(1)
    scene.heal()
    scene.cut((2, 0))  # It is fenced, and follows.
    scene.until(lambda: len(held) >= 2)
    held[1]()  # Refused: it is fenced.
    scene.cut((1, 2))
    unsure = scene.produce(1)
    scene.run(0.05)
    del scene.world.cuts[2, 0], scene.world.cuts[0, 2]  # type: ignore[arg-type]
    scene.until(lambda: scene.world.controller.image.nodes[2].is_live)
    held[0]()
    if 2 in scene.state.in_sync:
        scene[1].kill()
        scene.until(lambda: scene.leader is scene[2])
        assert unsure.result is not Result.ACKNOWLEDGED, "its new leader lacks it"


def a_new_leader_with_a_late_watermark() -> None:
    """Its predecessor has told of a later end. This one tells nothing, and lets nobody in, before it knows as much."""
    scene = Scene()
    scene.acknowledged(3)
    assert scene[1].leading.tell_end() == 3  # type: ignore[union-attr]
    scene.cut((2, 3))
    scene[1].kill()
    scene.until(lambda: scene.leader is scene[2])
    leads = scene[2].leading
    assert leads is not None and leads.core.high_watermark < 3
    assert leads.tell_end() is None
    scene.heal()
    scene.until(lambda: leads.core.may_tell_end)
    assert leads.tell_end() == 3


def a_replica_that_lacks_what_an_earlier_leader_committed() -> None:
    """It has reached the new leader's watermark, which is too low yet. To let it in would make it a leader of less than was promised."""
    scene = Scene(nodes=4, replicas=4, lag_max_s=0.5)
    scene.acknowledged()
    scene.cut_off(3)
    scene.until(lambda: 3 not in scene.state.in_sync)
    scene.acknowledged(3)
    scene.cut_off(2, but=(0,))
    scene[1].kill()
    scene.until(lambda: scene.leader is scene[2])
    leads = scene[2].leading
    assert leads is not None and leads.core.high_watermark < leads.core.epoch_start == 4
    leads.follower_reached(Reached(3, scene[2].watermark, scene[3].node_epoch, scene[2].epoch))
    assert not any(bound.node == 3 for bound in leads.core._set.bounds)


def a_leader_that_slept() -> None:
    """It wakes up among queued produce requests, while another one leads."""
    scene = Scene()
    scene.acknowledged(2)
    scene.pause(1, 1.0)
    scene.until(lambda: scene.leader is scene[2])
    scene.acknowledged(2)
    leads = scene[1].leading
    assert leads is not None, "it does not know yet"
    zombies = [scene.produce(1) for _ in range(3)]
    scene.until(lambda: scene[1].following is not None)
    scene.until(lambda: set(scene.state.in_sync) == {1, 2, 3})
    assert not any(asked.result is Result.ACKNOWLEDGED for asked in zombies)
    assert scene.crcs(1) == scene.crcs(2) == scene.crcs(3)


def a_cut_during_a_flush() -> None:
    """A flush began, what it was to cover was cut off and replaced. When it ends, it vouches for nothing of that."""
    scene = Scene(nodes=2, replicas=2)
    scene.acknowledged()
    scene.cut_off(1)
    scene.stop_flushing(1)
    scene.produce(1, needs_all=False)
    store = scene[1].store
    flush = store.begin_flush()
    assert flush is not None
    scene.until(lambda: scene.leader is scene[2])
    scene.acknowledged()
    scene.heal()
    scene.until(lambda: scene.crcs(1) == scene.crcs(2))
    store.end_flush(flush)
    scene[1].settled()
    scene.run(0.05)
    assert (store.flushed_end, scene.state.in_sync) == (1, (2,)), "the record that came instead is not on its disk"


def a_follower_that_fetches_and_never_flushes() -> None:
    """It is caught up in memory alone. It must not hold the others up for ever."""
    scene = Scene()
    scene.stop_flushing(3)
    waiting = scene.produce()
    scene.until(lambda: waiting.result is Result.ACKNOWLEDGED)
    assert (scene.state.in_sync, scene[3].store.end_offset) == ((1, 2), 1)


def a_leader_whose_disk_fails() -> None:
    """It hands over at once. Nothing that was acknowledged is lost, and producers go on."""
    scene = Scene()
    scene.acknowledged(2)
    waiting = scene.produce()
    scene[1].fail_disk()
    assert waiting.result is Result.UNKNOWN
    scene.until(lambda: scene.leader is not None and scene.leader.node_id != 1, seconds=0.1)
    assert 1 not in scene.state.in_sync and 1 not in scene.state.eligible
    scene.acknowledged(2)


def a_leader_that_was_away_judges_nobody_by_that_time() -> None:
    scene = Scene(session_seconds=5.0)
    scene.acknowledged()
    leads = scene[1].leading
    assert leads is not None
    scene.produce(needs_all=False)
    scene.pause(1, 10 * scene.world.plan.lag_max_s)
    scene.run(10 * scene.world.plan.lag_max_s + scene.world.plan.lag_max_s / LOOKS_PER_LAG)
    leads.step(TimePassed(scene[1].store.end_offset))
    assert scene.state.in_sync == (1, 2, 3)


def _as_if_written(scene: Scene, number: int, *, epoch: int, count: int) -> None:
    store = scene[number].store
    for value in range(count):
        batch = encode_batch([Record(value=b"%d %d" % (epoch, value))], base_offset=store.end_offset, leader_epoch=epoch)
        store.append(batch, read_header(batch))


def _follow_for_a_while(scene: Scene, *, follower: int, leader: int, epoch: int) -> None:
    """Two stores and nothing else: the follower's core asks, and gets what the leader's log tells."""
    mine, its = scene[follower].store, scene[leader].store
    core = Follower(epoch, mine, 0)
    for _ in range(20):
        asked = core.next_fetch()
        diverging = leading.diverging_at(its, asked.offset, asked.last_epoch)
        records = b"" if diverging is not None else its.read(asked.offset, its.end_offset, 50)
        for step in core.answered(asked, Fetched(0, 0, 0, diverging, records)):
            match step:
                case Append(batches):
                    for batch, header in batches:
                        mine.append(batch, header)
                case Truncate(offset, _):
                    mine.truncate_to(offset)
                case StartOver(offset):
                    mine.start_over(offset)
                case _:
                    pass


SCENARIOS: dict[str, Callable[[], None]] = {
    "cuts-by-the-watermark": kip_101_a_cut_by_the_watermark,
    "cuts-once-and-by-the-leaders-word-alone": kip_279_an_epoch_that_the_follower_never_had,
    "hears-followers-of-other-leaders": kip_320_a_report_meant_for_another_leader,
    "serves-followers-of-other-leaders": a_fetch_under_another_epoch,
    "elects-anybody": kip_966_the_last_replica_standing,
    "commits-with-too-few": kip_966_nothing_is_committed_below_the_least_set,
    "lets-an-earlier-life-in": kip_903_a_life_that_is_over,
    "forgets-whom-it-proposed": an_answer_that_never_comes,
    "takes-a-no-for-the-last-word": a_no_that_was_not_the_last_word,
    "tells-its-end-at-once": a_new_leader_with_a_late_watermark,
    "lets-in-before-its-epoch-begins": a_replica_that_lacks_what_an_earlier_leader_committed,
    "lets-a-flush-vouch-after-a-cut": a_cut_during_a_flush,
    "counts-what-is-not-flushed": a_follower_that_fetches_and_never_flushes,
}
OTHERS: tuple[Callable[[], None], ...] = (a_leader_that_slept, a_leader_whose_disk_fails, a_leader_that_was_away_judges_nobody_by_that_time)
