"""The same links on real sockets, on both event loops.

No deadline of a link expires here, however long the machine stalls: what happens when one does is shown in virtual time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from links.scene import ONE, SECRET, TWO, Party, introduction
from waiting import EXPIRES_S, NEVER_S, PATIENCE_S, stays_async, until_async

from penstock.links.channel import Deadlines
from penstock.links.door import Asked
from penstock.links.failures import AskTimedOut, LinkLost
from penstock.links.kinds import Kind
from penstock.links.replica_fetch import Fetched, read_fetched, write_fetched
from penstock.server.env import RealEnv
from penstock.vocabulary import Address, NodeId, Offset, TopicId

HOST = "127.0.0.1"
UNHURRIED = Deadlines(connect_s=NEVER_S, unproven_s=NEVER_S, tick_s=NEVER_S)


class Pair:
    """Nodes 1 and 2 of this process."""

    def __init__(self, env: RealEnv) -> None:
        self.env = env
        self.addresses: dict[NodeId, Address] = {}
        self.parties: dict[NodeId, Party] = {}
        self.servers: dict[NodeId, asyncio.Server] = {}

    async def start(self, node: NodeId, port: int = 0, **options: Any) -> Party:
        party = self.parties[node] = Party(self.env, introduction(node), self.addresses, deadlines=UNHURRIED, **options)
        server = self.servers[node] = await asyncio.get_running_loop().create_server(party.door, HOST, port)
        self.addresses[node] = Address(*server.sockets[0].getsockname()[:2])
        return party

    async def stop(self, node: NodeId) -> None:
        self.servers.pop(node).close()
        party = self.parties.pop(node)
        party.door.close()
        await party.links.close()


@asynccontextmanager
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    env = RealEnv(str(tmp_path))
    nodes = Pair(env)
    await nodes.start(ONE)
    await nodes.start(TWO)
    try:
        yield nodes
    finally:
        for node in list(nodes.parties):
            await nodes.stop(node)
        for _ in range(5):
            await asyncio.sleep(0)  # A closed transport says so in a later turn of the loop.
        env.shut()


async def test_a_question_is_answered_and_words_arrive_in_their_order(tmp_path: Path) -> None:
    async with pair(tmp_path) as nodes:
        assert bytes(await nodes.parties[ONE].links.ask(TWO, Kind.SUBMIT, b"who?", timeout_s=PATIENCE_S)) == b"echo who?"
        said = [b"%d" % number * number for number in range(300)]
        for word in said:
            nodes.parties[ONE].links.tell(TWO, Kind.RAFT, word)
        await until_async(lambda: len(nodes.parties[TWO].told) == 300)
        assert nodes.parties[TWO].said() == said


async def test_frames_of_all_sizes_come_through_whole_and_many_at_once(tmp_path: Path) -> None:
    rng = Random(1)
    async with pair(tmp_path) as nodes:
        bodies = [rng.randbytes(size) for size in (0, 1, 65_520, 65_530, 65_540, 200_000, 3_000_000, 10, 70_000)]
        asks = [nodes.parties[ONE].links.ask(TWO, Kind.REPLICA_FETCH, body, timeout_s=PATIENCE_S) for body in bodies]
        answers = await asyncio.gather(*asks)
        assert [bytes(answer) for answer in answers] == [b"echo " + body for body in bodies]


async def test_a_replicas_records_arrive_as_slices_that_may_be_kept(tmp_path: Path) -> None:
    rng = Random(2)
    async with pair(tmp_path) as nodes:
        batches = [rng.randbytes(1_000 * number) for number in range(50)]
        front = (1, Offset(0), 1, 0, Offset(0), Offset(0), None)
        rows = [Fetched(TopicId(bytes(16)), number, *front, batch) for number, batch in enumerate(batches)]
        nodes.parties[TWO].door.asked[Kind.REPLICA_FETCH] = lambda asked: asked.answer(write_fetched(1, rows))
        kept = []
        for _ in range(3):
            body = await nodes.parties[ONE].links.ask(TWO, Kind.REPLICA_FETCH, b"", timeout_s=PATIENCE_S)
            kept.append(read_fetched(body).rows)
        for answer in kept:  # The later ones did not overwrite the earlier.
            assert [bytes(row.records) for row in answer] == batches


async def test_a_node_that_goes_is_noticed_and_its_next_life_is_found(tmp_path: Path) -> None:
    async with pair(tmp_path) as nodes:
        links = nodes.parties[ONE].links
        await links.ask(TWO, Kind.SUBMIT, b"?", timeout_s=PATIENCE_S)
        question = asyncio.ensure_future(links.ask(TWO, Kind.HEARTBEAT, b"?", timeout_s=PATIENCE_S))
        await until_async(lambda: bool(nodes.parties[TWO].kept))
        port = nodes.addresses[TWO].port
        await nodes.stop(TWO)
        with pytest.raises(LinkLost):
            await question
        assert nodes.parties[ONE].lost == [TWO]
        await nodes.start(TWO, port)

        async def answer() -> bytes:
            try:
                return bytes(await links.ask(TWO, Kind.SUBMIT, b"back?", timeout_s=PATIENCE_S))
            except LinkLost:
                return b""

        assert await until_async(answer) == b"echo back?"


async def test_another_secret_is_refused_at_both_ends(tmp_path: Path) -> None:
    async with pair(tmp_path) as nodes:
        await nodes.stop(TWO)
        stranger = await nodes.start(TWO, secret=SECRET + b"?")
        with pytest.raises(LinkLost, match="same cluster secret"):
            await nodes.parties[ONE].links.ask(TWO, Kind.SUBMIT, b"?", timeout_s=PATIENCE_S)
        assert "same cluster secret" in nodes.parties[ONE].reports[0]
        await until_async(lambda: stranger.reports)
        assert "same cluster secret" in stranger.reports[0]


async def test_a_late_answer_and_a_cancelled_question_leave_the_link_whole(tmp_path: Path) -> None:
    async with pair(tmp_path) as nodes:
        links = nodes.parties[ONE].links
        await links.ask(TWO, Kind.SUBMIT, b"?", timeout_s=PATIENCE_S)  # From here on a question leaves at once.
        with pytest.raises(AskTimedOut):
            await links.ask(TWO, Kind.HEARTBEAT, b"?", timeout_s=EXPIRES_S)
        question = asyncio.ensure_future(links.ask(TWO, Kind.HEARTBEAT, b"?", timeout_s=PATIENCE_S))
        await until_async(lambda: len(nodes.parties[TWO].kept) == 2)
        question.cancel()
        for asked in nodes.parties[TWO].kept:
            asked.answer([b"late"])
            asked.answer([b"twice"])
        assert bytes(await links.ask(TWO, Kind.SUBMIT, b"next", timeout_s=PATIENCE_S)) == b"echo next"
        assert nodes.parties[ONE].lost == []


async def test_a_peer_that_does_not_read_costs_a_bounded_queue(tmp_path: Path) -> None:
    """Its kernel takes some megabytes; what is told after that waits, and then is dropped."""
    async with pair(tmp_path) as nodes:
        links = nodes.parties[ONE].links
        await links.ask(TWO, Kind.SUBMIT, b"?", timeout_s=PATIENCE_S)
        for channel in nodes.parties[TWO].door._proven.values():
            assert channel._transport is not None
            channel._transport.pause_reading()
        for _ in range(400):
            links.tell(TWO, Kind.RAFT, bytes(100_000))
            await asyncio.sleep(0)
        (link,) = links._links.values()
        assert link.dropped > 0
        for channel in nodes.parties[TWO].door._proven.values():
            assert channel._transport is not None
            channel._transport.resume_reading()
        assert bytes(await links.ask(TWO, Kind.SUBMIT, b"and now?", timeout_s=PATIENCE_S)) == b"echo and now?"
        assert len(nodes.parties[TWO].told) + link.dropped == 400


async def test_a_caller_that_does_not_take_its_answers_is_not_read_from_and_loses_none(tmp_path: Path) -> None:
    async with pair(tmp_path) as nodes:
        links, answered = nodes.parties[ONE].links, []

        def answer_at_length(asked: Asked) -> None:
            answered.append(asked)
            asked.answer([bytes(500_000), bytes(500_000)])

        nodes.parties[TWO].door.asked[Kind.SUBMIT] = answer_at_length
        await links.ask(TWO, Kind.SUBMIT, b"?", timeout_s=PATIENCE_S)
        (link,) = links._links.values()
        assert link._channel is not None
        assert link._channel._transport is not None
        link._channel._transport.pause_reading()
        asks = [asyncio.ensure_future(links.ask(TWO, Kind.SUBMIT, b"?", timeout_s=PATIENCE_S)) for _ in range(100)]
        await until_async(lambda: any(channel._is_blocked for channel in nodes.parties[TWO].door._proven.values()))
        await stays_async(lambda: len(answered) < 60)
        link._channel._transport.resume_reading()
        assert [len(answer) for answer in await asyncio.gather(*asks)] == [1_000_000] * 100
