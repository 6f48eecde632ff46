"""What a transactional producer says when answers are lost, refused or late: to a coordinator that plays a script."""

import asyncio
from collections import defaultdict, deque
from contextlib import asynccontextmanager
from typing import Any

import pytest
from all_loops import OnLoop
from peers.pretend_node import TOPIC, PretendNode, pretend_node
from peers.scripted import HANG_UP, NO_ANSWER, Question, versions_body, virtually

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import GaveUp, MustAbort, ProducerBroken, ProducerFenced
from penstock.peers.producer import ProducerSettings
from penstock.peers.transactions import GroupIdentity, State, TransactionalProducer, TransactionSettings
from penstock.simulator.env import SimEnv
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey

P = TopicPartition(TOPIC, 0)
LATER = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, HANG_UP)


class PretendCoordinator:
    """Of everything. For each API a script of codes, `HANG_UP` and `NO_ANSWER`; an empty one means: done."""

    def __init__(self, node: PretendNode, *, is_v2: bool) -> None:
        self.node = node
        self.scripts: dict[ApiKey, deque[Any]] = defaultdict(deque)
        self.epoch = -1
        self.is_v2 = is_v2
        peer = node.peer
        peer.handlers |= {
            ApiKey.API_VERSIONS: self.versions,
            ApiKey.FIND_COORDINATOR: self.find,
            ApiKey.INIT_PRODUCER_ID: self.init,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: lambda question: self.answer(question, {}),
            ApiKey.TXN_OFFSET_COMMIT: self.commit_offsets,
            ApiKey.END_TXN: self.end,
        }

    def answer(self, question: Question, said: dict[str, Any]) -> Any:
        script = self.scripts[question.api]
        code = script.popleft() if script else ErrorCode.NONE
        return {**said, "error_code": code} if isinstance(code, ErrorCode) else code

    def versions(self, _: Question) -> Any:
        features = [{"name": "transaction.version", "max_version_level": 2, "min_version_level": 2}] if self.is_v2 else []
        return versions_body(self.node.peer.versions) | {"finalized_features_epoch": 3, "finalized_features": features}

    def find(self, question: Question) -> Any:
        host, port = self.node.peer.address
        return {"coordinators": [{"key": question.body.coordinator_keys[0], "node_id": 1, "host": host, "port": port}]}

    def init(self, question: Question) -> Any:
        self.epoch += 1
        return self.answer(question, {"producer_id": 7, "producer_epoch": self.epoch})

    def add_partitions(self, question: Question) -> Any:
        answer = self.answer(question, {})
        if not isinstance(answer, dict):
            return answer
        return {
            "results_by_topic_v3_and_below": [
                {
                    "name": topic.name,
                    "results_by_partition": [
                        {"partition_index": index, "partition_error_code": answer["error_code"]} for index in topic.partitions
                    ],
                }
                for topic in question.body.v3_and_below_topics
            ]
        }

    def commit_offsets(self, question: Question) -> Any:
        answer = self.answer(question, {})
        if not isinstance(answer, dict):
            return answer
        return {
            "topics": [
                {"name": topic.name, "partitions": [{"partition_index": row.partition_index, **answer} for row in topic.partitions]}
                for topic in question.body.topics
            ]
        }

    def end(self, question: Question) -> Any:
        if question.version >= 5:
            self.epoch = question.body.producer_epoch + 1
        return self.answer(question, {"producer_id": 7, "producer_epoch": self.epoch})

    def asked(self, api: ApiKey) -> list[Any]:
        return [question.body for question in self.node.peer.of(api)]


@asynccontextmanager
async def story(env: SimEnv, *, is_v2: bool, **settings: Any):
    async with pretend_node(partitions=2) as node, Client(env, [node.peer.address]) as client:
        coordinator = PretendCoordinator(node, is_v2=is_v2)
        transaction = TransactionSettings("id", **settings)
        yield coordinator, TransactionalProducer(client, transaction, ProducerSettings(linger_s=0.0))


@pytest.mark.virtual_time("it tries until a deadline")
@pytest.mark.parametrize("is_v2", [True, False])
def test_every_call_is_asked_again_while_that_can_help(is_v2: bool) -> None:
    async def scenario(env):
        async with story(env, is_v2=is_v2) as (coordinator, producer):
            for api in (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT):
                coordinator.scripts[api].extend(LATER)
            coordinator.scripts[ApiKey.END_TXN].extend((*LATER, NO_ANSWER))
            async with producer:
                producer.begin()
                await producer.send(TOPIC, b"v", partition=0)
                await producer.send_offsets({P: 4}, GroupIdentity("g", "m", 3))
                await producer.commit()
                assert producer.state is State.READY
            return coordinator

    coordinator = virtually(scenario)
    ends = coordinator.asked(ApiKey.END_TXN)
    assert len(ends) == len(LATER) + 2 and len({(end.producer_epoch, end.committed) for end in ends}) == 1
    assert bool(coordinator.asked(ApiKey.ADD_PARTITIONS_TO_TXN)) is not is_v2, "version 2 announces nothing"
    commit = coordinator.asked(ApiKey.TXN_OFFSET_COMMIT)[-1]
    assert (commit.group_id, commit.member_id, commit.generation_id) == ("g", "m", 3)


def test_a_partition_is_announced_once_and_before_its_first_batch(on_loop: OnLoop) -> None:
    async def scenario(env):
        async with story(env, is_v2=False) as (coordinator, producer), producer:
            for _ in range(2):
                producer.begin()
                for number in range(4):
                    await (await producer.send(TOPIC, b"%d" % number, partition=number % 2))
                await producer.commit()
            apis = [question.api for question in coordinator.node.peer.questions]
            return coordinator, apis

    coordinator, apis = on_loop(scenario)
    announced = [body.v3_and_below_topics[0].partitions for body in coordinator.asked(ApiKey.ADD_PARTITIONS_TO_TXN)]
    assert announced == [(0,), (1,), (0,), (1,)]
    assert apis.index(ApiKey.ADD_PARTITIONS_TO_TXN) < apis.index(ApiKey.PRODUCE)
    assert all(header.is_transactional for header in coordinator.node.received_headers)
    sequences = [header.base_sequence for header in coordinator.node.received_headers]
    assert sequences == [0, 0, 1, 1, 2, 2, 3, 3], "of one epoch, so they go on"


@pytest.mark.virtual_time("a deadline must expire")
@pytest.mark.parametrize("is_v2", [True, False])
def test_the_epoch_is_raised_after_a_batch_was_given_up(is_v2: bool) -> None:
    """It may still arrive, and must not be taken for one of the next transaction."""

    async def scenario(env):
        async with story(env, is_v2=is_v2, abort_patience_s=5) as (coordinator, producer), producer:
            producer.begin()
            await (await producer.send(TOPIC, b"stored", partition=0))
            coordinator.node.produce_script.append(NO_ANSWER)
            await producer.send(TOPIC, b"given up", partition=0)
            await asyncio.sleep(0.05)
            await producer.abort()
            producer.begin()
            await (await producer.send(TOPIC, b"next", partition=0))
            await producer.commit()
            return coordinator

    coordinator = virtually(scenario)
    told = [(header.producer_epoch, header.base_sequence) for header in coordinator.node.received_headers]
    assert told == [(0, 0), (0, 1), (1, 0)]
    inits = [(body.producer_id, body.producer_epoch) for body in coordinator.asked(ApiKey.INIT_PRODUCER_ID)]
    assert inits == ([(-1, -1)] if is_v2 else [(-1, -1), (7, 0)])


@pytest.mark.virtual_time("a request is not answered, and its deadline must expire")
@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_commit_that_may_have_been_made_before_it_was_refused_is_undecided(code: ErrorCode) -> None:
    async def scenario(env, first: list[Any]):
        async with story(env, is_v2=True) as (coordinator, producer), producer:
            producer.begin()
            await producer.send(TOPIC, b"v", partition=0)
            coordinator.scripts[ApiKey.END_TXN].extend([*first, code])
            with pytest.raises(ProducerFenced) as fenced:
                await producer.commit()
            return fenced.value.may_have_happened

    assert virtually(lambda env: scenario(env, [])) is False
    assert virtually(lambda env: scenario(env, [NO_ANSWER])) is True
    assert virtually(lambda env: scenario(env, [ErrorCode.NOT_COORDINATOR])) is True, "it may have been recorded, and its node stepped down"


@pytest.mark.virtual_time("a request is not answered, and its deadline must expire")
def test_a_commit_without_an_answer_may_be_asked_for_again_and_not_be_aborted() -> None:
    async def scenario(env):
        async with story(env, is_v2=True, deadline_s=40) as (coordinator, producer), producer:
            producer.begin()
            await producer.send(TOPIC, b"v", partition=0)
            coordinator.scripts[ApiKey.END_TXN].extend([NO_ANSWER] * 2)
            with pytest.raises(GaveUp) as gave_up:
                await producer.commit()
            assert gave_up.value.may_have_happened and producer.state is State.COMMITTING
            with pytest.raises(ProducerBroken):
                await producer.abort()
            coordinator.scripts.clear()
            await producer.commit()
            assert producer.state is State.READY

    virtually(scenario)


@pytest.mark.parametrize("is_v2", [True, False])
def test_a_producer_that_its_coordinator_has_forgotten_gets_another_id(on_loop: OnLoop, is_v2: bool) -> None:
    async def scenario(env):
        async with story(env, is_v2=is_v2) as (coordinator, producer), producer:
            producer.begin()
            await producer.send(TOPIC, b"v", partition=0)
            coordinator.scripts[ApiKey.END_TXN].append(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            with pytest.raises(MustAbort):
                await producer.commit()
            await producer.abort()
            assert producer.state is State.READY
            return coordinator

    coordinator = on_loop(scenario)
    assert len(coordinator.asked(ApiKey.END_TXN)) == 1, "there is nothing to end"
    assert [body.producer_id for body in coordinator.asked(ApiKey.INIT_PRODUCER_ID)] == [-1, -1]


@pytest.mark.parametrize("is_v2", [True, False])
def test_a_node_that_takes_the_epoch_for_too_low_does_not_break_the_producer(on_loop: OnLoop, is_v2: bool) -> None:
    """The coordinator alone knows who is fenced."""

    async def scenario(env):
        async with story(env, is_v2=is_v2) as (coordinator, producer), producer:
            producer.begin()
            coordinator.node.produce_script.append(ErrorCode.INVALID_PRODUCER_EPOCH)
            await producer.send(TOPIC, b"v", partition=0)
            with pytest.raises(MustAbort):
                await producer.commit()
            await producer.abort()
            producer.begin()
            await producer.send(TOPIC, b"next", partition=0)
            await producer.commit()
            return coordinator

    assert [header.producer_epoch for header in on_loop(scenario).node.received_headers] == [0, 1]
