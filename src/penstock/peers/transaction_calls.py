"""What a transactional producer says to the coordinators: of its transactional id, and of the group whose offsets it commits.

Each call is asked again while that can help, and may be asked twice without harm. `init` may bump the epoch once for each try.
Who is fenced is told apart from the rest by `FENCED`; every other refusal is for the producer to judge.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import ErrorCode
from penstock.peers.appending import ProducerIdentity
from penstock.peers.client import Client
from penstock.peers.connection import Connection
from penstock.peers.coordinators import Coordinates, Coordinator
from penstock.peers.failures import PeerFailure, Refused, check_code
from penstock.peers.patience import Deadline
from penstock.peers.stable_offsets import GroupIdentity
from penstock.peers.versions import HIGHEST_WITHOUT_V2
from penstock.vocabulary import ProducerId, TopicPartition
from penstock.wire.api_keys import ApiKey

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
MAPPING_LOST = (ErrorCode.INVALID_PRODUCER_ID_MAPPING,)

_FEATURE = "transaction.version"
_V2 = 2


class TransactionCalls:
    def __init__(self, client: Client, transactional_id: str, *, deadline_s: float, coordinator: int | None = None) -> None:
        """`coordinator` is the node that is believed to be it."""
        self.is_v2_agreed = False  # By the cluster; known once a coordinator has answered.
        self._router = client.router
        self._transactional_id = transactional_id
        self._deadline_s = deadline_s
        self._coordinator = Coordinator(client.router, Coordinates.TRANSACTIONS, transactional_id, known=coordinator)
        self._groups: dict[str, Coordinator] = {}

    async def init(self, known: ProducerIdentity, *, timeout_ms: int) -> ProducerIdentity:
        """The identity to go on with: a new one, or with a `known` one that still holds its next epoch."""
        body = self._identified(known) | {"transaction_timeout_ms": timeout_ms}
        answer = await self._ask(ApiKey.INIT_PRODUCER_ID, body, "get a producer id for")
        return ProducerIdentity(ProducerId(int(answer.producer_id)), int(answer.producer_epoch))

    async def announce(self, identity: ProducerIdentity, partitions: Sequence[TopicPartition]) -> None:
        """Tells the coordinator which partitions are about to take part (version 1)."""
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        rows = [{"name": name, "partitions": indexes} for name, indexes in topics.items()]
        body = {f"v3_and_below_{name}": value for name, value in (self._identified(identity) | {"topics": rows}).items()}
        await self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, body, "add partitions to a transaction of")

    async def announce_group(self, identity: ProducerIdentity, group: GroupIdentity) -> None:
        await self._ask(
            ApiKey.ADD_OFFSETS_TO_TXN, self._identified(identity) | {"group_id": group.group}, "add offsets to a transaction of"
        )

    async def commit_offsets(
        self, identity: ProducerIdentity, group: GroupIdentity, offsets: Mapping[TopicPartition, int], *, is_v2: bool
    ) -> None:
        """Asks the group's coordinator to hold them until the transaction ends."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), offset in offsets.items():
            row = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
            topics.setdefault(topic, []).append(row)
        body = self._identified(identity) | {
            "group_id": group.group, "member_id": group.member_id, "generation_id": group.generation,
            "group_instance_id": group.instance_id, "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }  # fmt: skip
        what, api = f"commit offsets of group {group.group!r} in a transaction", ApiKey.TXN_OFFSET_COMMIT
        deadline = self._router.deadline(self._deadline_s)

        async def ask(connection: Connection, coordinator: int) -> None:
            answer = await self._call(connection, api, body, deadline, is_v2=is_v2)
            for topic in answer.topics:
                for row in topic.partitions:
                    check_code(row.error_code, f"{what}: {TopicPartition(str(topic.name), int(row.partition_index))}")

        if group.group not in self._groups:
            self._groups[group.group] = Coordinator(self._router, Coordinates.GROUP, group.group)
        await self._groups[group.group].ask(what, deadline, ask)

    async def end(self, identity: ProducerIdentity, *, is_commit: bool, is_v2: bool) -> ProducerIdentity:
        """Returns the identity for the next transaction: in version 2 of a higher epoch, or of another producer id."""
        what = f"{'commit' if is_commit else 'abort'} a transaction of"
        body = self._identified(identity) | {"committed": is_commit}
        answer = await self._ask(ApiKey.END_TXN, body, what, is_v2=is_v2, is_decisive=True)
        if not is_v2:
            return identity
        return ProducerIdentity(ProducerId(int(answer.producer_id)), int(answer.producer_epoch))

    def _identified(self, identity: ProducerIdentity) -> dict[str, Any]:
        return {
            "transactional_id": self._transactional_id, "producer_id": identity.producer_id, "producer_epoch": identity.epoch,
        }  # fmt: skip

    async def _ask(
        self, api: ApiKey, body: Mapping[str, Any], what: str, *, is_v2: bool = False, is_decisive: bool = False
    ) -> Any:
        """`is_decisive`: a refusal that says try again may come after the decision was made, and before it was safe to tell."""
        deadline, what = self._router.deadline(self._deadline_s), f"{what} {self._transactional_id!r}"

        async def ask(connection: Connection, coordinator: int) -> Any:
            try:
                answer = await self._call(connection, api, body, deadline, is_v2=is_v2)
                for code in _codes(answer):
                    check_code(code, what)
            except PeerFailure as failure:
                failure.may_have_happened |= is_decisive and failure.is_retriable and isinstance(failure, Refused)
                raise
            self.is_v2_agreed = connection.features.get(_FEATURE, 0) >= _V2
            return answer

        return await self._coordinator.ask(what, deadline, ask)

    async def _call(self, connection: Connection, api: ApiKey, body: Mapping[str, Any], deadline: Deadline, *, is_v2: bool) -> Any:
        version_max = None if is_v2 else HIGHEST_WITHOUT_V2.get(api)
        return await connection.call(api, body, timeout_s=self._router.timeouts(deadline).whole_s, version_max=version_max)


def _codes(answer: Any) -> list[int]:
    """All codes of an answer, the ones that asking again cannot change first, and last what was not even tried because of others."""
    codes = [int(getattr(answer, "error_code", ErrorCode.NONE))]
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        codes += [int(row.partition_error_code) for row in topic.results_by_partition]
    return sorted(codes, key=lambda code: (code == ErrorCode.OPERATION_NOT_ATTEMPTED, Refused(code, "").is_retriable))
