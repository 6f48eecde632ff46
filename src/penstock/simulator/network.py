"""The simulated network: which hosts listen, how they are connected, and everything that can go wrong between them.

Hosts are found by name ("node-1") or by address ("10.0.0.1"); "localhost" and "127.0.0.1" are the host itself. The road between two hosts
is made when it is first used, one `Link` for each direction, and stays: a cut made before anyone connects holds.

Faults here are calls; when to call them is for tests and the nemesis.
"""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable
from random import Random

from penstock.simulator.links import GIVE_UP_SECONDS, GOOD, LOOPBACK, RESET, Link, LinkQuality, Stream
from penstock.simulator.loop import Refused, SimLoop
from penstock.simulator.process import Process
from penstock.simulator.transports import SimTransport

ProtocolFactory = Callable[[], asyncio.BaseProtocol]

SYN_RETRY_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # Linux's, with tcp_syn_retries = 6.
NO_ROUTE_SECONDS = 3.0  # Until a kernel is sure that nobody answers for an address.
FIRST_FREE_PORT = 40_000


class Machine:
    """A host as the network knows it: its address, who listens there, whether a kernel is up to answer."""

    __slots__ = ("address", "is_on", "listeners", "name", "next_port", "orphans")

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.is_on = True
        self.listeners: dict[int, SimServer] = {}
        self.next_port = FIRST_FREE_PORT
        self.orphans: list[Stream] = []  # Streams whose bytes came while there was no power; their senders still wait.


class SimSocket:
    """What remains of a listening socket here: its name. Made by a test, it stands for one that is bound and not yet listened on."""

    def __init__(self, name: tuple[str, int]) -> None:
        self._name = name

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def close(self) -> None:
        """Its server closes by itself."""


class SimServer(asyncio.AbstractServer):
    def __init__(self, machine: Machine, process: Process, factory: ProtocolFactory, port: int) -> None:
        self.process = process
        self.factory = factory
        self.port = port
        self.sockets = (SimSocket((machine.address, port)),)
        self._machine = machine

    def close(self) -> None:
        if self._machine.listeners.get(self.port) is self:
            del self._machine.listeners[self.port]

    def is_serving(self) -> bool:
        return self._machine.listeners.get(self.port) is self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def start_serving(self) -> None:
        """It serves from the moment it is made."""

    async def serve_forever(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.close()

    async def wait_closed(self) -> None:
        """Nothing is left to wait for: connections end by themselves."""


class Network:
    def __init__(self, loop: SimLoop, rng: Random, quality: LinkQuality = GOOD) -> None:
        self.loop = loop
        self.rng = rng
        self.quality = quality  # Of roads that are yet to be made.
        self.fired: Counter[str] = Counter()
        self.deliveries = 0
        self.bytes_delivered = 0
        self._machines: dict[str, Machine] = {}
        self._by_address: dict[str, Machine] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._ends: dict[int, SimTransport] = {}  # Ends of connections that are not void, by number: even and odd are a pair.
        self._next_end = 0

    def machine(self, name: str) -> Machine:
        if name not in self._machines:
            index = len(self._machines)
            made = Machine(name, f"10.0.{index // 250}.{index % 250 + 1}")
            self._machines[name] = self._by_address[made.address] = made
        return self._machines[name]

    def link(self, source: str, target: str) -> Link:
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(LOOPBACK if source == target else self.quality)
        return found

    # Connecting.

    def listen(self, process: Process, factory: ProtocolFactory, port: int) -> SimServer:
        machine = self.machine(process.name)
        port = port or self._free_port(machine)
        if port in machine.listeners:
            raise OSError(errno.EADDRINUSE, f"{process.name}:{port} is in use")
        server = machine.listeners[port] = SimServer(machine, process, factory, port)
        return server

    @staticmethod
    def port_of(sock: object) -> int:
        if not isinstance(sock, SimSocket):
            raise Refused("a real socket has no place in virtual time")
        return sock.getsockname()[1]

    async def connect(
        self, process: Process, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        target = self._find(process, host)
        there, back = self.link(process.name, target.name), self.link(target.name, process.name)
        for retry in SYN_RETRY_SECONDS:
            if not (there.is_cut or back.is_cut):
                await self._cross(there)
                made = self._knock(process, target, port)
                return await self._opened(made, factory, back)
            await asyncio.sleep(retry)
        raise TimeoutError(errno.ETIMEDOUT, f"connecting to {host}:{port} timed out")

    async def _opened(
        self, made: SimTransport | OSError, factory: ProtocolFactory, back: Link
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        try:
            await self._cross(back)
        except asyncio.CancelledError:
            if isinstance(made, SimTransport):
                made.abort()
            raise
        if isinstance(made, OSError):
            await asyncio.sleep(NO_ROUTE_SECONDS if made.errno == errno.EHOSTUNREACH else 0)
            raise made
        protocol = factory()
        made.opened(protocol)
        return made, protocol

    async def _cross(self, link: Link) -> None:
        arrival = max(self.loop.now + link.delay(self.rng), link.stalled_until)
        await asyncio.sleep(arrival - self.loop.now)

    def _knock(self, process: Process, target: Machine, port: int) -> SimTransport | OSError:
        """A SYN has reached the other machine: its kernel completes the connection, its process will hear of it on its next turn."""
        server = target.listeners.get(port)
        if not target.is_on and self.rng.random() < 0.5:
            return OSError(errno.EHOSTUNREACH, f"no route to {target.name}")
        if server is None or not target.is_on:
            return ConnectionRefusedError(errno.ECONNREFUSED, f"{target.name}:{port} refused the connection")
        near, far = self._pair(process, server)
        self.loop.call_soon(lambda: far.opened(server.factory()), context=server.process.context)
        return near

    def _pair(self, process: Process, server: SimServer) -> tuple[SimTransport, SimTransport]:
        here, there = self.machine(process.name), self.machine(server.process.name)
        number = self._next_end
        self._next_end += 2
        ours, theirs = (here.address, self._free_port(here)), (there.address, server.port)
        near = SimTransport(self, process, number, {"sockname": ours, "peername": theirs})
        far = SimTransport(self, server.process, number + 1, {"sockname": theirs, "peername": ours})
        near.outgoing = far.incoming = Stream(self.loop, self.rng, self.link(here.name, there.name), near, far)
        far.outgoing = near.incoming = Stream(self.loop, self.rng, self.link(there.name, here.name), far, near)
        self._ends[number], self._ends[number + 1] = near, far
        return near, far

    def _find(self, process: Process, host: str) -> Machine:
        if host in ("localhost", "127.0.0.1", "::1"):
            return self.machine(process.name)
        found = self._by_address.get(host) or self._machines.get(host)
        if found is None:
            raise OSError(errno.ENOENT, f"no host is called {host}")
        return found

    @staticmethod
    def _free_port(machine: Machine) -> int:
        machine.next_port += 1
        return machine.next_port

    # What transports ask for.

    def send(self, end: SimTransport, content: bytes) -> None:
        stream = end.outgoing
        odds = stream.link.quality.reset
        if odds and self.rng.random() < odds:
            stream.send(content[: int(self.rng.random() * len(content))])
            self._reset(end)
        else:
            stream.send(content)

    def delivered(self, end: SimTransport, content: bytes) -> None:
        self.deliveries += 1
        self.bytes_delivered += len(content)
        self.loop.trace.note(self.loop.now, end.process.index, "read", end.number, content)

    def forget(self, end: SimTransport) -> None:
        self._ends.pop(end.number, None)

    def answer_for_the_dead(self, end: SimTransport) -> None:
        """Bytes came for an end that is no more: a kernel resets, a machine without power is silent and the sender tries for long."""
        machine, stream = self.machine(end.process.name), end.incoming
        if machine.is_on:
            end.outgoing.send_mark(RESET)
        elif not stream.is_orphan:
            stream.is_orphan = True
            machine.orphans.append(stream)
            gone = TimeoutError(errno.ETIMEDOUT, f"{machine.name} does not answer")
            self.loop.happen_at(self.loop.now + GIVE_UP_SECONDS, lambda: stream.sender.broke(gone))

    # Faults.

    def cut(self, source: str, target: str) -> None:
        """Nothing arrives from `source` at `target`; the other way stays open."""
        self.link(source, target).is_cut = True
        self.fired["one-way cut"] += 1

    def partition(self, *sides: list[str]) -> None:
        """Hosts of different sides do not hear each other; hosts that are named in no side hear everyone."""
        for side in sides:
            others = [host for other in sides if other is not side for host in other]
            for source in side:
                for target in others:
                    self.link(source, target).is_cut = True
        self.fired["partition"] += 1

    def mend(self, source: str, target: str) -> None:
        """Ends a cut, one way."""
        link = self.link(source, target)
        link.is_cut = False
        parked, link.parked = link.parked, []
        for stream in parked:
            stream.healed()

    def heal(self) -> None:
        """Ends every cut and stall."""
        for (source, target), link in list(self._links.items()):
            link.stalled_until = 0.0
            self.mend(source, target)

    def stall(self, source: str, target: str, seconds: float) -> None:
        """Nothing arrives for a while, then everything at once."""
        self.link(source, target).stalled_until = self.loop.now + seconds
        self.fired["stall"] += 1

    def reset_one(self, host: str) -> bool:
        """Breaks one of the host's connections, somewhere inside what is on the road; False if it has none."""
        ends = [end for end in self._ends.values() if end.process.name == host]
        if not ends:
            return False
        self._reset(self.rng.choice(ends))
        return True

    def shape(self, quality: LinkQuality) -> None:
        """Gives every road between hosts, made or yet to be made, this quality."""
        self.quality = quality
        for (source, target), link in self._links.items():
            if source != target:
                link.quality = quality

    def killed(self, process: Process) -> None:
        """The process is dead, its machine is not: listeners are gone, connections are closed by the kernel."""
        self._stop_listening(process)
        for end in self._of(process):
            end.killed()
            self.forget(end)

    def lost_power(self, process: Process) -> None:
        """The machine is off: its connections stay half-open. What it sent last may still arrive, or not."""
        self._stop_listening(process)
        self.machine(process.name).is_on = False
        for end in self._of(process):
            if self.rng.random() < 0.5:
                end.outgoing.drop()
            end.vanished()
            self.forget(end)

    def booted(self, name: str) -> None:
        """The machine is on again and resets whoever still sends to connections that it no longer knows."""
        machine = self.machine(name)
        machine.is_on = True
        orphans, machine.orphans = machine.orphans, []
        for stream in orphans:
            stream.receiver.outgoing.send_mark(RESET)

    def _reset(self, end: SimTransport) -> None:
        self.fired["reset"] += 1
        end.incoming.drop()
        end.outgoing.send_mark(RESET)
        end.broke(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

    def _of(self, process: Process) -> list[SimTransport]:
        return [end for end in self._ends.values() if end.process is process]

    def _stop_listening(self, process: Process) -> None:
        for server in list(self.machine(process.name).listeners.values()):
            if server.process is process:
                server.close()
