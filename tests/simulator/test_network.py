"""Simulated TCP keeps TCP's promises and none that TCP does not make."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from penstock.simulator.env import SimEnv
from penstock.simulator.links import LinkQuality
from penstock.simulator.loop import Refused
from penstock.simulator.network import SimSocket
from penstock.simulator.world import World

PORT = 9092


class Notebook(asyncio.Protocol):
    """Writes down what happens to its connection."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.events: list[str] = []
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    @property
    def read(self) -> bytes:
        return b"".join(self.pieces)


class BufferedNotebook(asyncio.BufferedProtocol):
    def __init__(self, size: int) -> None:
        self.buffer = bytearray(size)
        self.pieces: list[bytes] = []

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.pieces.append(bytes(self.buffer[:nbytes]))


class Pair:
    """A server and a client that are connected to each other."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.served: list[Notebook] = []
        self.client = Notebook()
        world.start("server", self._serve)
        world.run_for(0.01)
        world.start("client", self._connect)
        world.run_until(lambda: bool(self.served) and hasattr(self.client, "transport"), within=1)

    @property
    def server(self) -> Notebook:
        return self.served[-1]

    async def _serve(self, env: SimEnv) -> None:
        server = await asyncio.get_running_loop().create_server(self._accept, "0.0.0.0", PORT)
        await server.serve_forever()

    def _accept(self) -> Notebook:
        self.served.append(Notebook())
        return self.served[-1]

    async def _connect(self, env: SimEnv) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self.client, "server", PORT)
        await asyncio.sleep(1e9)


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1) as made:
        yield made
        assert made.complaints() == []


@pytest.fixture
def pair(world: World) -> Pair:
    return Pair(world)


class TestAGoodDay:
    def test_bytes_arrive_in_order_and_once_in_any_pieces(self) -> None:
        pieces: set[int] = set()
        for seed in range(20):
            with World(seed, link_quality=LinkQuality(split=0.9, bytes_per_second=1e6)) as world:
                pair = Pair(world)
                for at in range(0, 2000, 100):
                    pair.client.transport.write(bytes(byte % 251 for byte in range(at, at + 100)))
                    world.run_for(0.001)
                world.run_for(1)
                assert pair.server.read == bytes(byte % 251 for byte in range(2000))
                pieces.update(map(len, pair.server.pieces))
        assert len(pieces) > 20

    def test_connecting_and_sending_take_time(self, world: World, pair: Pair) -> None:
        world.network.shape(LinkQuality(delay_seconds=0.5, jitter_seconds=0.1))
        pair.client.transport.write(b"x")
        world.run_for(0.45)
        assert pair.server.read == b""
        world.run_for(0.2)
        assert pair.server.read == b"x"

    def test_each_end_knows_the_names_of_both(self, pair: Pair) -> None:
        ours, theirs = pair.client.transport, pair.server.transport
        assert ours.get_extra_info("peername") == theirs.get_extra_info("sockname") == ("10.0.0.1", PORT)
        assert ours.get_extra_info("sockname") == theirs.get_extra_info("peername")

    def test_buffered_protocols_get_their_buffer_filled(self, world: World) -> None:
        notebook = BufferedNotebook(7)

        async def serve(env: SimEnv) -> None:
            server = await asyncio.get_running_loop().create_server(lambda: notebook, "0.0.0.0", PORT)
            await server.serve_forever()

        async def send(env: SimEnv) -> None:
            _, writer = await asyncio.open_connection("server", PORT)
            writer.writelines([b"0123456789", bytearray(b"abcdef"), memoryview(b"XYZ")])
            await asyncio.sleep(1)

        world.start("server", serve)
        world.run_for(0.1)
        world.start("client", send)
        world.run_for(0.5)
        assert b"".join(notebook.pieces) == b"0123456789abcdefXYZ"
        assert max(map(len, notebook.pieces)) == 7

    def test_a_server_on_port_0_gets_a_port_and_two_on_one_port_do_not(self, world: World) -> None:
        async def serve(env: SimEnv) -> None:
            loop = asyncio.get_running_loop()
            free = await loop.create_server(Notebook, "0.0.0.0", 0)
            _, port = free.sockets[0].getsockname()
            await loop.create_connection(Notebook, "localhost", port)
            with pytest.raises(OSError, match="in use"):
                await loop.create_server(Notebook, "0.0.0.0", port)
            free.close()
            with pytest.raises(ConnectionRefusedError):
                await loop.create_connection(Notebook, "127.0.0.1", port)

        world.start("server", serve)
        world.run_for(1)
        assert world.hosts["server"].endings == ["returned"]

    def test_a_server_listens_on_a_bound_socket_of_this_network_and_on_no_other(self, world: World) -> None:
        async def serve(env: SimEnv) -> None:
            loop = asyncio.get_running_loop()
            await loop.create_server(Notebook, sock=SimSocket(("127.0.0.1", PORT)))
            await loop.create_connection(Notebook, "localhost", PORT)
            with socket.socket() as real, pytest.raises(Refused, match="real socket"):
                await loop.create_server(Notebook, sock=real)

        world.start("server", serve)
        world.run_for(1)
        assert world.hosts["server"].endings == ["returned"]

    def test_streams_work_on_it(self, world: World) -> None:
        async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
            writer.close()

        async def serve(env: SimEnv) -> None:
            async with await asyncio.start_server(shout, "0.0.0.0", PORT) as server:
                await server.serve_forever()

        async def ask(env: SimEnv) -> None:
            reader, writer = await asyncio.open_connection("server", PORT)
            writer.write(b"one\ntwo\n")
            writer.write_eof()
            assert await reader.read() == b"ONE\nTWO\n"

        world.start("server", serve)
        world.run_for(0.1)
        world.start("client", ask)
        world.run_for(1)
        assert world.hosts["client"].endings == ["returned"]


class TestClosing:
    def test_close_sends_what_is_buffered_and_both_ends_hear_of_the_end_once(self, world: World, pair: Pair) -> None:
        pair.client.transport.write(b"last words")
        pair.client.transport.close()
        assert pair.client.transport.is_closing()
        world.run_for(1)
        assert (pair.server.read, pair.server.events) == (b"last words", ["eof"])
        assert (pair.client.lost, pair.server.lost) == ([None], [None])

    def test_close_under_back_pressure_waits_for_the_reader(self, world: World, pair: Pair) -> None:
        content = bytes(range(256)) * 8192
        pair.server.transport.pause_reading()
        pair.client.transport.write(content)
        pair.client.transport.close()
        world.run_for(1)
        assert pair.client.lost == []
        pair.server.transport.resume_reading()
        world.run_for(5)
        assert pair.server.read == content
        assert pair.client.lost == [None]

    def test_abort_resets_the_other_end(self, world: World, pair: Pair) -> None:
        pair.client.transport.abort()
        world.run_for(1)
        assert pair.client.lost == [None]
        assert isinstance(pair.server.lost[0], ConnectionResetError)

    def test_writing_to_an_end_that_has_closed_is_answered_with_a_reset(self, world: World, pair: Pair) -> None:
        world.network.stall("server", "client", 10)  # The server's FIN is on its way for long.
        pair.server.transport.close()
        world.run_for(1)
        pair.client.transport.write(b"too late")
        world.run_for(20)
        assert len(pair.client.lost) == 1
        assert pair.server.read == b""

    def test_closing_with_bytes_unread_resets(self, world: World, pair: Pair) -> None:
        pair.server.transport.pause_reading()
        pair.client.transport.write(b"never read")
        world.run_for(1)
        pair.server.transport.close()
        world.run_for(1)
        assert isinstance(pair.client.lost[0], ConnectionResetError)

    def test_a_protocol_that_raises_loses_its_connection(self) -> None:
        with World(1) as world:
            pair = Pair(world)
            pair.server.data_received = lambda data: 1 // 0  # type: ignore[method-assign,assignment]
            pair.client.transport.write(b"x")
            world.run_for(1)
            assert isinstance(pair.server.lost[0], ZeroDivisionError)
            assert isinstance(pair.client.lost[0], ConnectionResetError)
            assert len(world.complaints()) == 1


class TestBackPressure:
    def test_a_reader_that_stops_pauses_the_writer_and_bounds_what_is_in_flight(self, world: World, pair: Pair) -> None:
        pair.server.transport.pause_reading()
        written = 0
        while "pause" not in pair.client.events:
            pair.client.transport.write(b"x" * 10_000)
            written += 10_000
            world.run_for(0.001)
            assert written < 1_000_000
        assert pair.client.transport.get_write_buffer_size() > 64 * 1024
        pair.server.transport.resume_reading()
        world.run_for(1)
        assert pair.client.events == ["pause", "resume"]
        assert len(pair.server.read) == written

    def test_a_stopped_process_pauses_its_writers_too(self, world: World, pair: Pair) -> None:
        world.pause("server")
        pair.client.transport.write(b"x" * 1_000_000)
        world.run_for(1)
        assert pair.client.events == ["pause"]
        world.resume("server")
        world.run_for(1)
        assert (pair.client.events, len(pair.server.read)) == (["pause", "resume"], 1_000_000)

    def test_limits_can_be_set(self, world: World, pair: Pair) -> None:
        transport = pair.client.transport
        transport.set_write_buffer_limits(high=10, low=5)
        assert transport.get_write_buffer_limits() == (5, 10)
        pair.server.transport.pause_reading()
        transport.write(b"x" * 300_000)
        assert pair.client.events == ["pause"]
        with pytest.raises(ValueError, match="at least"):
            transport.set_write_buffer_limits(high=1, low=2)

    def test_a_buffer_that_is_changed_in_the_turn_it_was_written_sends_the_change(self, world: World, pair: Pair) -> None:
        """As uvloop does: code that recycles a buffer too soon must fail here first."""
        buffer = bytearray(b"promised")

        async def recycle(env: SimEnv) -> None:
            pair.client.transport.write(buffer)
            buffer[:] = b"recycled"

        world.call("client", recycle)
        world.run_for(1)
        assert pair.server.read == b"recycled"


class TestTrouble:
    def test_a_stall_ends_in_a_burst(self, world: World, pair: Pair) -> None:
        world.network.stall("client", "server", 5)
        for number in range(50):
            pair.client.transport.write(b"%02d" % number)
            world.run_for(0.05)
        world.run_for(1)
        assert pair.server.read == b""
        world.run_for(2)
        assert pair.server.read == b"".join(b"%02d" % number for number in range(50))
        assert len(pair.server.pieces) < 5

    def test_a_one_way_cut_stops_one_way_only(self, world: World, pair: Pair) -> None:
        world.network.cut("client", "server")
        pair.client.transport.write(b"there")
        pair.server.transport.write(b"back")
        world.run_for(30)
        assert (pair.server.read, pair.client.read) == (b"", b"back")
        world.network.heal()
        world.run_for(10)
        assert pair.server.read == b"there"

    def test_a_partition_holds_for_new_connections_and_ends_with_the_heal(self, world: World, pair: Pair) -> None:
        world.network.partition(["server"], ["client", "other"])

        async def connect(env: SimEnv) -> None:
            await asyncio.get_running_loop().create_connection(Notebook, "server", PORT)

        world.start("other", connect)
        world.run_for(10)
        assert world.is_running("other")
        world.network.heal()
        world.run_for(20)
        assert world.hosts["other"].endings == ["returned"]

    def test_connecting_into_a_partition_times_out(self, world: World, pair: Pair) -> None:
        async def connect(env: SimEnv) -> None:
            await asyncio.get_running_loop().create_connection(Notebook, "server", PORT)

        world.network.cut("server", "client")
        with pytest.raises(TimeoutError):
            world.call("client", connect, within=200)

    def test_a_connection_that_is_cut_for_too_long_dies_at_the_sender(self, world: World, pair: Pair) -> None:
        world.network.cut("client", "server")
        pair.client.transport.write(b"x")
        world.run_for(1_000)
        assert isinstance(pair.client.lost[0], TimeoutError)
        assert pair.server.lost == []

    def test_a_reset_breaks_both_ends_inside_what_was_sent(self) -> None:
        lengths = set()
        for seed in range(30):
            with World(seed, link_quality=LinkQuality(reset=1.0)) as world:
                pair = Pair(world)
                pair.client.transport.write(b"x" * 100)
                world.run_for(1)
                assert isinstance(pair.client.lost[0], ConnectionResetError)
                assert isinstance(pair.server.lost[0], ConnectionResetError)
                lengths.add(len(pair.server.read))
        assert len(lengths) > 10
        assert max(lengths) < 100

    def test_a_reset_can_be_called(self, world: World, pair: Pair) -> None:
        assert world.network.reset_one("server")
        world.run_for(1)
        assert isinstance(pair.client.lost[0], ConnectionResetError)
        assert not world.network.reset_one("server")

    def test_a_killed_process_closes_its_connections_and_refuses_new_ones(self, world: World, pair: Pair) -> None:
        world.kill("server")
        world.run_for(1)
        assert (pair.client.events, pair.client.lost, pair.server.lost) == (["eof"], [None], [])

        async def connect(env: SimEnv) -> None:
            await asyncio.get_running_loop().create_connection(Notebook, "server", PORT)

        with pytest.raises(ConnectionRefusedError):
            world.call("client", connect)

    def test_a_power_cut_leaves_its_peers_half_open_until_it_is_back(self, world: World, pair: Pair) -> None:
        world.power_cut("server")
        pair.client.transport.write(b"anyone there?")
        world.run_for(60)
        assert pair.client.lost == []
        world.start("server", pair._serve)
        world.run_for(5)
        assert isinstance(pair.client.lost[0], ConnectionResetError)

    def test_nobody_answers_for_a_machine_without_power(self) -> None:
        answers = set()
        for seed in range(10):
            with World(seed) as world:
                pair = Pair(world)
                world.power_cut("server")

                async def connect(env: SimEnv) -> None:
                    await asyncio.get_running_loop().create_connection(Notebook, "server", PORT)

                with pytest.raises(OSError, match=r"route|refused") as caught:
                    world.call("client", connect)
                answers.add(type(caught.value))
                assert pair.client.lost == []
        assert answers == {OSError, ConnectionRefusedError}

    def test_a_reply_sent_just_before_a_power_cut_may_arrive_or_not(self) -> None:
        arrived = set()
        for seed in range(20):
            with World(seed) as world:
                pair = Pair(world)
                pair.server.transport.write(b"acknowledged")
                world.run_for(0.000_05)
                world.power_cut("server")
                world.run_for(1)
                arrived.add(pair.client.read)
        assert arrived == {b"", b"acknowledged"}

    def test_a_connect_that_is_given_up_leaves_nothing_behind(self, world: World, pair: Pair) -> None:
        async def give_up(env: SimEnv) -> None:
            async with asyncio.timeout(5):
                await asyncio.get_running_loop().create_connection(Notebook, "server", PORT)

        world.network.stall("server", "client", 60)
        with pytest.raises(TimeoutError):
            world.call("client", give_up)
        world.run_for(100)
        assert isinstance(pair.served[-1].lost[0], ConnectionResetError)
