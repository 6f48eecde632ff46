"""Requests that offer to go on in another protocol (`Upgrade: h2c`, as Java's own client sends it): they are answered as what they are.

A server may ignore an offer (RFC 9110, 7.8), and this one knows no other protocol. The parser takes all that follows the head of such a
request for bytes of the other protocol, a body too. So the head goes to a new parser, without the offer, and what follows goes with it.
"""

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_OFFERING = frozenset((b"upgrade", b"http2-settings"))  # Headers, and what Connection says of them.


class OffersIgnored(HttpToolsProtocol):
    """Whoever hears of a head first looks whether it is an offer, and does nothing then: it comes once more."""

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        while data:
            data = self._feed(data)

    def _feed(self, data: bytes) -> bytes:
        """What is to be fed next: there may be one offer behind the other."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as offered:
            if self.is_offer:
                return self._anew(data[offered.args[0] :])
            self.send_400_response("This server is no proxy.")  # CONNECT.
        return b""

    @property
    def is_offer(self) -> bool:
        """Of a head that was just read. CONNECT is no offer, and is as it was."""
        return bool(self.parser.should_upgrade()) and any(name == b"upgrade" for name, _ in self.headers)

    def _anew(self, rest: bytes) -> bytes:
        method, version, url, headers = self.parser.get_method(), self.parser.get_http_version(), self.url, self.headers
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # As uvicorn has it.
        lines = [b"%b %b HTTP/%b\r\n" % (method, url, version.encode()), *(b"%b: %b\r\n" % each for each in _without_offer(headers))]
        return b"".join((*lines, b"\r\n", rest))


def _without_offer(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    kept = []
    for name, value in headers:
        if name == b"connection":
            wishes = [wish for wish in value.split(b",") if wish.strip().lower() not in _OFFERING]
            kept += [(name, b",".join(wishes))] if wishes else []
        elif name not in _OFFERING:
            kept.append((name, value))
    return kept
