"""Ports for nodes that tests start, stop and start again."""

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """A port that nobody listens on, below those that the system hands to outgoing connections.

    Clients call a killed node's port all the time: from the system's own range one of them could be given that very port to call from,
    connect to itself, and keep the node from coming back.
    """
    while True:
        port = random.SystemRandom().randint(12_000, 30_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
