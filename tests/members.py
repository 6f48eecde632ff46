"""Members of consumer groups, as plain as the protocol has them: each on a line of its own, doing what the test says when it says so.

Subscriptions and assignments are bytes that mean nothing to the node, so these members use words.
Not here: claims about what a node should answer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from serving import Line, Serving
from waiting import PATIENCE_MS

from penstock.wire.api_keys import ApiKey

REBALANCE_IN_PROGRESS = 27
EAGER = (("range", b"subscription"),)
QUICK = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 4, "group_min_session_timeout_ms": 100}


class Member:
    """One would-be member of a group, and what it was last told about itself."""

    def __init__(self, line: Line, group: str, instance_id: str | None = None) -> None:
        self.line = line
        self.group = group
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.everybody: list[str] = []
        self.protocol: str | None = None

    @property
    def is_leader(self) -> bool:
        return self.leader == self.member_id

    def send_join(
        self,
        version: int = 9,
        *,
        protocols: Sequence[tuple[str, bytes]] = EAGER,
        session_timeout_ms: int = PATIENCE_MS,
        rebalance_timeout_ms: int = PATIENCE_MS,
        protocol_type: str = "consumer",
    ) -> None:
        self.line.send(
            ApiKey.JOIN_GROUP, version,
            group_id=self.group, session_timeout_ms=session_timeout_ms, rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=self.member_id, group_instance_id=self.instance_id, protocol_type=protocol_type,
            protocols=[{"name": name, "metadata": metadata} for name, metadata in protocols], reason="a test",
        )  # fmt: skip

    async def joined(self) -> Any:
        """The answer to the join that was sent."""
        answer = await self.line.receive()
        if answer.error_code in (0, 79):
            self.member_id = answer.member_id
        if answer.error_code == 0:
            self.generation, self.leader, self.protocol = answer.generation_id, answer.leader, answer.protocol_name
            self.everybody = [member.member_id for member in answer.members]
        return answer

    async def join(self, version: int = 9, **options: Any) -> Any:
        """Joins, coming back with the id that it is given where that is asked for."""
        self.send_join(version, **options)
        answer = await self.joined()
        if answer.error_code == 79:
            self.send_join(version, **options)
            answer = await self.joined()
        return answer

    async def take_id(self, **options: Any) -> None:
        """The first half of a join: only to get a member id."""
        self.send_join(**options)
        assert (await self.joined()).error_code == 79

    def send_sync(self, version: int = 5, assignments: Mapping[str, bytes] | None = None) -> None:
        self.line.send(
            ApiKey.SYNC_GROUP, version,
            group_id=self.group, generation_id=self.generation, member_id=self.member_id, group_instance_id=self.instance_id,
            protocol_type="consumer", protocol_name=self.protocol,
            assignments=[{"member_id": member, "assignment": content} for member, content in (assignments or {}).items()],
        )  # fmt: skip

    async def sync(self, version: int = 5, assignments: Mapping[str, bytes] | None = None) -> Any:
        self.send_sync(version, assignments)
        return await self.line.receive()

    async def heartbeat(self, version: int = 4, **changes: Any) -> int:
        body = {
            "group_id": self.group, "generation_id": self.generation, "member_id": self.member_id, "group_instance_id": self.instance_id,
        }  # fmt: skip
        answer = await self.line.ask(ApiKey.HEARTBEAT, version, **(body | changes))
        return int(answer.error_code)

    async def must_rejoin(self) -> bool:
        """Gives a sign of life; whether it is told that the group gathers anew."""
        return await self.heartbeat() == REBALANCE_IN_PROGRESS

    async def leave(self, version: int = 5) -> int:
        members = [{"member_id": self.member_id, "group_instance_id": self.instance_id}]
        answer = await self.line.ask(ApiKey.LEAVE_GROUP, version, group_id=self.group, member_id=self.member_id, members=members)
        return int(answer.error_code or (answer.members[0].error_code if version >= 3 else 0))

    async def commit(self, topic: str, offsets: Mapping[int, int], **options: Any) -> dict[int, int]:
        options = {"generation": self.generation, "member_id": self.member_id, "instance_id": self.instance_id} | options
        return await commit(self.line, self.group, topic, offsets, **options)


async def member(serving: Serving, group: str = "g", instance_id: str | None = None) -> Member:
    return Member(await serving.line(), group, instance_id)


async def coordinated(line: Line, group: str = "g") -> None:
    """Has the group's coordinator found, which makes the groups' topic."""
    answer = await line.ask(ApiKey.FIND_COORDINATOR, key_type=0, coordinator_keys=[group])
    assert answer.coordinators[0].error_code == 0, answer.coordinators[0].error_message


async def stable(*members: Member, assignments: Mapping[str, bytes] | None = None, **options: Any) -> None:
    """All join one generation and are assigned: their own ids, if nothing else is said."""
    await joined(*members, **options)
    (leader,) = [one for one in members if one.is_leader]
    given = assignments or {one.member_id: one.member_id.encode() for one in members}
    leader.send_sync(assignments=given)
    for one in members:
        if one is not leader:
            one.send_sync()
    for one in members:
        answer = await one.line.receive()
        assert answer.error_code == 0
        assert answer.assignment == given.get(one.member_id, b"")


async def joined(*members: Member, **options: Any) -> None:
    """All join one generation. The first comes alone, and once more when the others wait for it."""
    first, *others = members
    assert (await first.join(**options)).error_code == 0
    if not others:
        return
    for one in others:
        if not one.member_id and one.instance_id is None:
            await one.take_id(**options)
        one.send_join(**options)
    while True:
        (group,) = (await first.line.ask(ApiKey.DESCRIBE_GROUPS, groups=[first.group])).groups
        if len(group.members) >= len(members):
            break
    first.send_join(**options)
    for one in members:
        assert (await one.joined()).error_code == 0
    assert len({one.generation for one in members}) == 1


async def commit(
    line: Line,
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: str | None = "",
    leader_epoch: int = -1,
    version: int = 9,
) -> dict[int, int]:
    """The error code of each partition."""
    send_commit(
        line, group, topic, offsets,
        generation=generation, member_id=member_id, instance_id=instance_id, metadata=metadata, leader_epoch=leader_epoch, version=version,
    )  # fmt: skip
    return committed_codes(await line.receive())


def send_commit(
    line: Line,
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: str | None = "",
    leader_epoch: int = -1,
    version: int = 9,
) -> None:
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_leader_epoch": leader_epoch, "committed_metadata": metadata}
        for index, offset in offsets.items()
    ]
    line.send(
        ApiKey.OFFSET_COMMIT, version,
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, group_instance_id=instance_id,
        retention_time_ms=-1, topics=[{"name": topic, "partitions": partitions}],
    )  # fmt: skip


def committed_codes(answer: Any) -> dict[int, int]:
    (topic,) = answer.topics
    return {row.partition_index: int(row.error_code) for row in topic.partitions}


async def offsets_of(line: Line, group: str, topic: str = "a", partitions: Sequence[int] = (0,)) -> dict[int, int]:
    wish = {"name": topic, "partition_indexes": list(partitions)}
    answer = await line.ask(ApiKey.OFFSET_FETCH, groups=[{"group_id": group, "topics": [wish]}], require_stable=True)
    (found,) = answer.groups
    assert found.error_code == 0, found.error_code
    return {row.partition_index: int(row.committed_offset) for row in found.topics[0].partitions}


async def opened(serving: Serving, **changes: Any) -> Line:
    """A node that is quick with groups, and has a topic for them."""
    await serving.open(**(QUICK | changes))
    line = await serving.line()
    await coordinated(line)
    await line.create("a", 3)
    return line
