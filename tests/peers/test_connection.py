"""One connection: order, bounds, time-outs, and peers that misbehave."""

import asyncio
import contextlib

import pytest
from peers.scripted import HANG_UP, NO_ANSWER, ScriptedPeer, frame_of, scripted_peer, versions_body, virtually
from waiting import PATIENCE_MS, PATIENCE_S, stays_async, until_async

from penstock.errors import ErrorCode
from penstock.peers.connection import Address, Connection, Limits
from penstock.peers.failures import AnswerTimedOut, BadAnswer, ConnectionLost, NotSpoken, Unreachable
from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import write_response

CLUSTER = {"brokers": [], "cluster_id": "scripted", "controller_id": 1, "topics": []}
ALL_TOPICS = {"topics": None}


def cluster_named(name: str) -> dict[str, object]:
    return CLUSTER | {"cluster_id": name}


async def ask(connection: Connection, *, timeout_s: float = PATIENCE_S) -> str:
    answer = await connection.call(ApiKey.METADATA, ALL_TOPICS, timeout_s=timeout_s)
    return answer.cluster_id


@contextlib.asynccontextmanager
async def connected(peer: ScriptedPeer, **limits):
    connection = await Connection.open(peer.address, limits=Limits(**limits))
    try:
        yield connection
    finally:
        connection.close()


def test_questions_leave_before_earlier_ones_are_answered():
    async def scenario():
        async with scripted_peer({ApiKey.METADATA: lambda _: NO_ANSWER}) as peer, connected(peer) as connection:
            tasks = [asyncio.create_task(ask(connection)) for _ in range(3)]
            await until_async(lambda: len(peer.questions) == 3)
            assert not any(task.done() for task in tasks)
            for question in peer.questions:
                body = cluster_named(f"answer to {question.correlation_id}")
                peer.writers[0].write(write_response(ApiKey.METADATA, question.version, question.correlation_id, body))
            return [await task for task in tasks]

    assert asyncio.run(scenario()) == ["answer to 1", "answer to 2", "answer to 3"]


def test_answers_in_another_order_than_the_questions_end_the_connection():
    async def scenario():
        async with scripted_peer({ApiKey.METADATA: lambda question: NO_ANSWER}) as peer, connected(peer) as connection:
            tasks = [asyncio.create_task(ask(connection)) for _ in range(2)]
            await until_async(lambda: len(peer.questions) == 2)
            second = peer.questions[1]
            peer.writers[0].write(write_response(ApiKey.METADATA, second.version, second.correlation_id, CLUSTER))
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert not connection.is_open
            return outcomes

    for outcome in asyncio.run(scenario()):
        assert isinstance(outcome, ConnectionLost) and "not next" in str(outcome)
        assert outcome.may_have_happened


def test_an_answer_that_nobody_asked_for_ends_the_connection():
    async def scenario():
        async with scripted_peer() as peer, connected(peer) as connection:
            peer.writers[0].write(frame_of((77).to_bytes(4, "big") + bytes(20)))
            await until_async(lambda: not connection.is_open)

    asyncio.run(scenario())


@pytest.mark.virtual_time("it moves time by hand")
def test_no_more_questions_are_in_flight_than_allowed():
    async def scenario(env):
        gate = asyncio.Semaphore(0)

        async def answer_one_by_one(question):
            await gate.acquire()
            return cluster_named(str(question.correlation_id))

        async with scripted_peer({ApiKey.METADATA: answer_one_by_one}) as peer, connected(peer, in_flight_max=2) as connection:
            tasks = [asyncio.create_task(ask(connection)) for _ in range(5)]
            await asyncio.sleep(1)
            assert len(connection._waiting) == 2 and len(connection._line) == 3
            gate.release()
            await asyncio.sleep(1)
            assert tasks[0].done()
            assert len(connection._waiting) == 2 and len(connection._line) == 2
            for _ in range(4):
                gate.release()
            return [await task for task in tasks]

    assert virtually(scenario) == ["1", "2", "3", "4", "5"], "first come, first served"


@pytest.mark.virtual_time("a deadline must expire")
def test_a_time_out_ends_the_connection_and_tells_everyone_what_became_of_their_question():
    async def scenario(env):
        async with scripted_peer({ApiKey.METADATA: lambda _: NO_ANSWER}) as peer, connected(peer, in_flight_max=2) as connection:
            impatient = asyncio.create_task(ask(connection, timeout_s=0.1))
            patient = asyncio.create_task(ask(connection))
            in_line = asyncio.create_task(ask(connection))
            outcomes = await asyncio.gather(impatient, patient, in_line, return_exceptions=True)
            assert not connection.is_open
            with pytest.raises(ConnectionLost) as later:
                await ask(connection)
            return [*outcomes, later.value]

    impatient, patient, in_line, later = virtually(scenario)
    assert isinstance(impatient, AnswerTimedOut) and "did not answer within 0.1 s" in str(impatient)
    assert impatient.may_have_happened
    assert isinstance(patient, ConnectionLost) and patient.may_have_happened
    assert isinstance(in_line, ConnectionLost) and not in_line.may_have_happened, "it never left"
    assert not later.may_have_happened


@pytest.mark.virtual_time("it moves time by hand")
def test_a_cancelled_question_keeps_its_place_in_the_order():
    async def scenario(env):
        gate = asyncio.Event()

        async def answer_late(question):
            await gate.wait()
            return cluster_named(str(question.correlation_id))

        async with scripted_peer({ApiKey.METADATA: answer_late}) as peer, connected(peer) as connection:
            first, second = asyncio.create_task(ask(connection)), asyncio.create_task(ask(connection))
            await asyncio.sleep(1)
            first.cancel()
            await asyncio.sleep(0)
            gate.set()
            return await second

    assert virtually(scenario) == "2"


@pytest.mark.virtual_time("it moves time by hand")
def test_someone_who_leaves_the_line_does_not_take_a_slot_along():
    async def scenario(env):
        gate = asyncio.Event()

        async def answer_late(question):
            await gate.wait()
            return CLUSTER

        async with scripted_peer({ApiKey.METADATA: answer_late}) as peer, connected(peer, in_flight_max=1) as connection:
            tasks = [asyncio.create_task(ask(connection)) for _ in range(4)]
            await asyncio.sleep(1)
            tasks[1].cancel()
            gate.set()
            await tasks[0]
            tasks[2].cancel()  # It may hold the slot already, or not: either way the last one must get through.
            await tasks[3]
            assert connection._slots_taken == 0 and connection._waiting == connection._line

    virtually(scenario)


@pytest.mark.parametrize("length", [2**31 - 1, 1_000_001, 3, 0, -1, -(2**31)])
def test_an_impossible_length_is_refused_by_its_first_four_bytes(length: int):
    async def scenario():
        answer = length.to_bytes(4, "big", signed=True)
        async with scripted_peer({ApiKey.METADATA: lambda _: answer}) as peer, connected(peer, answer_bytes_max=1_000_000) as connection:
            with pytest.raises(ConnectionLost) as told:
                await ask(connection)
            assert connection._buffer is connection._small, "no memory was given to it"
            return str(told.value)

    assert f"an answer of {length} bytes" in asyncio.run(scenario())


def test_an_answer_that_comes_byte_by_byte_is_read():
    async def scenario():
        async def drip(question):
            for byte in write_response(ApiKey.METADATA, question.version, question.correlation_id, CLUSTER):
                peer.writers[0].write(bytes([byte]))
                await peer.writers[0].drain()
                await asyncio.sleep(0)
            return NO_ANSWER

        async with scripted_peer({ApiKey.METADATA: drip}) as peer, connected(peer) as connection:
            return await ask(connection)

    assert asyncio.run(scenario()) == "scripted"


def test_several_answers_in_one_piece_are_all_read():
    async def scenario():
        held = []

        def answer_at_the_third(question):
            held.append(write_response(ApiKey.METADATA, question.version, question.correlation_id, cluster_named(f"c{len(held)}")))
            return b"".join(held) if len(held) == 3 else NO_ANSWER

        async with scripted_peer({ApiKey.METADATA: answer_at_the_third}) as peer, connected(peer) as connection:
            return await asyncio.gather(*(ask(connection) for _ in range(3)))

    assert asyncio.run(scenario()) == ["c0", "c1", "c2"]


def test_a_peer_that_hangs_up_inside_an_answer_is_told_as_such():
    async def scenario():
        async def half(question):
            frame = write_response(ApiKey.METADATA, question.version, question.correlation_id, CLUSTER)
            peer.writers[0].write(frame[: len(frame) // 2])
            await peer.writers[0].drain()
            return HANG_UP

        async with scripted_peer({ApiKey.METADATA: half}) as peer, connected(peer) as connection:
            with pytest.raises(ConnectionLost) as told:
                await ask(connection)
            return told.value

    failure = asyncio.run(scenario())
    assert "the peer closed it" in str(failure) and failure.may_have_happened and failure.is_retriable


def test_an_answer_that_does_not_parse_ends_the_connection():
    async def scenario():
        def nonsense(question):
            return frame_of(question.correlation_id.to_bytes(4, "big") + b"\xff" * 30)

        async with scripted_peer({ApiKey.METADATA: nonsense}) as peer, connected(peer) as connection:
            with pytest.raises(BadAnswer) as told:
                await ask(connection)
            assert not connection.is_open
            return told.value

    failure = asyncio.run(scenario())
    assert "does not parse" in str(failure) and failure.may_have_happened


def test_a_peer_that_does_not_read_slows_its_callers_instead_of_filling_memory():
    """A hundred requests of a megabyte each; the slots alone would let sixty-four of them into the socket's buffer."""

    async def scenario():
        async with scripted_peer({ApiKey.PRODUCE: lambda _: NO_ANSWER}) as peer, connected(peer) as connection:
            peer.is_reading.clear()
            row = {"index": 0, "records": bytes(1 << 20)}
            body = {"acks": -1, "timeout_ms": PATIENCE_MS, "topic_data": [{"name": "t", "topic_id": b"\x01" * 16, "partition_data": [row]}]}
            tasks = [asyncio.create_task(connection.call(ApiKey.PRODUCE, body, timeout_s=PATIENCE_S)) for _ in range(100)]
            await until_async(lambda: connection._is_congested)
            await stays_async(lambda: connection._transport.get_write_buffer_size() < 4 << 20)
            connection.close()
            return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(scenario())
    assert all(isinstance(outcome, ConnectionLost) for outcome in outcomes)
    assert sum(not outcome.may_have_happened for outcome in outcomes) > 80, "most never left"


@pytest.mark.virtual_time("it moves time by hand")
def test_what_expects_no_answer_takes_no_place_among_those_that_do():
    async def scenario(env):
        def answer(question):
            return NO_ANSWER if question.api == ApiKey.PRODUCE else CLUSTER

        async with scripted_peer({ApiKey.PRODUCE: answer, ApiKey.METADATA: answer}) as peer, connected(peer, in_flight_max=1) as connection:
            for _ in range(10):
                await connection.tell(ApiKey.PRODUCE, {"acks": 0, "timeout_ms": 1, "topic_data": []}, timeout_s=1)
            assert await ask(connection) == "scripted"
            return len(peer.of(ApiKey.PRODUCE))

    assert virtually(scenario) == 10


def test_a_port_where_nobody_listens_is_told_with_its_address():
    async def scenario():
        async with scripted_peer() as peer:
            address = peer.address
        with pytest.raises(Unreachable) as told:
            await Connection.open(address)
        return address, told.value

    address, failure = asyncio.run(scenario())
    assert str(failure) == f"cannot connect to {address}: connection refused"
    assert not failure.may_have_happened and failure.is_retriable


def test_a_peer_that_never_says_what_it_speaks_is_given_up(on_loop):
    async def scenario(env):
        async with scripted_peer({ApiKey.API_VERSIONS: lambda _: NO_ANSWER}) as peer:
            with pytest.raises(Unreachable, match=r"did not answer within 0\.1 s"):
                await Connection.open(peer.address, limits=Limits(connect_s=0.1))

    on_loop(scenario)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", HANG_UP])
def test_a_peer_that_speaks_something_else_is_told_as_such(answer):
    async def scenario():
        async with scripted_peer({ApiKey.API_VERSIONS: lambda _: answer}) as peer:
            with pytest.raises(Unreachable, match=r"check that .* is the Kafka port of a node"):
                await Connection.open(peer.address)

    asyncio.run(scenario())


@pytest.mark.virtual_time("it moves time by hand")
def test_the_highest_common_version_is_spoken():
    async def scenario(env):
        async with scripted_peer({ApiKey.METADATA: lambda _: CLUSTER}) as peer:
            peer.versions = {ApiKey.METADATA: (0, 9), ApiKey.FETCH: (4, 99), ApiKey.PRODUCE: (99, 99)}
            async with connected(peer) as connection:
                await ask(connection)
                assert peer.questions[0].version == 9
                assert connection.version(ApiKey.FETCH) == 17, "never above what we know"
                assert connection.version(ApiKey.FETCH, version_max=12) == 12
                with pytest.raises(NotSpoken, match="speaks PRODUCE 99 to 99, this client 3 to 13"):
                    connection.version(ApiKey.PRODUCE)
                with pytest.raises(NotSpoken, match="does not offer LIST_OFFSETS"):
                    await connection.call(ApiKey.LIST_OFFSETS, {}, timeout_s=1)

    virtually(scenario)


def test_a_peer_too_old_for_our_question_is_asked_again_in_its_own_version(on_loop):
    async def scenario(env):
        asked = []

        def old_peer(question):
            asked.append(question.version)
            body = versions_body({ApiKey.API_VERSIONS: (0, 2), ApiKey.METADATA: (0, 5)})
            if question.version > 2:
                refusal = body | {"error_code": ErrorCode.UNSUPPORTED_VERSION}
                return write_response(ApiKey.API_VERSIONS, 0, question.correlation_id, refusal)
            return body

        async with scripted_peer({ApiKey.API_VERSIONS: old_peer}) as peer, connected(peer) as connection:
            assert connection.version(ApiKey.METADATA) == 5
            return asked

    assert on_loop(scenario) == [4, 2]


def test_an_ipv6_address_is_written_in_brackets():
    assert str(Address("::1", 9092)) == "[::1]:9092"
