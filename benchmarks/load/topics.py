"""Making, deleting and asking after topics: what stands around a measurement, never in it."""

import time
from collections.abc import Mapping

from benchmarks.load import frames
from benchmarks.load.connection import Connection
from benchmarks.load.frames import UnexpectedReply
from benchmarks.load.leaders import Leaders

_ADMIN_BYTES = 1 << 20


class Admin:
    def __init__(self, host: str, port: int) -> None:
        self._connection = Connection(host, port, receive_bytes=_ADMIN_BYTES)

    def create(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Returns when every partition can be written to."""
        error, reason = frames.read_created(self._connection.ask(frames.create_topic(topic, partitions, configs)))
        if error:
            raise UnexpectedReply(f"create {topic}: error {error} {reason}")
        self.end_offsets(topic, partitions)

    def create_replicated(self, topic: str, partitions: int, configs: Mapping[str, str], *, replicas: int) -> None:
        """Returns when every partition is led and all its replicas are in sync."""
        error, reason = frames.read_created(self._connection.ask(frames.create_topic(topic, partitions, configs, replicas)))
        if error:
            raise UnexpectedReply(f"create {topic}: error {error} {reason}")
        Leaders(self._connection, topic, partitions).close()

    def delete(self, topic: str) -> None:
        if error := frames.read_deleted(self._connection.ask(frames.delete_topic(topic))):
            raise UnexpectedReply(f"delete {topic}: error {error}")

    def end_offsets(self, topic: str, partitions: int, *, patience_s: float = 60.0) -> list[int]:
        """Asks again until all partitions answer: a broker may need a moment to lead what it has just made."""
        give_up = time.monotonic() + patience_s
        request = frames.list_offsets(topic, range(partitions))
        while True:
            listed = frames.read_listed_offsets(self._connection.ask(request), topic)
            errors = sorted({error for error, _ in listed.values() if error})
            if not errors and len(listed) == partitions:
                return [listed[partition][1] for partition in range(partitions)]
            if time.monotonic() > give_up:
                raise UnexpectedReply(f"{topic} is not ready after {patience_s:.0f} s: errors {errors}")
            time.sleep(0.05)

    def close(self) -> None:
        self._connection.close()
