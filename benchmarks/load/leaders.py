"""Who leads each partition of a topic, in a cluster: found once before the clock starts, since nothing fails while it runs."""

import time

from benchmarks.load import frames
from benchmarks.load.connection import Connection
from benchmarks.load.frames import UnexpectedReply

Address = tuple[str, int]


class Leaders:
    """Made when every partition is led, all its replicas are in sync, and its leader answers."""

    def __init__(self, connection: Connection, topic: str, partitions: int, *, patience_s: float = 60.0) -> None:
        self.topic = topic
        self.partitions_at: dict[Address, list[int]] = {}
        give_up = time.monotonic() + patience_s
        while not self._find(connection, partitions):
            if time.monotonic() > give_up:
                raise UnexpectedReply(f"{topic} is not led and in sync everywhere after {patience_s:.0f} s")
            time.sleep(0.05)
        self._connections = {address: Connection(*address, receive_bytes=1 << 20) for address in self.partitions_at}
        while self._listed() is None:
            if time.monotonic() > give_up:
                raise UnexpectedReply(f"the leaders of {topic} do not answer after {patience_s:.0f} s")
            time.sleep(0.05)

    def end(self) -> int:
        """The end offsets of all partitions, added up."""
        listed = self._listed()
        if listed is None:
            raise UnexpectedReply(f"a leader of {self.topic} does not lead any more")
        return listed

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _find(self, connection: Connection, partitions: int) -> bool:
        brokers, found = frames.read_metadata(connection.ask(frames.metadata(self.topic)))
        is_whole = len(found) == partitions and all(
            leader in brokers and replicas == in_sync for leader, replicas, in_sync in found.values()
        )
        self.partitions_at = {}
        for partition, (leader, _, _) in sorted(found.items()) if is_whole else ():
            self.partitions_at.setdefault(brokers[leader], []).append(partition)
        return is_whole

    def _listed(self) -> int | None:
        total = 0
        for address, partitions in self.partitions_at.items():
            reply = self._connections[address].ask(frames.list_offsets(self.topic, partitions))
            rows = frames.read_listed_offsets(reply, self.topic)
            if any(error for error, _ in rows.values()):
                return None
            total += sum(offset for _, offset in rows.values())
        return total
