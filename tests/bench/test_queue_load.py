"""The load on queues must be trusted before its figures are: every door carries what it is given, and what is wrong ends the run."""

import asyncio
from collections.abc import Iterator

import pytest
from bench.moments import A_MOMENT
from benchmarks.load.frames import UnexpectedReply
from benchmarks.queue_load.calls import Calls, make_queue, request
from benchmarks.queue_load.doors import PythonDoor, ShareDoor, SqsDoor
from benchmarks.queue_load.pace import Door, PaceLoad
from benchmarks.queue_load.rates import RateLoad
from benchmarks.queue_load.shares import ShareLoad
from benchmarks.queue_load.talk import Talk, answers_http
from benchmarks.queues import PENSTOCK, QUICK, goals
from system.harness import Node

from penstock.testing.brokers import TEST_SETTINGS

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("bench") / "data", settings=TEST_SETTINGS, topic_settings={"flush": "os"}) as node:
        yield node


@pytest.mark.parametrize("batch", [1, 10])
def test_messages_are_sent_received_and_deleted(node: Node, batch: int) -> None:
    figures = asyncio.run(RateLoad(batch, connections=2).run(HOST, node.http_port, A_MOMENT))
    assert min(figures[f"{verb}_per_s"] for verb in ("send", "receive", "delete", "life")) > 0


def test_members_of_a_share_group_take_and_accept(node: Node) -> None:
    figures = asyncio.run(ShareLoad(500, connections=2).run(HOST, node.kafka_port, A_MOMENT))
    assert figures["life_per_s"] > 0


@pytest.mark.parametrize("name", ["sqs", "python", "share"])
def test_every_message_is_timed_through_each_door(node: Node, name: str) -> None:
    async def paced() -> dict[str, float]:
        doors: dict[str, Door] = {
            "sqs": SqsDoor(HOST, node.http_port),
            "python": PythonDoor(HOST, node.http_port),
            "share": ShareDoor(HOST, node.kafka_port),
        }
        return await PaceLoad(doors[name], rate=200).run(A_MOMENT)

    figures = asyncio.run(paced())
    assert 0 < figures["p50_s"] <= figures["p99_s"] <= figures["max_s"]


def test_what_is_refused_or_missing_ends_the_run(node: Node) -> None:
    async def talked() -> None:
        talk = await Talk.open(HOST, node.http_port)
        with pytest.raises(UnexpectedReply, match=r"400 .*NonExistentQueue|400 .*QueueDoesNotExist"):
            await talk.ask(request("ReceiveMessage", {"QueueUrl": "http://localhost/000000000000/nowhere"}))
        calls = Calls(await make_queue(talk, "bench-odd"), 10)
        with pytest.raises(UnexpectedReply, match="not all were deleted"):
            await calls.delete(talk, [b"no handle at all"])
        assert await calls.receive(talk) == []
        talk.close()

    asyncio.run(talked())
    assert answers_http(node.http_port)
    assert not answers_http(node.kafka_port)


def test_a_server_that_closes_after_each_answer_is_connected_to_again() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.write(b"done")
        writer.close()

    async def asked() -> list[bytes]:
        server = await asyncio.start_server(answer, HOST, 0)
        talk = await Talk.open(HOST, server.sockets[0].getsockname()[1])
        answers = [await talk.ask(b"POST / HTTP/1.1\r\n\r\n") for _ in range(3)]
        server.close()
        return answers

    assert asyncio.run(asked()) == [b"done"] * 3


def test_every_goal_is_of_something_that_is_measured() -> None:
    titles = [str(goal) for goal in goals(QUICK)]
    assert len(set(titles)) == len(titles) == 2 * 4 * len(QUICK.shapes)
    assert all(goal.ratio.subject == PENSTOCK for goal in goals(QUICK))
