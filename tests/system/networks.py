"""Machines on one wire, each a network namespace with an address of its own; the test stands at the hub and reaches all of them.

A cut is silent, as a broken switch is: whoever is cut off from another is told a wrong hardware address for it, and what it sends is lost
on the wire. It goes one way at a time, so that a cut can be one-sided. The namespaces live as long as the processes that hold them.
Needs root, `unshare`, `nsenter` and `ip`.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from waiting import until
from warm import enter_network, warm

NOBODY = "02:00:00:00:00:99"  # A hardware address that no machine has.
SUBNET = "10.213.0"
HUB = f"{SUBNET}.254"


class Network:
    """Machines 1 to `count`; as a context manager it puts the calling thread, and what that starts, at the hub."""

    def __init__(self, count: int) -> None:
        self._hub = _Namespace()
        self._machines = [_Namespace() for _ in range(count)]
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)  # Kept open, since the thread leaves it.
        self._cuts: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        warm()  # What this process forks is where it began: not at the hub, which is gone when the next test starts a node.
        enter_network(str(self._hub.file))
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "wire", "type", "bridge")
        _ip("addr", "add", f"{HUB}/24", "dev", "wire")
        _ip("link", "set", "wire", "up")
        for number, machine in enumerate(self._machines, 1):
            _ip("link", "add", f"plug{number}", "type", "veth", "peer", "name", "eth0", "netns", str(machine.pid))
            _ip("link", "set", f"plug{number}", "master", "wire", "up")
            machine.ip("addr", "add", f"{self.host(number)}/24", "dev", "eth0")
            machine.ip("link", "set", "lo", "up")
            machine.ip("link", "set", "eth0", "up")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        enter_network(f"/proc/self/fd/{self._home}")
        os.close(self._home)
        for namespace in (*self._machines, self._hub):
            namespace.close()

    def host(self, number: int) -> str:
        return f"{SUBNET}.{number}"

    def file(self, number: int) -> Path:
        """Of the namespace of that machine."""
        return self._machines[number - 1].file

    def cut(self, sender: int, receiver: int) -> None:
        """From now on nothing that `sender` sends reaches `receiver`."""
        self._machines[sender - 1].ip("neigh", "replace", self.host(receiver), "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")
        self._cuts.append((sender, receiver))

    def part(self, ones: tuple[int, ...], others: tuple[int, ...]) -> None:
        """Nothing passes between these and those, either way."""
        for one in ones:
            for other in others:
                self.cut(one, other)
                self.cut(other, one)

    def heal(self) -> None:
        while self._cuts:
            sender, receiver = self._cuts.pop()
            self._machines[sender - 1].ip("neigh", "del", self.host(receiver), "dev", "eth0")

    @contextmanager
    def parted(self, ones: tuple[int, ...], others: tuple[int, ...]) -> Iterator[None]:
        self.part(ones, others)
        try:
            yield
        finally:
            self.heal()


class _Namespace:
    def __init__(self) -> None:
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self.pid = self._holder.pid
        own, self.file = os.readlink("/proc/self/ns/net"), Path(f"/proc/{self.pid}/ns/net")
        until(lambda: os.readlink(self.file) != own or self._holder.poll() is not None, "unshare makes a network namespace")
        assert self._holder.poll() is None, "unshare made no network namespace"

    def ip(self, *arguments: str) -> None:
        _ip(*arguments, prefix=["nsenter", f"--net={self.file}", "--"])

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()


def _ip(*arguments: str, prefix: list[str] | None = None) -> None:
    ended = subprocess.run([*(prefix or []), "ip", *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"ip {' '.join(arguments)}: {ended.stderr.strip()}"
