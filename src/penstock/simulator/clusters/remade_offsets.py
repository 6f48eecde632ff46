"""A group that commits offsets of a topic that is deleted and made again: none of them is told of another topic than its own.

Each offset is committed and asked for by the topic's id, and its metadata say for which topic it was meant.
"""

from dataclasses import dataclass

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.simulator.clusters.remaking import GROUP_KEY, Again, Remaking, closing
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan
from penstock.vocabulary import TopicId
from penstock.wire.api_keys import ApiKey

_COMMIT_BY_ID, _FETCH_BY_ID = 10, 10
_COMMITS_MAX = 6
_GROUP = "remade"


@dataclass(slots=True)
class Commit:
    topic_id: TopicId
    partition: int
    offset: int
    is_acknowledged: bool = False


class RemadeOffsets(Remaking):
    RULE = "committed offsets of a topic made again stay"

    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        super().__init__(plan, stage, env)
        self._commits: list[Commit] = []

    async def use(self, client: Client, topic_id: TopicId) -> None:
        await self.faults(client, topic_id)  # A reader of the new topic asks where it has come to.
        for _ in range(self.env.rng.randint(1, _COMMITS_MAX)):
            if self.stage.is_over:
                return
            await self._commit(topic_id, self.env.rng.randrange(self.topic.partitions))
            await self.stage.breathe(self.env, self.plan.options["pause"])

    async def _commit(self, topic_id: TopicId, partition: int) -> None:
        operation = self.stage.operations.begin("offset commit of a topic made again", self.env.now())
        self.number += 1
        commit = Commit(topic_id, partition, self.number)
        self._commits.append(commit)
        row = {"partition_index": partition, "committed_offset": self.number, "committed_metadata": topic_id.hex()}
        body = {
            "group_id": _GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
            "topics": [{"topic_id": topic_id, "partitions": [row | {"committed_leader_epoch": -1}]}],
        }  # fmt: skip
        answer = await closing(await self.coordinator(_GROUP, GROUP_KEY), ApiKey.OFFSET_COMMIT, _COMMIT_BY_ID, body)
        if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
            commit.is_acknowledged = True
            self.stage.operations.complete(operation, self.env.now())
            self.stage.provoke()

    async def faults(self, client: Client, topic_id: TopicId) -> list[str]:
        wish = {"topic_id": topic_id, "partition_indexes": list(self.partitions())}
        body = {"groups": [{"group_id": _GROUP, "member_id": None, "member_epoch": -1, "topics": [wish]}], "require_stable": True}
        group = (await closing(await self.coordinator(_GROUP, GROUP_KEY), ApiKey.OFFSET_FETCH, _FETCH_BY_ID, body)).groups[0]
        if group.error_code:
            raise Again(f"an offset fetch got {group.error_code}")
        faults = []
        for row in group.topics[0].partitions:
            if row.error_code:
                raise Again(f"an offset fetch got {row.error_code}")
            if row.committed_offset >= 0 and row.metadata != topic_id.hex():
                self.find("a topic made again is new", f"offset {row.committed_offset} was committed for an earlier topic of the name")
            acked = [
                commit.offset
                for commit in self._commits
                if commit.is_acknowledged and (commit.topic_id, commit.partition) == (topic_id, int(row.partition_index))
            ]
            if acked and row.committed_offset < max(acked):
                faults.append(f"{max(acked)} was committed for partition {row.partition_index}, and {row.committed_offset} is told")
        return faults
