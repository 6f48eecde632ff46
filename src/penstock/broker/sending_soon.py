"""Replies that become ready in one turn of the loop leave in one write per connection."""

import asyncio
import logging

from penstock.broker.connection import Connection

log = logging.getLogger("penstock")


class SendingSoon:
    def __init__(self) -> None:
        self._sending: dict[Connection, None] = {}

    def __call__(self, connection: Connection) -> None:
        if not self._sending:
            asyncio.get_running_loop().call_soon(self._send_all)
        self._sending[connection] = None

    def _send_all(self) -> None:
        sending, self._sending = self._sending, {}
        for connection in sending:
            try:
                connection.send_ready()
            except Exception:
                log.exception("a reply could not be written")
                connection.close()  # The others' replies leave all the same.
