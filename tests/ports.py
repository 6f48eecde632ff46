"""Ports for nodes that tests start, stop and start again."""

import os
import random
import socket
from contextlib import suppress

LOWEST, SLICES, SLICE_PORTS = 12_000, 9, 2_000  # A slice for each process that runs tests beside others, most of the time.

_given: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on, and that this process was not given before: whoever was given it may not listen yet. Below those that
    the system hands to outgoing connections.

    Clients call a killed node's port all the time: from the system's own range one of them could be given that very port to call from,
    connect to itself, and keep the node from coming back.
    """
    if len(_given) > SLICE_PORTS // 2:
        _given.clear()  # The first of them are long done with.
    while True:
        port = LOWEST + os.getpid() % SLICES * SLICE_PORTS + random.SystemRandom().randrange(SLICE_PORTS)
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                _given.add(port)
                return port
