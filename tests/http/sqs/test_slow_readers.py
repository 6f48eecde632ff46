"""Answers with messages in them, and clients that do not take theirs: the node's room for replies bounds all of them, and its settings say
for how long one is waited for."""

import asyncio
import json
from typing import Any

import pytest
from all_loops import OnLoop
from http_talk import Http, on_node
from serving import Serving, virtually
from waiting import until_async

MIB = 1 << 20
LARGE = "z" * 900_000
VERY_LARGE = "z" * (7 * MIB)  # The operating system keeps what is smaller for a client that does not read.


async def ask(http: Http, action: str, **body: Any) -> Any:
    return await http.post("/", body, x_amz_target=f"Penstock.{action}")


async def filled(http: Http, *, partitions: int = 1, content: str = LARGE, count: int = 12) -> list[str]:
    """A queue of large messages; their ids."""
    settings = {"max.message.bytes": str(8 * MIB)}
    assert (await ask(http, "CreateQueue", Queue="q", Partitions=partitions, Settings=settings)).status == 200
    return [(await ask(http, "Send", Queue="q", Messages=[{"Body": content}])).json["Results"][0]["Id"] for _ in range(count)]


async def deaf(http: Http, action: str, **body: Any) -> asyncio.StreamWriter:
    """Asks, and never reads the answer."""
    content = json.dumps(body).encode()
    _, writer = await asyncio.open_connection(*http.address)
    writer.transport.pause_reading()
    head = f"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: Penstock.{action}\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    return writer


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_peek_gives_no_more_than_there_is_room_for(on_loop: OnLoop, partitions: int):
    async def story(serving: Serving, http: Http) -> None:
        await filled(http, partitions=partitions)
        room = serving.node.reply_room
        assert len((await ask(http, "Peek", Queue="q", Max=1000)).json["Messages"]) > 6
        room.bytes_max = 16 * MIB
        few = (await ask(http, "Peek", Queue="q", Max=1000)).json["Messages"]
        assert 1 <= len(few) <= 4
        seen, after = len(few), few[-1]["Id"]
        while page := (await ask(http, "Peek", Queue="q", Max=1000, After=after)).json["Messages"]:
            seen, after = seen + len(page), page[-1]["Id"]
        assert seen == 12, "the others are found when somebody peeks on"

    on_loop(on_node(story))


@pytest.mark.virtual_time("it moves time by hand")
@pytest.mark.parametrize("action", ["Peek", "Find"])
def test_a_crowd_that_takes_no_answers_cannot_fill_the_memory(action: str):
    async def story(serving: Serving, http: Http) -> None:
        ids = await filled(http) if action == "Peek" else await filled(http, content=VERY_LARGE, count=1)
        body: dict[str, Any] = {"Peek": {"Max": 1000}, "Find": {"Id": ids[0]}}[action]
        room, crowd = serving.node.reply_room, []
        for _ in range(60):
            crowd.append(await deaf(http, action, Queue="q", **body))
            await asyncio.sleep(0.02)
        await asyncio.sleep(1.0)
        assert room.bytes_max // 8 < room.bytes_taken < room.bytes_max + 8 * MIB
        for client in crowd:
            client.transport.abort()
        async with asyncio.timeout(1.0):  # In a crowd, clients that stall are cut off after a few seconds anyway.
            await until_async(lambda: room.bytes_taken < 2 * MIB)
        assert (await ask(http, "Find", Queue="q", Id=ids[0])).status == 200

    virtually(on_node(story, memory_bytes_max=256 * MIB))


@pytest.mark.virtual_time("it moves time by hand")
def test_where_answers_fill_the_room_no_more_are_made():
    async def story(serving: Serving, http: Http) -> None:
        ids = await filled(http, content=VERY_LARGE, count=1)
        crowd = [await deaf(http, "Find", Queue="q", Id=ids[0]) for _ in range(20)]
        await asyncio.sleep(1.0)
        refused = await ask(http, "Find", Queue="q", Id=ids[0])
        assert refused.status == 503 and "do not take them" in refused.json["message"]
        assert (await ask(http, "Send", Queue="q", Messages=[{"Body": "x"}])).status == 200, "who sends is not held up"
        for client in crowd:
            client.transport.abort()

    virtually(on_node(story, memory_bytes_max=256 * MIB))


@pytest.mark.virtual_time("it moves time by hand")
def test_the_nodes_setting_says_for_how_long_a_body_that_does_not_come_is_waited_for():
    async def story(serving: Serving, http: Http) -> None:
        reader, writer = await asyncio.open_connection(*http.address)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: Penstock.Send\r\nContent-Length: 100\r\n\r\nx")
        begun_at = asyncio.get_running_loop().time()
        assert b"the body of the request does not come" in await reader.read()
        assert 5.0 < asyncio.get_running_loop().time() - begun_at < 7.0
        assert serving.node.metrics.connections_closed_as_stalled == 1

    virtually(on_node(story, connections_max_stalled_ms=5_000))
