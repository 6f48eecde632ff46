"""Plays an operator who moves partitions: begins moves, gives them up, begins others before they have ended, throttles them, and chooses
leaders.

Every request is tried once, so that its outcome is known or is not: what is known goes into the wishes that the end of the run is judged by
(wishes.py). Partitions often go back to where they were a moment ago, while late messages about the first copies are still on their way.
When the trouble is over a throttle under which nothing would end is taken back. When everything is available again, each partition must
take the leader that is preferred.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from penstock.cluster.topic_names import INTERNAL_TOPICS
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.cluster import Moving, PartitionDescription, describe_nodes, describe_partitions, list_moving
from penstock.peers.cluster_changes import PREFERRED, elect_leaders
from penstock.peers.configs import Configured
from penstock.peers.failures import PeerFailure
from penstock.peers.patience import Deadline
from penstock.simulator.clusters.operations import Operation
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.clusters.wishes import Replicas
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey

_CALL_SECONDS = 1.5
_LOOKED_SECONDS = 0.2
_LED_WITHIN_SECONDS = 20.0
LEAD_RULE = "the preferred replica leads"
THROTTLE = "replication.throttled.rate"
_LEFT_RATE = 1_000_000  # Under which every move of a run ends in time.
_RATES = (1, 2_000, 20_000, _LEFT_RATE)

States = dict[TopicPartition, PartitionDescription]


class Mover:
    """Asks for moves and notes what became of each request; several operators of a run share the wishes."""

    def __init__(self, client: Client, stage: ClusterStage, env: SimEnv) -> None:
        self.client = client
        self._stage = stage
        self._env = env
        self.moves: dict[TopicPartition, tuple[Replicas, Operation]] = {}  # Those that have begun, as far as is known.

    @property
    def deadline(self) -> Deadline:
        return self.client.router.deadline(_CALL_SECONDS)

    async def look(self) -> States:
        """The partitions of all topics that stay; notes which moves have ended."""
        described = await describe_partitions(self.client.router, (), self.deadline)
        moving = await list_moving(self.client.router, self.deadline)
        states: States = {}
        for topic in described:
            if topic.error_code != ErrorCode.NONE or not self._stays(topic.name):
                continue
            for state in topic.partitions:
                where = TopicPartition(topic.name, state.partition)
                states[where] = state
                if where not in moving:
                    self._ended(where, state.replicas)
        return states

    def _stays(self, topic: str) -> bool:
        """Whether the topic is not deleted and made again meanwhile, nor the ledger of one that is."""
        return topic in self._stage.topics or topic in INTERNAL_TOPICS

    def _ended(self, where: TopicPartition, replicas: Replicas) -> None:
        wishes = self._stage.wishes
        wishes.found(where, replicas)
        wishes.ended(where, replicas)
        if where in self.moves and self.moves[where][0] == replicas:
            self._stage.operations.complete(self.moves.pop(where)[1], self._env.now())

    async def begin(self, plan: Mapping[TopicPartition, Replicas], name: str) -> list[TopicPartition]:
        """Begins moves to these replicas in one request; returns those that the controller took."""
        operations, began = self._stage.operations, self._env.now()
        begun = {where: operations.begin(name, began) for where in plan}
        codes = await self._ask(plan)
        taken = []
        for where, replicas in plan.items():
            if codes is None or codes[where] == ErrorCode.REQUEST_TIMED_OUT:
                self._stage.wishes.may_have_begun(where, replicas)
            elif codes[where] == ErrorCode.NONE:
                self._stage.wishes.begun(where, replicas, seconds=self._env.now() - began)
                self.moves[where] = (replicas, begun[where])
                taken.append(where)
        return taken

    async def give_up(self, partitions: Sequence[TopicPartition]) -> None:
        operations, began = self._stage.operations, self._env.now()
        begun = {where: operations.begin("move given up", began) for where in partitions}
        codes = await self._ask(dict.fromkeys(partitions))
        for where in partitions:
            if codes is None or codes[where] == ErrorCode.REQUEST_TIMED_OUT:
                self._stage.wishes.may_have_been_given_up(where)
            elif codes[where] == ErrorCode.NONE:
                self._stage.wishes.given_up(where)
                if self._env.now() - began > 1.0:
                    self._stage.wishes.may_have_been_given_up(where)
                operations.complete(begun[where], self._env.now())
                self.moves.pop(where, None)

    async def _ask(self, plan: Mapping[TopicPartition, Replicas | None]) -> dict[TopicPartition, int] | None:
        """The code for each partition; None where the answer was lost."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for where, replicas in plan.items():
            topics.setdefault(where.topic, []).append({"partition_index": where.partition, "replicas": replicas})
        rows = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        try:
            connection = await self.client.router.any_node(self.deadline)
            body = {"topics": rows, "timeout_ms": 1_500}
            answer = await connection.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, body, timeout_s=_CALL_SECONDS)
        except PeerFailure:
            return None
        return {
            TopicPartition(topic.name, int(row.partition_index)): int(row.error_code)
            for topic in answer.responses
            for row in topic.partitions
        }

    async def live_brokers(self) -> list[int]:
        cluster = await describe_nodes(self.client.router, self.deadline)
        return [node.node_id for node in cluster.nodes if not node.is_fenced]

    async def moving(self) -> dict[TopicPartition, Moving]:
        return await list_moving(self.client.router, self.deadline)


class MovingPartitions:
    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        self._plan = plan
        self._options = plan.options
        self._stage = stage
        self._env = env
        self._throttle: str | None = None

    async def run(self) -> None:
        async with self._stage.client(self._env, self._plan.name) as client:
            mover = Mover(client, self._stage, self._env)
            while not self._stage.is_calm:
                with suppress(PeerFailure):  # What was asked for is noted; the next step looks again.
                    await self._step(mover)
                await self._stage.breathe(self._env, self._options["pause"])
            while not self._stage.is_over:
                await self._end_throttle(client)
                await asyncio.sleep(_LOOKED_SECONDS)
            await self._take_preferred_leaders(mover)

    async def _step(self, mover: Mover) -> None:
        rng = self._env.rng
        states = await mover.look()
        if not states:
            return
        under_way = [where for where in mover.moves if where in states]
        if under_way and rng.random() < self._options["gives_up"]:
            await mover.give_up(rng.sample(under_way, rng.randint(1, len(under_way))))
            if rng.random() < self._options["returns"]:
                await self._begin(mover, states, under_way, "move begun again")
        elif under_way and rng.random() < 0.3:
            await self._begin(mover, states, under_way, "move begun again")
        elif rng.random() < 0.35:
            await self._there_and_back(mover, states)
        elif rng.random() < 0.2:
            await self._elect(mover, rng.sample(list(states), 1), "preferred election")
        elif rng.random() < 0.15:
            await self._lead(mover, states)
        elif self._options["throttles"] and rng.random() < 0.3:
            await self._set_throttle(mover.client, None if self._throttle else str(rng.choice(_RATES)))
        else:
            await self._begin(mover, states, list(states), "move")

    async def _there_and_back(self, mover: Mover, states: States) -> None:
        """A follower leaves and comes back at once: what was told of its first copy may still be on its way."""
        able = [where for where, state in states.items() if len(state.replicas) > 1 and where not in mover.moves]
        if not able:
            return
        where = self._env.rng.choice(able)
        replicas = states[where].replicas
        leaving = self._env.rng.choice([node for node in replicas if node != states[where].leader])
        if await mover.begin({where: tuple(node for node in replicas if node != leaving)}, "move"):
            await mover.begin({where: replicas}, "move begun again")

    async def _begin(self, mover: Mover, states: States, among: list[TopicPartition], name: str) -> None:
        rng, live = self._env.rng, await mover.live_brokers()
        chosen = rng.sample(among, min(len(among), rng.randint(1, self._options["at_once"])))
        plan = {where: replicas for where in chosen if (replicas := self._draw_replicas(where, live))}
        if plan:
            taken = await mover.begin(plan, name)
            if taken and rng.random() < self._options["gives_up"]:
                await mover.give_up(taken)

    def _draw_replicas(self, where: TopicPartition, live: list[int]) -> Replicas:
        rng, earlier = self._env.rng, self._stage.wishes.by_partition[where]
        if rng.random() < self._options["returns"]:
            last = [*earlier.before, *earlier.wanted][-2:]
            back = [node for node in sorted(rng.choice(last)) if node in live]
            if back:
                rng.shuffle(back)
                return tuple(back)
        factor = len(next(iter(earlier.wanted)))
        factor = max(1, min(len(live), factor + rng.choice((0, 0, 0, 0, 1, -1))))
        return tuple(rng.sample(live, factor)) if live else ()

    async def _lead(self, mover: Mover, states: States) -> None:
        """As `penstock cluster lead`: another order of the same replicas, and an election."""
        rng = self._env.rng
        able = [where for where, state in states.items() if len(state.in_sync) > 1 and where not in mover.moves]
        if not able:
            return
        where = rng.choice(able)
        first = rng.choice(states[where].in_sync)
        replicas = (first, *[node for node in states[where].replicas if node != first])
        if await mover.begin({where: replicas}, "lead: order"):
            await self._elect(mover, [where], "lead")

    async def _elect(self, mover: Mover, partitions: list[TopicPartition], name: str) -> None:
        operation = self._stage.operations.begin(name, self._env.now())
        outcomes = await elect_leaders(mover.client.router, PREFERRED, partitions, mover.deadline)
        if all(outcome.code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED) for outcome in outcomes.values()):
            self._stage.operations.complete(operation, self._env.now())

    async def _set_throttle(self, client: Client, rate: str | None) -> None:
        name = "throttle taken back" if rate is None else "throttle set"
        operation, wishes = self._stage.operations.begin(name, self._env.now()), self._stage.wishes
        wishes.throttles[rate] = None  # Until it is known to have been set, and others not.
        self._throttle = rate
        await client.change_settings(Configured.every_node(), {THROTTLE: rate}, deadline_s=_CALL_SECONDS)
        self._stage.operations.complete(operation, self._env.now())

    async def _end_throttle(self, client: Client) -> None:
        """What is left is what this run leaves, also if an earlier change was late."""
        if not self._options["throttles"]:
            return
        rate = str(_LEFT_RATE) if self._options["leaves_throttle"] else None
        with suppress(PeerFailure):
            told = {view.name: view.value for view in await client.settings_of(Configured.every_node(), deadline_s=_CALL_SECONDS)}
            if told.get(THROTTLE) != rate:
                await self._set_throttle(client, rate)
            else:
                self._stage.wishes.throttles = {rate: None}

    async def _take_preferred_leaders(self, mover: Mover) -> None:
        """Every replica is up and in sync: each partition must be led by the first of its replicas, if that is asked for."""
        began = self._env.now()
        while True:
            try:
                await self._elect(mover, list(await mover.look()), "preferred election")
                wrong = {where: state for where, state in (await mover.look()).items() if state.leader != state.replicas[0]}
            except PeerFailure:
                wrong = {}
                await asyncio.sleep(_LOOKED_SECONDS)
                if self._env.now() - began < _LED_WITHIN_SECONDS:
                    continue
            if not wrong:
                return
            if self._env.now() - began > _LED_WITHIN_SECONDS:
                where, state = next(iter(wrong.items()))
                story = f"{state.leader} leads after preferred elections, and the replicas are {state.replicas}"
                return self._stage.notebook.find(LEAD_RULE, where, story)
            await asyncio.sleep(_LOOKED_SECONDS)
