"""`penstock cluster scrub` in virtual time: every copy is read, what has rotted is mended or named, and nothing is waited for in vain.
And what `penstock consume` says of a place that cannot be read."""

from typing import Any

import pytest
from clusters.scene import CLIENT, TOPIC, Scene
from clusters.test_damaged_copies import harm, written
from clusters.test_rot import NEVER, SEGMENTS, VALUES, Rotten, base_of

from penstock.broker.partitions import topic_directory
from penstock.cli.cluster_picture import take_picture
from penstock.cli.cluster_scrub import as_plain, chosen_copies
from penstock.cli.consume import Troubles, reader_settings
from penstock.cli.scrubbing import Findings, scrub
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import GaveUp, UnreadablePlace
from penstock.peers.positions import FROM_EARLIEST
from penstock.peers.reader import Reader
from penstock.vocabulary import TopicId, TopicPartition

PATIENCE_S = 90.0


async def scrubbing(client: Client, rate: int | None = None) -> Findings:
    copies, left_out = chosen_copies(await take_picture(client), TOPIC, None)
    findings = await scrub(client, copies, rate=rate, patience_s=PATIENCE_S, show=lambda findings: None)
    findings.unread += left_out
    return findings


def scrubbed(scene: Scene, rate: int | None = None) -> Findings:
    return scene.do(lambda client: scrubbing(client, rate), within=600.0)


def places(rows: list[dict[str, Any]]) -> set[tuple[int, int]]:
    return {(row["node"], row["offset"]) for row in rows}


def test_every_copy_is_read_and_what_has_rotted_is_mended() -> None:
    with Scene(**NEVER) as scene:
        rotten, leader, (follower, other) = Rotten(scene), scene.leads(), scene.followers()
        spoiled = [(node, *rotten.rot(node, place)) for node, place in ((follower, 0), (leader, 2), (other, -1))]
        findings = scrubbed(scene)
        assert places(as_plain(findings)["mended"]) == {(node, base_of(path) + 1) for node, path, _ in spoiled}
        assert all(rotten.is_mended(*each) for each in spoiled)
        assert (findings.copies, findings.damaged, findings.unread) == (3, [], [])
        assert findings.bytes > 3 * sum(map(len, VALUES))
        again = scrubbed(scene)
        assert (again.copies, again.mended) == (3, [])
        rotten.check()


def test_where_there_is_no_other_copy_the_place_is_named_and_the_rest_is_read() -> None:
    with Scene(("controller", "broker"), **NEVER) as scene:
        rotten = Rotten(scene, replicas=1)
        paths = [rotten.rot(2, place)[0] for place in (1, 3)]
        before = scene.world.hosts[CLIENT].env.now()  # type: ignore[union-attr]
        findings = scrubbed(scene)
        assert scene.world.hosts[CLIENT].env.now() - before < PATIENCE_S, "nothing was waited for"  # type: ignore[union-attr]
        told = as_plain(findings)
        assert [(row["node"], row["offset"], row["next_offset"]) for row in told["damaged"]] == [
            (2, base_of(path) + 1, base_of(path) + 2) for path in paths
        ]
        assert {row["reason"] for row in told["damaged"]} == {"no other replica is in sync"}
        assert (told["is_well"], findings.copies, findings.mended, findings.unread) == (False, 1, [], [])


def test_a_copy_that_its_node_gives_up_is_read_on_when_it_was_fetched_anew() -> None:
    """Compaction has been at work on both sides, so that the place cannot be mended batch by batch."""
    with Scene(cleaner_backoff_ms=200, **NEVER) as scene:
        rotten, leader = Rotten(scene, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0), scene.leads()
        scene.until(lambda: "-" in rotten.path(leader, 0).rsplit("/", 1)[-1])
        scene.world.hosts[scene.host(leader)].disk.rot(rotten.path(leader, 0), 100)
        findings = scrubbed(scene)
        assert {each.copy.node for each in findings.mended} == {leader}
        assert (findings.copies, findings.damaged, findings.unread) == (3, [], [])
        assert scene.in_sync() == {1, 2, 3}
        rotten.check()


def test_damage_in_the_middle_of_a_long_answer_is_mended_too() -> None:
    """The node has announced the answer and can only break the connection."""
    with Scene(**NEVER) as scene:
        topic_id = scene.create(segment_bytes=2 << 20)
        for _ in range(30):
            scene.produce(bytes(50_000))
        follower = scene.followers()[0]
        disk = scene.world.hosts[scene.host(follower)].disk
        (path,) = [path for path in disk.files() if path.startswith(topic_directory(TopicId(topic_id), 0)) and path.endswith(".log")]
        disk.rot(path, 900_000)
        findings = scrubbed(scene)
        assert [each.copy.node for each in findings.mended] == [follower]
        assert (findings.copies, findings.damaged, findings.unread) == (3, [], [])


def test_a_log_that_does_not_know_its_end_is_read_as_far_as_it_goes() -> None:
    with Scene(("controller", "broker")) as scene:
        topic_id = written(scene, replicas=1)
        scene.kill(2)
        harm(scene, 2, topic_id, "a missing last batch")
        scene.start(2)
        scene.until(lambda: scene.cluster.serves(scene.host(2)))
        (damaged,) = scrubbed(scene).damaged
        assert (damaged.offset, damaged.next_offset) == (9, None)
        assert "KAFKA_STORAGE_ERROR" in damaged.reason and "no other replica is in sync" in damaged.reason


def test_copies_that_cannot_be_read_are_named() -> None:
    with Scene(**NEVER) as scene:
        rotten, away = Rotten(scene), scene.followers()[0]
        scene.kill(away)
        scene.until(lambda: away not in scene.in_sync())
        told = as_plain(scrubbed(scene))
        assert (told["is_well"], told["copies"]) == (False, 2)
        assert [(row["node"], row["reason"]) for row in told["unread"]] == [(away, "its node is away")]
        scene.start(away)
        rotten.check()


def test_a_node_that_goes_while_it_is_read_is_given_up_after_a_while() -> None:
    with Scene(**NEVER) as scene:
        Rotten(scene)
        away = scene.followers()[0]
        reading = scene.begin(lambda client: scrubbing(client, 500))
        scene.run_for(3.0)
        scene.kill(away)
        scene.until(reading.done, within=300.0)
        (unread,) = reading.result().unread
        assert (unread.copy.node, unread.reason, unread.offset > 0) == (away, f"node {away} does not answer", True)
        assert reading.result().copies == 2


def test_a_topic_that_is_deleted_while_it_is_read_is_no_finding() -> None:
    with Scene(**NEVER) as scene:
        Rotten(scene)
        reading = scene.begin(lambda client: scrubbing(client, 500))
        scene.run_for(3.0)
        scene.do(lambda client: client.delete_topic(TOPIC))
        scene.promised.clear()
        scene.until(reading.done, within=60.0)
        findings = reading.result()
        assert ({copy.node for copy in findings.gone}, findings.damaged, findings.unread) == ({1, 2, 3}, [], [])


def test_no_more_is_read_in_a_second_than_the_throttle_says() -> None:
    with Scene(**NEVER) as scene:
        Rotten(scene)
        before = scene.world.hosts[CLIENT].env.now()  # type: ignore[union-attr]
        findings = scrubbed(scene, 1_000)
        assert scene.world.hosts[CLIENT].env.now() - before > findings.bytes / 3 / 1_000  # type: ignore[union-attr]


def test_consume_says_at_once_where_bytes_are_damaged_and_in_the_end_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with Scene(("controller", "broker"), **NEVER) as scene:
        offset = base_of(Rotten(scene, replicas=1).rot(2)[0]) + 1
        read: list[int] = []

        async def consuming(client: Client) -> None:
            settings = reader_settings(is_following=True, is_committed_only=False)
            async with Reader(client, {TopicPartition(TOPIC, 0): FROM_EARLIEST}, settings) as reader:
                async for record in reader:
                    read.append(record.offset)

        with pytest.raises(GaveUp) as ended:
            scene.do(consuming)
        assert read == list(range(offset))
        said = f"node 2 cannot read orders-0 at offset {offset} (CORRUPT_MESSAGE): the bytes there on its disk have changed"
        assert capsys.readouterr().err.startswith(f"penstock: still trying: {said}")
        assert said in ended.value.problem and "penstock cluster scrub --topic orders" in ended.value.advice


def test_consume_says_nothing_of_trouble_that_passes(capsys: pytest.CaptureFixture[str]) -> None:
    troubles, failure = Troubles(), UnreadablePlace(ErrorCode.KAFKA_STORAGE_ERROR, TopicPartition(TOPIC, 0), 2, 5)
    troubles.note(failure, 0.0)
    assert capsys.readouterr().err == ""
    troubles.note(failure, 4.0)
    troubles.note(failure, 5.0)
    assert capsys.readouterr().err == f"penstock: still trying: {failure.problem}\n", "once"


def test_only_the_copies_that_are_asked_for_are_chosen() -> None:
    with Scene() as scene:
        scene.create(**SEGMENTS)
        scene.create("other", replicas=1)
        picture = scene.do(take_picture)
        assert {(copy.where, copy.node) for copy in chosen_copies(picture, None, 1)[0]} >= {(TopicPartition(TOPIC, 0), 1)}
        assert {copy.node for copy in chosen_copies(picture, None, 1)[0]} == {1}
        assert {copy.where.topic for copy in chosen_copies(picture, "other", None)[0]} == {"other"}
