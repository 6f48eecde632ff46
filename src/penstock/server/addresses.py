"""HOST:PORT, as people write it. IPv6 hosts stand in brackets: [::1]:9092. Not here: looking names up, or binding."""

from penstock.vocabulary import Address

WILDCARDS = frozenset({"0.0.0.0", "::"})


def is_wildcard(host: str) -> bool:
    """Every interface: good to listen on, useless to tell a client."""
    return host in WILDCARDS


def parse_address(text: str) -> Address:
    """Raises ValueError with a sentence that says what is wrong."""
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        raise ValueError(f"{text!r} has no port; write HOST:PORT, for example 127.0.0.1:9092")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{port!r} in {text!r} is not a port (0 to 65535)")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is ambiguous; write an IPv6 host in brackets, for example [::1]:9092")
    return Address("0.0.0.0" if host in ("", "*") else host, int(port))
