"""An operator who changes settings of a topic and of nodes while all goes on, and a producer that holds nodes to `min.insync.replicas`.

What was told is what is described: at once by the node that was asked, and at the end, when all nodes have died, by every one of them; and
it is what open partitions go by. A record is acknowledged only when as many replicas have it on their disks as the leader had been told
when the record was sent. One operator changes each setting, one after the other; a change without an answer may come true later.
"""

from collections.abc import Iterator
from typing import Any

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.connection import Address
from penstock.peers.failures import PeerFailure
from penstock.simulator.clusters.data_watch import FOLLOWED
from penstock.simulator.clusters.menu import KAFKA_PORT
from penstock.simulator.clusters.replicas import read_log
from penstock.simulator.clusters.stage import ACKS_ALL, ClusterStage
from penstock.simulator.clusters.told_settings import Change, Resource, Values
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan, TopicPlan
from penstock.simulator.workloads.line import Line, LineLost
from penstock.simulator.workloads.notebook import NOWHERE
from penstock.simulator.workloads.values import make_record
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import encode_batch
from penstock.wire.configs import Operation, ResourceType, Source

DESCRIBED = "what was told is what is described"
ON_ENOUGH_DISKS = "as many replicas as were asked for vouch for a record"

_ALTER, _DESCRIBE, _PRODUCE = 1, 4, 9
_WRONG = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
_OVERRIDDEN = {ResourceType.TOPIC: (Source.TOPIC,), ResourceType.BROKER: (Source.THIS_NODE, Source.EVERY_NODE)}


class SettingChanges:
    """The operator."""

    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        self._plan = plan
        self._topic: TopicPlan = stage.topics[plan.topic]
        self._stage = stage
        self._env = env
        self._told = stage.told_settings

    async def run(self) -> None:
        self._stage.data.watch_settings(self._topic.name)
        again: tuple[Resource, Values] | None = None
        while not self._stage.is_over:
            resource, values = again or self._draw()
            try:
                again = None if await self._change(resource, values) else (resource, values)
            except LineLost:
                again = resource, values
            await self._stage.breathe(self._env, self._plan.options["pause"])

    def _draw(self) -> tuple[Resource, Values]:
        rng, options = self._env.rng, self._plan.options
        brokers = self._stage.data.cluster.brokers
        if rng.random() < options["on_topic"]:
            return (ResourceType.TOPIC, self._topic.name), rng.choice(options["topic_values"])
        node = rng.choice(("", *(host.rsplit("-", 1)[1] for host in brokers)))
        return (ResourceType.BROKER, node), rng.choice(options["every_node_values"] if not node else options["node_values"])

    async def _change(self, resource: Resource, values: Values) -> bool:
        kind, name = resource
        host = f"node-{name}" if kind is ResourceType.BROKER and name else self._env.rng.choice(self._stage.data.cluster.brokers)
        line = await Line.open(self._stage.notebook, self._plan.name, address=Address(host, KAFKA_PORT))
        try:
            change = Change(resource, values, self._env.now())
            self._told.changes.append(change)
            operation = self._stage.operations.begin("change settings", self._env.now())
            answer = await line.ask(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, _ALTER, {"resources": [_wish(resource, values)], "validate_only": False}
            )
            code = ErrorCode(int(answer.responses[0].error_code))
            if code in _WRONG:
                self._stage.notebook.find(DESCRIBED, NOWHERE, f"{resource} {values}: {code.name} {answer.responses[0].error_message}")
            if code is not ErrorCode.NONE:
                return False
            change.ended = self._env.now()
            self._stage.operations.complete(operation, self._env.now())
            self._stage.provoke()
            for story in await differences(self._stage, line, resource, self._topic):
                self._stage.notebook.find(DESCRIBED, NOWHERE, f"{host} says at {self._env.now():.3f}, just told: {story}")
            return True
        finally:
            line.close()


class ProducingAsTold:
    """Writes one record after the other, and looks at the disks when it was acknowledged."""

    def __init__(self, plan: ClientPlan, stage: ClusterStage, env: SimEnv) -> None:
        self._plan = plan
        self._stage = stage
        self._env = env
        self._number = 0

    async def run(self) -> None:
        async with self._stage.client(self._env, self._plan.name) as client:
            while not self._stage.is_over:
                try:
                    await self._produce(client, self._env.rng.choice(self._stage.partitions(self._plan.topic)))
                except (PeerFailure, LineLost):
                    await self._stage.breathe(self._env, 0.1)
                await self._stage.breathe(self._env, self._plan.options["pause"])

    async def _produce(self, client: Client, where: TopicPartition) -> None:
        stage, env, began = self._stage, self._env, self._env.now()
        least = self._told_to_leader(where)
        line = await stage.line_to_leader(client, self._plan.name, where)
        try:
            least = min(least, self._told_to_leader(where))
            self._number += 1
            record = make_record(self._plan.name, self._number, env.wall_ms(), size=60, key=b"k%d" % (self._number % 7))
            attempt = stage.notebook.diary.attempt(
                where, self._plan.name, record.value or b"", env.now(), is_idempotent=False, key=record.key
            )
            row = {"index": where.partition, "records": bytes(encode_batch([record]))}
            body = {"acks": ACKS_ALL, "timeout_ms": 1_500, "topic_data": [{"name": where.topic, "partition_data": [row]}]}
            answer = (await line.ask(ApiKey.PRODUCE, _PRODUCE, body)).responses[0].partition_responses[0]
        finally:
            line.close()
        code = ErrorCode(int(answer.error_code))
        if code is ErrorCode.NONE:
            attempt.acknowledged(int(answer.base_offset), env.now())
            self._look_at_disks(where, int(answer.base_offset), min(least, *stage.told_settings.least_in_sync(where.topic, began), least))
        elif code in (ErrorCode.INVALID_TIMESTAMP, ErrorCode.NOT_ENOUGH_REPLICAS):
            attempt.failed(env.now())

    def _told_to_leader(self, where: TopicPartition) -> int:
        """What any node that may lead has been told by now: the lowest of it."""
        found = []
        for _, node in self._stage.data.cluster.living():
            topic = node.image.topics.get(where.topic)
            if topic is not None:
                found.append(node.partitions.config_of(topic).min_insync_replicas)
        return min(found, default=1)

    def _look_at_disks(self, where: TopicPartition, offset: int, least: int) -> None:
        cluster = self._stage.data.cluster
        state = cluster.state(where.topic, where.partition)
        if state is None or cluster.lost_disks:
            return
        have, due = 0, min(least, len(state.replicas))
        for node_id in state.replicas:
            host = cluster.host_of(node_id)
            partition = cluster.partition(host, where.topic, where.partition)
            if partition is not None and not partition.is_damaged:
                have += partition.log.flushed_end > offset
            else:
                batches = read_log(cluster.world.hosts[host].disk, self._stage.topic_ids[where.topic], where.partition, is_flushed=True)
                have += any(batch.end_offset > offset for batch in batches)
        if have < due:
            story = f"offset {offset} was acknowledged at {self._env.now():.3f} and is on {have} disks; {due} were asked for"
            self._stage.notebook.find(ON_ENOUGH_DISKS, where, story)


class DescribingEverywhere:
    """At the end asks every node for all that was told."""

    def __init__(self, stage: ClusterStage, env: SimEnv) -> None:
        self._stage = stage
        self._env = env

    async def run(self) -> None:
        told, cluster = self._stage.told_settings, self._stage.data.cluster
        for host in cluster.brokers if told.changes else ():
            line = await Line.open(self._stage.notebook, "describer", address=Address(host, KAFKA_PORT))
            try:
                for resource in told.resources():
                    if resource[0] is ResourceType.BROKER and resource[1] not in ("", host.rsplit("-", 1)[1]):
                        continue  # A node speaks for itself.
                    topic = self._stage.topics.get(resource[1]) if resource[0] is ResourceType.TOPIC else None
                    for story in await differences(self._stage, line, resource, topic):
                        self._stage.notebook.find(DESCRIBED, NOWHERE, f"at the end {host} says: {story}")
            except LineLost as lost:
                self._stage.notebook.find("in the calm everything works", NOWHERE, f"{host} describes nothing: {lost}")
            finally:
                line.close()
            for story in self._not_followed(host):
                self._stage.notebook.find(FOLLOWED, NOWHERE, f"at the end {story}")

    def _not_followed(self, host: str) -> Iterator[str]:
        node = self._stage.data.cluster.node(host)
        assert node is not None
        told = self._stage.told_settings
        for kind, name in told.resources():
            resource = (kind, name)
            plan = self._stage.topics.get(name)
            for setting in told.names(resource) if kind is ResourceType.TOPIC and plan is not None else ():
                possible = told.possible(resource, setting, plan.config.get(setting) if plan is not None else None)
                for partition in node.partitions:
                    held = partition.config.as_texts()[setting]
                    usual = node.partitions.defaults.as_texts()[setting]
                    if partition.topic == name and held not in [usual if value is None else value for value in possible]:
                        yield f"{partition} on {host} goes by {setting} = {held}, and was told {possible}"
            if kind is ResourceType.BROKER and name == str(node.settings.node_id):
                for setting in told.names(resource):
                    possible, held = told.possible(resource, setting, None), node.settings.as_texts()[setting]
                    if None not in possible and held not in possible:
                        yield f"{host} goes by {setting} = {held}, and was told {possible}"


async def differences(stage: ClusterStage, line: Line, resource: Resource, topic: TopicPlan | None) -> list[str]:
    """Where what the node describes is nothing that it may have been told."""
    kind, name = resource
    wish = {"resource_type": int(kind), "resource_name": name, "configuration_keys": None}
    body = {"resources": [wish], "include_synonyms": False, "include_documentation": False}
    answer: Any = (await line.ask(ApiKey.DESCRIBE_CONFIGS, _DESCRIBE, body)).results[0]
    if answer.error_code != ErrorCode.NONE:
        return [f"{ErrorCode(int(answer.error_code)).name} for {resource}"]
    own = _OVERRIDDEN[kind] if not name else _OVERRIDDEN[kind][:1]
    held = {row.name: row.value for row in answer.configs if row.config_source in own}
    found = []
    for setting in stage.told_settings.names(resource):
        possible = stage.told_settings.possible(resource, setting, topic.config.get(setting) if topic is not None else None)
        if held.get(setting) not in possible:
            found.append(f"{setting} of {kind.name} {name!r} is {held.get(setting)}, and was told {possible}")
    return found


def _wish(resource: Resource, values: Values) -> dict[str, Any]:
    kind, name = resource
    rows = [
        {"name": setting, "value": value, "config_operation": int(Operation.DELETE if value is None else Operation.SET)}
        for setting, value in values.items()
    ]
    return {"resource_type": int(kind), "resource_name": name, "configs": rows}
