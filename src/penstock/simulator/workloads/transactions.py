"""Workers that read, process and write in transactions: input offsets and effects on several partitions count together or not at all.

Several workers may share one transactional id, and each believes that it is the only one: whoever took it over last is right, the others
are zombies. Some transactions are aborted, some are left lying, some stay open past their time-out. A worker that loses patience aborts
while its batches are still on their way, and those may arrive after the abort; now and then a batch is met again that was sent long ago.

What a worker is sure of goes into the diary; what an unanswered commit has become is for the reckoning to find out.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.peers.batching import Delivered
from penstock.peers.client import Client
from penstock.peers.failures import MustAbort, PeerFailure, ProducerBroken
from penstock.peers.fetching import FetchLimits, whole_batches
from penstock.peers.producer import ProducerSettings
from penstock.peers.transactions import GroupIdentity, State, TransactionalProducer, TransactionSettings
from penstock.simulator.diary import Attempt
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan
from penstock.simulator.transaction_diary import Effect, Ending, Takeover, Transaction
from penstock.simulator.workloads.echoes import EchoingClient
from penstock.simulator.workloads.stage import Stage
from penstock.simulator.workloads.values import draw_size, make_record
from penstock.vocabulary import TopicPartition
from penstock.wire.batches import decode_records

_ABORTS, _LEAVES_IT_OPEN, _DOZES, _STARTS_ANEW, _ECHOES = 0.15, 0.03, 0.04, 0.05, 0.1
_COMMIT_AGAIN = 0.7  # How often a commit without an answer is asked for again.
_READ_SECONDS = 1.0
CALL_SECONDS = 8.0
_UNPACKED_BYTES_MAX = 1 << 24
EFFECTS_MAX = 600  # Then it goes slowly: a story needs no more.


@dataclass(slots=True)
class Life:
    """One producer of the transactional id, whose input it reads, and where it has come to."""

    producer: TransactionalProducer
    takeover: Takeover
    group: GroupIdentity
    positions: dict[TopicPartition, int] = field(default_factory=dict)


class Transacting:
    def __init__(self, plan: ClientPlan, stage: Stage, env: SimEnv) -> None:
        self._plan = plan
        self._options = plan.options
        self._stage = stage
        self._told = stage.notebook.diary.transactions
        self._env = env
        self._group: str = plan.options["group"]
        self._sources = [TopicPartition(plan.options["source"], index) for index in plan.options["partitions"]]
        self._lives = 0
        self._number = 0

    async def run(self) -> None:
        stage, name = self._stage, self._plan.name
        async with EchoingClient(self._env, stage.bootstrap(name), client_id=name, settings=stage.patience) as client:
            while not self._stage.is_over:
                with suppress(PeerFailure):  # Fenced, broken, or nobody answers: what was asked for is noted.
                    await self._live(client)
                await self._stage.breathe(self._env, self._options["rest"])

    async def _live(self, client: EchoingClient) -> None:
        self._lives += 1
        began = self._env.now()
        async with TransactionalProducer(client, self._transaction_settings(), self._producer_settings()) as producer:
            name = f"{self._plan.name}.{self._lives}"
            takeover = self._told.took_over(self._options["id"], name, began=began, ended=self._env.now())
            await self._work(client, Life(producer, takeover, GroupIdentity(self._group)))

    async def _work(self, client: EchoingClient, life: Life) -> None:
        life.positions = await self._find_places(client)
        while await self._goes_on(client, life):
            await self._pause(client)

    async def _goes_on(self, client: EchoingClient, life: Life) -> bool:
        """One transaction, if there is any input; whether there may be another."""
        is_tired = await self._round(client, life) and self._env.rng.random() < _STARTS_ANEW
        return not self._stage.is_over and not is_tired

    async def _pause(self, client: EchoingClient) -> None:
        if self._env.rng.random() < _ECHOES:
            await client.echo()
        await self._stage.breathe(self._env, self._options["pause"] if self._number < EFFECTS_MAX else 0.5)

    def _transaction_settings(self) -> TransactionSettings:
        return TransactionSettings(
            self._options["id"],
            timeout_ms=self._options["timeout_ms"],
            may_use_v2=self._options["may_use_v2"],
            deadline_s=CALL_SECONDS,
            abort_patience_s=self._env.rng.choice((0.0, 0.0, 0.02, 5.0)),
        )

    def _producer_settings(self) -> ProducerSettings:
        return ProducerSettings(codec=self._options["codec"], linger_s=0.0, batch_bytes_max=self._options["batch_bytes"], delivery_s=10.0)

    async def _find_places(self, client: Client) -> dict[TopicPartition, int]:
        """Where the group has come to. Asked after the id was taken over: what the one before left undecided is decided by then."""
        found = await client.stable_offsets(self._group, self._sources, deadline_s=CALL_SECONDS)
        return {where: found.get(where, 0) for where in self._sources}

    # One transaction.

    async def _round(self, client: EchoingClient, life: Life) -> bool:
        inputs = [one for where, offset in life.positions.items() for one in await self._read(client, where, offset)]
        if not inputs:
            return False
        life.producer.begin()
        transaction = self._told.begins(life.takeover, self._group, self._env.now())
        try:
            await self._process(client, life, transaction, inputs)
            if self._env.rng.random() < _ABORTS:
                await self._abort(life.producer, transaction)
                return True
            if self._env.rng.random() < _LEAVES_IT_OPEN:
                raise ProducerBroken("it is left lying")
            await self._commit(life.producer, transaction)
            life.positions |= transaction.offsets
        except MustAbort:
            await self._abort(life.producer, transaction)
        return True

    async def _read(self, client: Client, where: TopicPartition, offset: int) -> list[tuple[TopicPartition, int]]:
        """A few records of the input, as places: what they say is of no account."""
        limits = FetchLimits(wait_ms=0, bytes_max=self._env.rng.choice((1, 500)))
        try:
            row = await client.fetch(where.topic, where.partition, offset, limits=limits, deadline_s=_READ_SECONDS)
        except PeerFailure:
            return []
        records = [record for _, batch in whole_batches(row.records) for record in decode_records(batch, bytes_max=_UNPACKED_BYTES_MAX)]
        return [(where, record.offset) for record in records if record.offset >= offset][: self._options["inputs"]]

    async def _process(
        self, client: EchoingClient, life: Life, transaction: Transaction, inputs: list[tuple[TopicPartition, int]]
    ) -> None:
        rng, producer = self._env.rng, life.producer
        for where, offset in inputs:
            for _ in range(rng.randint(1, self._options["fan_out"])):
                await self._send(producer, transaction, (where, offset))
            transaction.offsets[where] = offset + 1
            if rng.random() < _ECHOES:
                await client.echo()
            await self._doze()
        if rng.random() < 0.5:
            await producer.flush()
        await producer.send_offsets(transaction.offsets, life.group)
        await self._doze()

    async def _doze(self) -> None:
        if self._env.rng.random() < _DOZES:
            await asyncio.sleep(self._options["timeout_ms"] / 1_000 * self._env.rng.uniform(0.3, 1.3))

    async def _send(self, producer: TransactionalProducer, transaction: Transaction, source: tuple[TopicPartition, int]) -> None:
        env, diary = self._env, self._stage.notebook.diary
        self._number += 1
        where = env.rng.choice(self._stage.partitions(self._plan.topic))
        record = make_record(self._plan.name, self._number, env.wall_ms(), size=draw_size(env.rng, self._options["size"]))
        effect = Effect(where, record.value or b"", source, env.now())
        attempt = diary.attempt(where, f"{transaction.takeover.worker}@{transaction.began:.6f}", effect.value, env.now())
        transaction.effects.append(effect)
        try:
            sent = await producer.send(
                where.topic, record.value, partition=where.partition, headers=record.headers, timestamp_ms=record.timestamp_ms
            )
        except PeerFailure:
            attempt.failed(env.now())  # It was never queued.
            raise
        sent.add_done_callback(lambda done: self._settled(attempt, effect, done))

    def _settled(self, attempt: Attempt, effect: Effect, done: "asyncio.Future[Delivered]") -> None:
        if done.cancelled():
            return
        failure = done.exception()
        if failure is None:
            effect.stored = self._env.now()
            if done.result().offset >= 0:
                attempt.acknowledged(done.result().offset, self._env.now())
        elif isinstance(failure, PeerFailure) and not failure.may_have_happened:
            attempt.failed(self._env.now())

    # Its end.

    async def _commit(self, producer: TransactionalProducer, transaction: Transaction) -> None:
        """Asks until it is answered, or until patience ends. Only a refusal that no unanswered try precedes is certain."""
        is_uncertain = False
        await producer.flush()
        transaction.asks_for_commit(self._env.now())
        while True:
            try:
                await producer.commit()
            except PeerFailure as failure:
                is_uncertain |= failure.may_have_happened
                if producer.state is State.COMMITTING and self._env.rng.random() < _COMMIT_AGAIN:
                    continue
                if not is_uncertain:
                    transaction.ends(Ending.ABORTED, self._env.now())
                raise
            transaction.ends(Ending.COMMITTED, self._env.now())
            self._stage.provoke()
            return

    async def _abort(self, producer: TransactionalProducer, transaction: Transaction) -> None:
        """What was never asked to be committed is aborted, whatever the answer."""
        await producer.abort()
        transaction.ended = self._env.now()
        self._stage.provoke()
