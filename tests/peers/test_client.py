"""Single calls: whom they ask, when they ask again, and what they say when they give up."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from all_loops import OnLoop
from peers.pretend_node import THEN_HANG_UP, TOPIC, PretendNode, pretend_node
from peers.scripted import HANG_UP, NO_ANSWER, scripted_peer, virtually
from waiting import until_async

from penstock.errors import ErrorCode
from penstock.peers.client import Client, parse_bootstrap
from penstock.peers.connection import Address
from penstock.peers.failures import GaveUp, Refused, UnknownTopic, Unreachable
from penstock.peers.offsets import EARLIEST, LATEST
from penstock.simulator.env import SimEnv
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, encode_batch

BATCH = encode_batch([Record(b"k", b"v", (), 1_000)])


@asynccontextmanager
async def client_of(env: SimEnv, node: PretendNode):
    async with Client(env, [node.peer.address]) as client:
        yield client


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC_ID]
)
def test_a_refusal_that_may_pass_is_asked_again_with_the_same_bytes(on_loop: OnLoop, code: ErrorCode):
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            node.produce_script.extend([code, code])
            produced = await client.produce(TOPIC, 0, BATCH)
            assert len(node.peer.of(ApiKey.METADATA)) == 3, "what was known of the leader is asked for again"
            return produced.base_offset, node.received

    offset, received = on_loop(scenario)
    assert offset == 0
    assert received == [(0, bytes(BATCH))] * 3


def test_a_final_refusal_is_not_asked_again(on_loop):
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            node.produce_script.append(ErrorCode.INVALID_RECORD)
            with pytest.raises(Refused) as told:
                await client.produce(TOPIC, 0, BATCH)
            assert len(node.received) == 1
            return told.value

    failure = on_loop(scenario)
    assert failure.code == ErrorCode.INVALID_RECORD and not failure.may_have_happened
    assert str(failure) == "produce to orders-0: the node answered INVALID_RECORD"


def test_a_final_refusal_after_a_lost_answer_does_not_claim_that_nothing_happened(on_loop):
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            node.produce_script.extend([THEN_HANG_UP, ErrorCode.INVALID_RECORD])
            with pytest.raises(Refused) as told:
                await client.produce(TOPIC, 0, BATCH)
            return told.value

    assert on_loop(scenario).may_have_happened


@pytest.mark.virtual_time("it tries until a deadline")
@pytest.mark.parametrize(("script", "may_have_happened"), [(ErrorCode.NOT_ENOUGH_REPLICAS, False), (ErrorCode.REQUEST_TIMED_OUT, True)])
def test_a_call_gives_up_at_its_deadline_and_says_why(script: ErrorCode, may_have_happened: bool):
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            node.produce_script.extend([script] * 1_000)
            began = env.now()
            with pytest.raises(GaveUp) as told:
                await client.produce(TOPIC, 0, BATCH, deadline_s=20)
            return told.value, len(node.received), env.now() - began

    failure, tries, took_s = virtually(scenario)
    assert f"produce to orders-0: gave up after 20 s. produce to orders-0: the node answered {script.name}" in str(failure)
    assert failure.may_have_happened == may_have_happened
    assert 18 < took_s <= 20
    assert 20 <= tries <= 31, "pauses grow to a second, each within a fifth"


@pytest.mark.virtual_time("it tries until a deadline")
def test_a_call_whose_last_try_was_cut_short_says_why_the_one_before_was_refused():
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            node.produce_script.extend([ErrorCode.NOT_ENOUGH_REPLICAS, NO_ANSWER])
            with pytest.raises(GaveUp, match="the node answered NOT_ENOUGH_REPLICAS"):
                await client.produce(TOPIC, 0, BATCH, deadline_s=4)

    virtually(scenario)


@pytest.mark.virtual_time("it tries until a deadline")
def test_a_silent_node_does_not_hold_a_call_past_its_deadline():
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            node.produce_script.append(NO_ANSWER)
            began = env.now()
            with pytest.raises(GaveUp, match=r"did not answer within (1|0\.9\d*) s"):
                await client.produce(TOPIC, 0, BATCH, deadline_s=1)
            return env.now() - began

    assert virtually(scenario) == pytest.approx(1, abs=0.01)


def test_a_call_follows_the_leader_to_another_node(on_loop):
    async def scenario(env):
        async with pretend_node(node_id=1) as old, pretend_node(node_id=2) as new, client_of(env, old) as client:
            nodes = {1: old.peer.address, 2: new.peer.address}
            old.nodes, new.nodes = nodes, nodes
            await client.produce(TOPIC, 0, BATCH)
            old.produce_script.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            old.leaders[0], old.leader_epoch = 2, 1
            await client.produce(TOPIC, 0, BATCH)
            return len(old.received), len(new.received)

    assert on_loop(scenario) == (2, 1)


def test_a_node_that_lags_cannot_bring_an_old_leader_back(on_loop):
    async def scenario(env):
        async with pretend_node(node_id=1) as node, client_of(env, node) as client:
            node.leader_epoch = 5
            await client.describe(TOPIC)
            node.leaders[0], node.leader_epoch = 9, 4
            await client.describe(TOPIC)
            view = await client.router.topic(TOPIC, client.router.deadline(1))
            return view.partitions[0]

    partition = on_loop(scenario)
    assert (partition.leader, partition.leader_epoch) == (1, 5)


def test_a_topic_made_again_is_believed_whatever_its_epoch(on_loop):
    async def scenario(env):
        async with pretend_node(node_id=1) as node, client_of(env, node) as client:
            node.leader_epoch = 5
            await client.describe(TOPIC)
            node.topic_id, node.leader_epoch = b"\x08" * 16, 0
            await client.describe(TOPIC)
            return await client.router.topic(TOPIC, client.router.deadline(1))

    view = on_loop(scenario)
    assert view.topic_id == b"\x08" * 16 and view.partitions[0].leader_epoch == 0


def test_callers_who_need_the_same_topic_share_one_question(on_loop):
    async def scenario(env):
        async with pretend_node(partitions=4) as node, client_of(env, node) as client:
            await asyncio.gather(*(client.produce(TOPIC, partition, BATCH) for partition in range(4)))
            return len(node.peer.of(ApiKey.METADATA)), node.peer.connection_count

    assert on_loop(scenario) == (1, 1)


def test_a_lost_connection_is_made_again(on_loop):
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            await client.produce(TOPIC, 0, BATCH)
            node.peer.hang_up()
            await client.produce(TOPIC, 0, BATCH)
            return node.peer.connection_count, len(node.received)

    assert on_loop(scenario) == (2, 2)


def test_a_later_bootstrap_address_serves_when_the_first_is_dead(on_loop):
    async def scenario(env):
        async with scripted_peer() as gone:
            dead = gone.address
        async with pretend_node() as node, Client(env, [dead, node.peer.address]) as client:
            await client.connect()
            return (await client.describe(TOPIC)).name

    assert on_loop(scenario) == TOPIC


@pytest.mark.virtual_time("a deadline must expire")
def test_a_later_bootstrap_address_serves_when_the_first_never_answers():
    """A command gives all of them five seconds together."""

    async def scenario(env: SimEnv) -> int:
        async with (
            scripted_peer({ApiKey.API_VERSIONS: lambda _: NO_ANSWER}) as silent,
            scripted_peer() as live,
            Client(env, [silent.address, live.address]) as client,
        ):
            await client.connect(deadline_s=5.0)
            return live.connection_count

    assert virtually(scenario) == 1


def test_no_bootstrap_address_at_all_is_told_with_every_reason(on_loop):
    async def scenario(env):
        async with scripted_peer() as gone, scripted_peer({ApiKey.API_VERSIONS: lambda _: NO_ANSWER}) as silent:
            dead = gone.address
            gone.handlers[ApiKey.API_VERSIONS] = lambda _: HANG_UP
            async with Client(env, [dead, silent.address]) as client:
                with pytest.raises(Unreachable) as told:
                    await client.connect()
                return dead, silent.address, str(told.value)

    dead, silent, text = on_loop(scenario)
    assert text.startswith(
        f"cannot connect to any bootstrap address: the connection to {dead} ended: the peer closed it; {silent} did not answer"
    )
    assert "check that a node is running" in text


def test_a_topic_that_is_not_there_is_told_at_once(on_loop):
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            with pytest.raises(UnknownTopic) as told:
                await client.describe("nothing")
            return str(told.value), len(node.peer.questions)

    assert on_loop(scenario) == ("there is no topic 'nothing'\n  check the name, or create the topic first", 1)


def test_describing_never_creates_a_topic_and_producing_lets_the_node_decide(on_loop):
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            await client.describe(TOPIC)
            client.router.doubt(TOPIC)
            await client.produce(TOPIC, 0, BATCH)
            return [question.body.allow_auto_topic_creation for question in node.peer.of(ApiKey.METADATA)]

    assert on_loop(scenario) == [False, True]


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_creation_whose_answer_was_lost_counts_as_ours(on_loop: OnLoop, is_lost: bool):
    async def scenario(env):
        def create(question):
            row = {"name": TOPIC, "error_code": ErrorCode.TOPIC_ALREADY_EXISTS, "error_message": "it is there"}
            if is_lost and len(node.peer.of(ApiKey.CREATE_TOPICS)) == 1:
                return HANG_UP
            return {"topics": [row]}

        async with pretend_node(partitions=2) as node, client_of(env, node) as client:
            node.peer.handlers[ApiKey.CREATE_TOPICS] = create
            view = await client.create_topic(TOPIC, partitions=2, config={"flush": "os"})
            asked = node.peer.of(ApiKey.CREATE_TOPICS)[0].body.topics[0]
            assert (asked.num_partitions, asked.configs[0].name, asked.configs[0].value) == (2, "flush", "os")
            return len(view.partitions)

    if is_lost:
        assert on_loop(scenario) == 2
    else:
        with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS \\(it is there\\)"):
            on_loop(scenario)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_deletion_whose_answer_was_lost_counts_as_ours(on_loop: OnLoop, is_lost: bool):
    async def scenario(env):
        def delete(question):
            if is_lost and len(node.peer.of(ApiKey.DELETE_TOPICS)) == 1:
                return HANG_UP
            return {"responses": [{"name": TOPIC, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]}

        async with pretend_node() as node, client_of(env, node) as client:
            node.peer.handlers[ApiKey.DELETE_TOPICS] = delete
            await client.delete_topic(TOPIC)

    if is_lost:
        on_loop(scenario)
    else:
        with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            on_loop(scenario)


@pytest.mark.virtual_time("it moves time by hand")
def test_a_created_topic_is_awaited_until_it_has_leaders():
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            node.leaders[0] = -1

            def create(question):
                asyncio.get_running_loop().call_later(0.05, node.leaders.clear)
                return {"topics": [{"name": TOPIC}]}

            node.peer.handlers[ApiKey.CREATE_TOPICS] = create
            return await client.create_topic(TOPIC)

    assert virtually(scenario).partitions[0].leader == 1


def test_offsets_of_many_partitions_are_asked_of_each_leader_once(on_loop):
    async def scenario(env):
        async with (
            pretend_node(node_id=1, partitions=4) as one,
            pretend_node(node_id=2, partitions=4) as two,
            client_of(env, one) as client,
        ):
            nodes = {1: one.peer.address, 2: two.peer.address}
            one.nodes, two.nodes = nodes, nodes
            one.leaders = {1: 2, 3: 2}
            two.store(b"a", b"b", partition=3)
            wishes = {TopicPartition(TOPIC, partition): LATEST for partition in range(4)}
            found = await client.list_offsets(wishes)
            return (
                [found[partition].offset for partition in wishes],
                len(one.peer.of(ApiKey.LIST_OFFSETS)),
                len(two.peer.of(ApiKey.LIST_OFFSETS)),
            )

    assert on_loop(scenario) == ([0, 0, 0, 2], 1, 1)


def test_only_what_was_refused_is_looked_up_again(on_loop):
    async def scenario(env):
        async with pretend_node(partitions=2) as node, client_of(env, node) as client:
            honest = node.list_offsets

            def refuse_one_at_first(question):
                answer = honest(question)
                if len(node.peer.of(ApiKey.LIST_OFFSETS)) == 1:
                    answer["topics"][0]["partitions"][1]["error_code"] = ErrorCode.NOT_LEADER_OR_FOLLOWER
                return answer

            node.peer.handlers[ApiKey.LIST_OFFSETS] = refuse_one_at_first
            await client.list_offsets({TopicPartition(TOPIC, 0): EARLIEST, TopicPartition(TOPIC, 1): EARLIEST})
            asked = [[row.partition_index for row in question.body.topics[0].partitions] for question in node.peer.of(ApiKey.LIST_OFFSETS)]
            return asked

    assert on_loop(scenario) == [[0, 1], [1]]


def test_a_topic_without_an_id_is_spoken_of_by_name(on_loop):
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            node.topic_id = bytes(16)
            node.store(b"a")
            await client.produce(TOPIC, 0, BATCH)
            await client.fetch(TOPIC, 0, 0)
            return node.peer.of(ApiKey.PRODUCE)[0].version, node.peer.of(ApiKey.FETCH)[0].version

    assert on_loop(scenario) == (12, 12)


def test_an_old_peer_is_served_in_its_old_versions(on_loop):
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            node.peer.versions |= {ApiKey.PRODUCE: (3, 3), ApiKey.FETCH: (4, 4), ApiKey.METADATA: (4, 4), ApiKey.LIST_OFFSETS: (1, 1)}
            assert (await client.produce(TOPIC, 0, BATCH)).base_offset == 0
            assert len((await client.fetch(TOPIC, 0, 0)).records) == len(BATCH)
            found = await client.list_offsets({TopicPartition(TOPIC, 0): LATEST})
            return found[TopicPartition(TOPIC, 0)].offset

    assert on_loop(scenario) == 1


def test_acks_none_sends_and_does_not_wait(on_loop):
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            produced = await client.produce(TOPIC, 0, BATCH, acks=0)
            await until_async(lambda: len(node.received) == 1)
            assert (await client.describe(TOPIC)).name == TOPIC, "the next answer is not taken for the missing one"
            return produced.base_offset

    assert on_loop(scenario) == -1


def test_a_closed_client_says_so(on_loop):
    async def scenario(env):
        async with pretend_node() as node, client_of(env, node) as client:
            await client.close()
            with pytest.raises(Exception, match="the client was closed"):
                await client.describe(TOPIC)

    on_loop(scenario)


def test_closing_tells_those_who_wait_for_a_connection(on_loop):
    async def scenario(env):
        async with scripted_peer({ApiKey.API_VERSIONS: lambda _: NO_ANSWER}) as silent:
            client = Client(env, [silent.address])
            task = asyncio.create_task(client.describe(TOPIC))
            await until_async(lambda: silent.connection_count == 1)
            await client.close()
            with pytest.raises(Exception, match="the client was closed"):
                await task

    on_loop(scenario)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [Address("localhost", 9092)]),
        (" a:1 , b:2,", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9092", [Address("::1", 9092)]),
    ],
)
def test_bootstrap_addresses_are_read(text: str, expected: list[Address]):
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", " , ", "localhost", "localhost:", ":9092", "host:port", "host:0", "host:70000"])
def test_what_is_no_address_is_refused_with_an_example(text: str):
    with pytest.raises(ValueError, match=r"write host:port, for example 127\.0\.0\.1:9092"):
        parse_bootstrap(text)
