"""A share group on a topic that is deleted and made again, and that is now and then deleted itself: each time it begins anew.

Its member accepts whatever it is given. All that was written to the topic since it was made is given to the group, whatever was accepted of
an earlier topic of the name; and after the group was deleted, all of it is given once more to the group that is made under its name.
"""

from typing import Any

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.simulator.clusters.remaking import GROUP_KEY, Again, Remaking, closing
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan
from penstock.simulator.workloads.line import Line, whole_batches
from penstock.vocabulary import TopicId, TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, decode_records, encode_batch

_HEARTBEAT, _SHARE_FETCH, _ACKNOWLEDGE, _DELETE_GROUPS, _ALTER = 1, 2, 2, 2, 1
_GROUP_RESOURCE = 32
_RECORDS_MAX = 5
_ROUNDS_MAX = 3
_FETCHES_MAX = 8
_ACCEPT = 1
_LEAVES = -1


class RemadeShares(Remaking):
    RULE = "a share group gets all of a topic made again"

    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        super().__init__(plan, stage, env)
        self._group = "remade-shares"
        self._members = 0
        self._joined: dict[str, None] = {}  # Members that may be in the group.
        self._written: dict[TopicId, list[bytes]] = {}  # What was acknowledged.
        self._given: dict[bytes, None] = {}  # To the group as it is now.
        self._is_configured = False

    async def use(self, client: Client, topic_id: TopicId) -> None:
        await self._configure()
        for _ in range(self.env.rng.randint(1, _RECORDS_MAX)):
            await self._write(client, topic_id, self.env.rng.randrange(self.topic.partitions))
        for _ in range(self.env.rng.randint(0, _ROUNDS_MAX)):
            if self.stage.is_over:
                return
            await self._take_part(client, topic_id)
            if self.env.rng.random() < 0.7:
                await self._delete_group()

    async def _write(self, client: Client, topic_id: TopicId, partition: int) -> None:
        self.number += 1
        value = b"%s.%d" % (topic_id.hex().encode(), self.number)
        await self.produce(client, topic_id, partition, bytes(encode_batch([Record(value=value, timestamp_ms=self.env.wall_ms())])))
        self._written.setdefault(topic_id, []).append(value)

    # The group.

    async def _configure(self) -> None:
        if self._is_configured:
            return
        configs = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
        wish = {"resource_type": _GROUP_RESOURCE, "resource_name": self._group, "configs": configs}
        line = await self.stage.line_to_anybody(self.env, self.plan.name)
        answer = await closing(line, ApiKey.INCREMENTAL_ALTER_CONFIGS, _ALTER, {"resources": [wish], "validate_only": False})
        if answer.responses[0].error_code:
            raise Again("the group is not configured")
        self._is_configured = True

    async def _delete_group(self) -> None:
        operation = self.stage.operations.begin("share group deleted and made again", self.env.now())
        for member_id in list(self._joined):
            await self._leave(member_id)
        line = await self.coordinator(self._group, GROUP_KEY, timeout_seconds=10.0)
        code = (await closing(line, ApiKey.DELETE_GROUPS, _DELETE_GROUPS, {"groups_names": [self._group]})).results[0].error_code
        if code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            self._given = {}
            self.stage.operations.complete(operation, self.env.now())
            self.stage.provoke()

    async def _take_part(self, client: Client, topic_id: TopicId) -> None:
        """A member joins, accepts what it is given, and leaves."""
        operation = self.stage.operations.begin("share group on a topic made again", self.env.now())
        self._members += 1
        member_id = f"member-{self._members}"
        self._joined[member_id] = None
        if code := await self._beat(member_id, 0):
            raise Again(f"a member that joins hears {code}")
        self.stage.delay_metadata(self.COORDINATED_BY)  # The group's coordinator may hear late of the ledgers that begin now.
        try:
            for partition in self.partitions():
                await self._accept_all(client, topic_id, partition, member_id)
        finally:
            await self._leave(member_id)
        self.stage.operations.complete(operation, self.env.now())

    async def _leave(self, member_id: str) -> None:
        code = await self._beat(member_id, _LEAVES)
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            raise Again(f"a member that leaves hears {code}")
        self._joined.pop(member_id, None)

    async def _beat(self, member_id: str, epoch: int) -> int:
        """The error code."""
        line = await self.coordinator(self._group, GROUP_KEY)
        body = self._named(member_id) | {"member_epoch": epoch, "subscribed_topic_names": [self.topic.name]}
        return int((await closing(line, ApiKey.SHARE_GROUP_HEARTBEAT, _HEARTBEAT, body)).error_code)

    def _named(self, member_id: str) -> dict[str, Any]:
        return {"group_id": self._group, "member_id": member_id}

    async def _accept_all(self, client: Client, topic_id: TopicId, partition: int, member_id: str) -> None:
        line = await self.stage.line_to_leader(client, self.plan.name, TopicPartition(self.topic.name, partition))
        try:
            for epoch in range(0, 2 * _FETCHES_MAX, 2):
                row = await self._fetched(line, topic_id, partition, member_id, epoch)
                ranges = [(int(each.first_offset), int(each.last_offset)) for each in row.acquired_records] if row else []
                if not ranges:
                    return
                self._note(topic_id, row, ranges)  # Before it says so: an acknowledgement whose answer is lost may count.
                body = self._named(member_id) | {"share_session_epoch": epoch + 1, "topics": [_accepting(topic_id, partition, ranges)]}
                await line.ask(ApiKey.SHARE_ACKNOWLEDGE, _ACKNOWLEDGE, body)
        finally:
            line.close()

    async def _fetched(self, line: Line, topic_id: TopicId, partition: int, member_id: str, epoch: int) -> Any:
        """The row of the partition; None where it has nothing."""
        row = {"partition_index": partition, "acknowledgement_batches": []}
        body = self._named(member_id) | {
            "share_session_epoch": epoch, "max_wait_ms": 300, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100, "batch_size": 100,
            "topics": [] if epoch else [{"topic_id": topic_id, "partitions": [row]}],
        }  # fmt: skip
        answer = await line.ask(ApiKey.SHARE_FETCH, _SHARE_FETCH, body)
        rows = [row for topic in answer.responses for row in topic.partitions]
        if answer.error_code or any(row.error_code for row in rows):
            raise Again(f"a share fetch got {answer.error_code} and {[row.error_code for row in rows]}")
        return rows[0] if rows else None

    def _note(self, topic_id: TopicId, row: Any, ranges: list[tuple[int, int]]) -> None:
        for _, batch in whole_batches(bytes(row.records or b"")):
            for record in decode_records(batch, bytes_max=1 << 20):
                value = record.value or b""
                if any(first <= record.offset <= last for first, last in ranges):
                    self._given[value] = None
                    if not value.startswith(topic_id.hex().encode()):
                        self.find("a topic made again is new", f"a share group was given {value!r} of an earlier topic of the name")

    # Judging.

    async def faults(self, client: Client, topic_id: TopicId) -> list[str]:
        if self._missing(topic_id):
            await self._configure()
            await self._take_part(client, topic_id)
        return [f"{value!r} was never given to the group as it is now" for value in self._missing(topic_id)[:1]]

    def _missing(self, topic_id: TopicId) -> list[bytes]:
        return [value for value in self._written.get(topic_id, ()) if value not in self._given]


def _accepting(topic_id: TopicId, partition: int, ranges: list[tuple[int, int]]) -> dict[str, Any]:
    batches = [{"first_offset": first, "last_offset": last, "acknowledge_types": [_ACCEPT]} for first, last in ranges]
    return {"topic_id": topic_id, "partitions": [{"partition_index": partition, "acknowledgement_batches": batches}]}
