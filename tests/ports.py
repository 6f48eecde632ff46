"""Ports for nodes that tests start, stop and start again."""

import fcntl
import os
import random
import socket
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path

# Below those that `penstock cluster` chooses for itself (penstock/cli/local_cluster.py).
LOWEST, SLICES, SLICE_PORTS = 10_000, 40, 250
LOCKS = Path("/tmp")  # Not $TMPDIR, of which each user may have another: all of them draw from the same ports.


def free_port() -> int:
    """A port that nobody listens on. It is not given again before all others of this process's slice were: whoever was given it may not
    listen yet, or may be a node that is down and comes back.

    It is below those that the system hands to outgoing connections. Clients call a killed node's port all the time: from the system's own
    range one of them could be given that very port to call from, connect to itself, and keep the node from coming back.
    """
    return free_ports_in_a_row(1)


def free_ports_in_a_row(count: int) -> int:
    """The first of several such ports that follow each other; all of them are given."""
    row: list[int] = []
    for port in islice(_ports_of(os.getpid()), 2 * SLICE_PORTS):
        if row and port != row[-1] + 1:
            row = []
        row = [*row, port] if _is_free(port) else []
        if len(row) == count:
            return row[0]
    raise RuntimeError(f"of the {SLICE_PORTS} ports of this process no {count} in a row are free")


@cache
def _ports_of(process: int) -> Iterator[int]:
    """Goes round and round the slice of a process; a fork of it has another slice."""
    first = lock_slice(random.SystemRandom().sample(range(SLICES), SLICES))
    begin = random.SystemRandom().randrange(SLICE_PORTS)
    return cycle(first + (begin + number) % SLICE_PORTS for number in range(SLICE_PORTS))


def lock_slice(numbers: Iterable[int], directory: Path = LOCKS) -> int:
    """Returns the first port of a slice that no other process on this machine has while this one lives; its lock file says so."""
    for number in numbers:
        try:
            lock = _open_lock(directory / f"penstock-ports-{number}.lock")
        except PermissionError:  # Another user's, who does not let us look.
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return LOWEST + number * SLICE_PORTS
    raise RuntimeError(f"{SLICES} processes use ports for tests on this machine; wait until one of them has ended")


def _open_lock(path: Path) -> int:
    """To read is enough for a lock. A file of another user in a directory that all may write to cannot be opened with O_CREAT."""
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
