"""Binding a listening socket, with a sentence for the person when it cannot be had."""

import errno
import socket

from penstock.peers.connection import Address
from penstock.server.complaints import CannotStart

BACKLOG = 1024

REASONS = {
    errno.EADDRINUSE: ("the address is taken", "another process listens there; stop it or choose another port (0 takes a free one)"),
    errno.EADDRNOTAVAIL: ("this machine has no such address", "listen on an address of this machine, for example 127.0.0.1"),
    errno.EACCES: ("the port is reserved", "choose a port of 1024 or above"),
}


def cannot_listen(address: Address, failure: OSError) -> CannotStart:
    reason, next_step = REASONS.get(failure.errno or 0, (failure.strerror or str(failure), "check the address"))
    return CannotStart(f"cannot listen on {address}: {reason}", next_step)


def bind(address: Address) -> socket.socket:
    """A socket that listens: two that are only bound may share an address, and one of them would fail later, where nobody looks.
    Raises CannotStart."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as failure:
        raise cannot_listen(address, failure) from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
        bound.listen(BACKLOG)
    except OSError as failure:
        bound.close()
        raise cannot_listen(address, failure) from None
    return bound


def address_of(bound: socket.socket) -> Address:
    host, port = bound.getsockname()[:2]
    return Address(host, port)
