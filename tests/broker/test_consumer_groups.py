"""Groups of the new protocol at a node: what is said on the wire, what topics that come and grow do, and what outlives a restart."""

from typing import Any

import pytest
from members import Member, coordinated
from serving import Line, Serving
from waiting import PATIENCE_MS

from penstock.wire.api_keys import ApiKey
from penstock.wire.consumer_protocol import read_assignment, write_subscription

ALL_LOOPS = True

QUICK = {
    "group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 4, "group_min_session_timeout_ms": 100,
    "group_consumer_assignment_interval_ms": 0,
}  # fmt: skip


class Consumer:
    """One member of the new protocol, and what it was last told."""

    def __init__(self, line: Line, member_id: str, group: str = "g") -> None:
        self.line = line
        self.names = {"group_id": group, "member_id": member_id}
        self.epoch = 0
        self.owned: dict[bytes, tuple[int, ...]] = {}

    async def join(self, *topics: str, version: int = 1, **said: Any) -> Any:
        details = {"subscribed_topic_names": topics or ("a",), "rebalance_timeout_ms": PATIENCE_MS} | said
        return await self.beat(version=version, **details)

    async def beat(self, *, version: int = 1, **said: Any) -> Any:
        owned = [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in self.owned.items()]
        answer = await self.line.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, version, member_epoch=self.epoch, topic_partitions=owned, **(self.names | said)
        )
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {row.topic_id.bytes: row.partitions for row in answer.assignment.topic_partitions}
        return answer

    @property
    def partitions(self) -> list[int]:
        return sorted(number for numbers in self.owned.values() for number in numbers)


async def opened(serving: Serving, **changes: Any) -> Line:
    await serving.open(**(QUICK | changes))
    line = await serving.line()
    await coordinated(line)
    await line.create("a", 3)
    return line


async def settled(*consumers: Consumer) -> None:
    for _ in range(6):
        for consumer in consumers:
            assert (await consumer.beat()).error_code == 0


@pytest.mark.parametrize("version", [0, 1])
async def test_a_member_joins_stays_and_leaves(serving: Serving, version: int) -> None:
    consumer = Consumer(await opened(serving), "me" if version else "")
    answer = await consumer.join(version=version)
    assert (answer.error_code, answer.error_message, answer.member_epoch, answer.heartbeat_interval.total_seconds()) == (0, None, 1, 5)
    assert (consumer.partitions, bool(answer.member_id)) == ([0, 1, 2], True)
    consumer.names["member_id"] = answer.member_id
    steady = await consumer.beat(version=version)
    assert (steady.error_code, steady.member_epoch, steady.assignment) == (0, 1, None)
    consumer.epoch = -1
    gone = await consumer.beat(version=version)
    assert (gone.error_code, gone.member_epoch) == (0, -1)


async def test_a_refusal_says_why(serving: Serving) -> None:
    consumer = Consumer(await opened(serving), "me")
    consumer.epoch = 4
    answer = await consumer.beat()
    assert (answer.error_code, answer.error_message) == (69, "there is no consumer group 'g'")


async def test_two_members_share_a_topic_and_what_it_grows_by(serving: Serving) -> None:
    line = await opened(serving)
    one, other = Consumer(line, "one"), Consumer(line, "other")
    await one.join()
    await other.join()
    await settled(one, other)
    assert sorted(one.partitions + other.partitions) == [0, 1, 2]
    grown = {"name": "a", "count": 8, "assignments": None}
    await line.ask(ApiKey.CREATE_PARTITIONS, topics=[grown], timeout_ms=PATIENCE_MS, validate_only=False)
    await settled(one, other)
    assert sorted(one.partitions + other.partitions) == list(range(8))
    assert len(one.partitions) == len(other.partitions) == 4


async def test_a_pattern_finds_topics_that_are_made_later_and_forgets_those_that_go(serving: Serving) -> None:
    line = await opened(serving)
    consumer = Consumer(line, "me")
    answer = await consumer.join(subscribed_topic_names=None, subscribed_topic_regex="logs-.*|__.*")
    assert (answer.error_code, consumer.owned) == (0, {}), "the cluster's own topics are nobody's business"
    await line.create("logs-x", 2)
    await settled(consumer)
    assert consumer.partitions == [0, 1]
    await line.ask(ApiKey.DELETE_TOPICS, topics=[{"name": "logs-x", "topic_id": bytes(16)}], timeout_ms=PATIENCE_MS)
    await settled(consumer)
    assert consumer.owned == {}


async def test_a_restart_changes_nothing_for_the_members(serving: Serving) -> None:
    line = await opened(serving)
    one, other = Consumer(line, "one"), Consumer(line, "other")
    await one.join()
    await other.join()
    await settled(one, other)
    had = one.partitions, other.partitions, one.epoch
    await serving.close()
    await serving.open(**QUICK)
    one.line = other.line = line = await serving.line()
    await coordinated(line)
    assert (await one.beat()).assignment is None
    assert (await other.beat()).assignment is None
    assert (one.partitions, other.partitions, one.epoch) == had


async def test_groups_are_listed_and_described_by_their_kind(serving: Serving) -> None:
    line = await opened(serving)
    await Consumer(line, "me").join("a", rack_id="r", server_assignor="range")
    listed = (await line.ask(ApiKey.LIST_GROUPS, states_filter=[], types_filter=["Consumer"])).groups
    told = [(row.group_id, row.protocol_type, row.group_state, row.group_type) for row in listed]
    assert told == [("g", "consumer", "Stable", "consumer")]
    assert (await line.ask(ApiKey.LIST_GROUPS, states_filter=[], types_filter=["classic"])).groups == ()
    described = await line.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=["g", "other"], include_authorized_operations=True)
    group, nothing = described.groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == ("Stable", 1, 1, "range")
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.member_epoch, member.subscribed_topic_names) == ("me", "r", 1, ("a",))
    assert [(row.topic_name, row.partitions) for row in member.assignment.topic_partitions] == [("a", (0, 1, 2))]
    assert (member.target_assignment, member.member_type) == (member.assignment, 1)
    assert nothing.error_code == 69
    (old,) = (await line.ask(ApiKey.DESCRIBE_GROUPS, groups=["g"], include_authorized_operations=False)).groups
    assert (old.error_code, old.group_state) == (69, "Dead")


@pytest.mark.parametrize(("version", "epoch", "code"), [(8, 1, 35), (9, 1, 0), (9, 2, 113), (9, 0, 113)])
async def test_commits_say_the_members_epoch(serving: Serving, version: int, epoch: int, code: int) -> None:
    line = await opened(serving)
    await Consumer(line, "me").join()
    partitions = [{"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}]
    answer = await line.ask(
        ApiKey.OFFSET_COMMIT, version, group_id="g", generation_id_or_member_epoch=epoch, member_id="me",
        topics=[{"name": "a", "partitions": partitions}],
    )  # fmt: skip
    assert answer.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize(("member_id", "epoch", "code"), [(None, -1, 0), ("me", 1, 0), ("me", 5, 113), ("you", 1, 25)])
async def test_whoever_says_who_it_is_when_it_asks_for_offsets_must_be_right(
    serving: Serving, member_id: str | None, epoch: int, code: int
) -> None:
    line = await opened(serving)
    await Consumer(line, "me").join()
    wish = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "topics": [{"name": "a", "partition_indexes": [0]}]}
    (group,) = (await line.ask(ApiKey.OFFSET_FETCH, groups=[wish], require_stable=False)).groups
    assert group.error_code == code


async def test_a_running_classic_member_goes_on_in_a_group_of_the_new_kind(serving: Serving) -> None:
    """It is told to join again, gives up what the newcomer shall have, and keeps the rest."""
    line = await opened(serving)
    classic = Member(await serving.line(), "g")
    offer = (("range", write_subscription(["a"])),)
    await classic.join(protocols=offer)
    everything = b"\x00\x00\x00\x00\x00\x01\x00\x01a\x00\x00\x00\x03" + bytes(4) + b"\x00\x00\x00\x01\x00\x00\x00\x02" + b"\xff" * 4
    assert (await classic.sync(assignments={classic.member_id: everything})).error_code == 0
    newcomer = Consumer(line, "new")
    assert (await newcomer.join()).error_code == 0
    assert newcomer.owned == {}
    assert await classic.heartbeat() == 27
    assert (await classic.join(protocols=offer)).error_code == 0
    kept = read_assignment((await classic.sync()).assignment)
    await settled(newcomer)
    assert await classic.heartbeat() == 0
    assert sorted((kept or {})["a"] + newcomer.partitions) == [0, 1, 2]
