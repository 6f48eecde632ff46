"""Transactions on a topic that is deleted and made again: the leader adds it to the transaction, and its coordinator may not know it yet.

What was committed is readable to readers of committed records, what was aborted is not, nothing is there in part, and nothing of an earlier
topic of the name. In the protocol's words, so that each batch names the topic by its id.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from penstock.broker.transactions import TRANSACTION_STATE
from penstock.errors import ErrorCode
from penstock.peers.aborted import AbortedRecords, AbortedTransaction
from penstock.peers.client import Client
from penstock.simulator.clusters.remaking import TRANSACTION_KEY, Again, Remaking, closing
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan
from penstock.simulator.transaction_diary import Ending
from penstock.simulator.workloads.fetching import fetch_body, rows_of
from penstock.simulator.workloads.line import LineLost, whole_batches
from penstock.vocabulary import TopicId
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, decode_records, encode_batch

_INIT, _END, _FETCH_BY_ID = 5, 5, 13
_ABORTS = 0.2
_ROUNDS_MAX = 3
_STEPS_MAX = 200
_TRIES = 20
_PASSES = (
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT,
)  # fmt: skip


@dataclass(slots=True)
class Told:
    """One transaction."""

    topic_id: TopicId
    values: list[bytes] = field(default_factory=list)  # Those that were acknowledged.
    ending: Ending | None = Ending.ABORTED  # None: nobody knows.


class RemadeTransactions(Remaking):
    RULE = "what was committed is readable"
    COORDINATED_BY = TRANSACTION_STATE

    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        super().__init__(plan, stage, env)
        self._transactions: list[Told] = []

    async def use(self, client: Client, topic_id: TopicId) -> None:
        producer_id, epoch = await self._identified()
        for _ in range(self.env.rng.randint(1, _ROUNDS_MAX)):
            if self.stage.is_over:
                return
            epoch = await self._transact(client, topic_id, producer_id, epoch)
            await self.stage.breathe(self.env, self.plan.options["pause"])

    async def _identified(self) -> tuple[int, int]:
        """What the producer before has left is decided by then, and its batches are void."""
        body = {"transactional_id": self.plan.name, "transaction_timeout_ms": 3_000, "producer_id": -1, "producer_epoch": -1}
        for _ in range(_TRIES):
            answer = await closing(await self.coordinator(self.plan.name, TRANSACTION_KEY), ApiKey.INIT_PRODUCER_ID, _INIT, body)
            if answer.error_code == ErrorCode.NONE:
                return int(answer.producer_id), int(answer.producer_epoch)
            await self.stage.breathe(self.env, 0.1)
        raise Again(f"no producer id: {answer.error_code}")

    async def _transact(self, client: Client, topic_id: TopicId, producer_id: int, epoch: int) -> int:
        """Returns the epoch of the next one."""
        operation = self.stage.operations.begin("transaction on a topic made again", self.env.now())
        told, sequences = Told(topic_id), dict.fromkeys(self.partitions(), 0)
        self._transactions.append(told)
        for _ in range(self.env.rng.randint(1, 3)):
            self.number += 1
            value, partition = b"%s.%d" % (topic_id.hex().encode(), self.number), self.env.rng.randrange(self.topic.partitions)
            batch = encode_batch(
                [Record(value=value, timestamp_ms=self.env.wall_ms())],
                producer_id=producer_id, producer_epoch=epoch, base_sequence=sequences[partition], is_transactional=True,
            )  # fmt: skip
            sequences[partition] += 1
            await self.produce(client, topic_id, partition, bytes(batch), self.plan.name)
            told.values.append(value)
        is_commit = self.env.rng.random() >= _ABORTS
        epoch = await self._end(told, producer_id, epoch, is_commit=is_commit)
        self.stage.operations.complete(operation, self.env.now())
        self.stage.provoke()
        return epoch

    async def _end(self, told: Told, producer_id: int, epoch: int, *, is_commit: bool) -> int:
        body = {"transactional_id": self.plan.name, "producer_id": producer_id, "producer_epoch": epoch, "committed": is_commit}
        for _ in range(_TRIES):
            line = await self.coordinator(self.plan.name, TRANSACTION_KEY)
            told.ending = None if is_commit else Ending.ABORTED
            answer = await closing(line, ApiKey.END_TXN, _END, body)
            if answer.error_code == ErrorCode.NONE:
                told.ending = Ending.COMMITTED if is_commit else Ending.ABORTED
                return int(answer.producer_epoch)
            if answer.error_code not in _PASSES:
                break
            await self.stage.breathe(self.env, 0.1)
        raise LineLost(f"the end of a transaction got {answer.error_code}")

    # Judging.

    async def faults(self, client: Client, topic_id: TopicId) -> list[str]:
        found: dict[bytes, None] = {}
        for partition in self.partitions():
            found |= dict.fromkeys([value async for value in _committed(self, client, topic_id, partition)])
        mine = [told for told in self._transactions if told.topic_id == topic_id]
        known = [value for told in mine for value in told.values]
        for value in found:
            if not value.startswith(topic_id.hex().encode()):
                self.find("a topic made again is new", f"{value!r} was written to an earlier topic of the name")
        aborted = [value for told in mine if told.ending is Ending.ABORTED for value in told.values if value in found]
        if aborted:
            self.find("what was aborted is not readable", f"{aborted[0]!r} is")
        missing = [value for told in mine if told.ending is Ending.COMMITTED for value in told.values if value not in found]
        torn = [told for told in mine if told.ending is None and 0 < sum(value in found for value in told.values) < len(told.values)]
        faults = [f"{value!r} of {len(known)} was committed, and is not readable" for value in missing[:1]]
        return faults + [f"a part of {told.values} is readable" for told in torn[:1]]


async def _committed(user: Remaking, client: Client, topic_id: TopicId, partition: int) -> AsyncIterator[bytes]:
    offset = 0
    for _ in range(_STEPS_MAX):
        body = fetch_body("", topic_id, {partition: offset}) | {"isolation_level": 1}
        (row,) = rows_of(await user.ask_leader(client, partition, ApiKey.FETCH, _FETCH_BY_ID, body))
        if row.error_code:
            raise Again(f"a fetch got {row.error_code}")
        aborted = [AbortedTransaction(int(one.producer_id), int(one.first_offset)) for one in row.aborted_transactions or ()]
        left_out, before = AbortedRecords(aborted), offset
        for header, batch in whole_batches(row.records or b""):
            is_left_out = left_out.has(header, batch)
            if not header.is_control and not is_left_out:
                for record in decode_records(batch, bytes_max=1 << 20):
                    yield record.value or b""
            offset = header.end_offset
        if offset == before:
            return
