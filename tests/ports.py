"""Ports for nodes that tests start, stop and start again."""

import fcntl
import os
import random
import socket
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

LOWEST, SLICES, SLICE_PORTS = 12_000, 40, 500

_given: set[int] = set()


@cache
def slice_of_this_process() -> int:
    """Returns the first port of a slice that no other process on this machine uses while this one lives; its lock file says so."""
    for number in range(SLICES):
        lock = os.open(Path(tempfile.gettempdir(), f"penstock-ports-{number}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return LOWEST + number * SLICE_PORTS
    raise RuntimeError(f"{SLICES} processes use ports for tests on this machine; wait until one of them has ended")


def free_port() -> int:
    """A port that nobody listens on, and that this process was not given before: whoever was given it may not listen yet. Below those that
    the system hands to outgoing connections.

    Clients call a killed node's port all the time: from the system's own range one of them could be given that very port to call from,
    connect to itself, and keep the node from coming back.
    """
    if len(_given) > SLICE_PORTS // 2:
        _given.clear()  # The first of them are long done with.
    while True:
        port = slice_of_this_process() + random.SystemRandom().randrange(SLICE_PORTS)
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                _given.add(port)
                return port
