"""The source when brokers go away, disks rot and the way damages what it carries: what is waited for, what is told, what is set aside."""

import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs spark: pyspark is not installed")

from pipeline_topics import Topics
from ports import free_port
from source_queries import Batch, Stream
from waiting import EXPIRES_MS, EXPIRES_S

from penstock.peers.failures import PeerFailure
from penstock.pipeline.complaints import PipelineComplaint
from penstock.testing.brokers import Broker


class Restarting:
    """A node on a port and a directory of its own, that can go away and come back."""

    def __init__(self, directory: Path) -> None:
        self.address = ("127.0.0.1", free_port())
        self._settings = {"kafka": "{}:{}".format(*self.address)}
        self._directory = directory
        self._node: Broker | None = None

    def start(self, **settings: str) -> str:
        self._node = Broker(self._settings | settings, self._directory).start()
        return self._node.bootstrap

    def stop(self) -> None:
        if self._node is not None:
            self._node.stop()
            self._node = None

    def segments(self) -> list[Path]:
        return [path for path in self._directory.rglob("*.log") if "metadata" not in path.parts]

    def patch(self, old: bytes, new: bytes) -> None:
        """Changes bytes of a segment while the node is away, and the checksum after them."""
        from penstock.wire.records import crc32c

        (segment,) = (path for path in self.segments() if old in path.read_bytes())
        content = bytearray(segment.read_bytes().replace(old, new))
        at = 0
        while at < len(content):
            size = 12 + int.from_bytes(content[at + 8 : at + 12], "big")
            content[at + 17 : at + 21] = crc32c(content, at + 21, at + size).to_bytes(4, "big")
            at += size
        segment.write_bytes(content)


@pytest.fixture
def restarting(tmp_path: Path) -> Iterator[Restarting]:
    node = Restarting(tmp_path / "node")
    yield node
    node.stop()


def test_a_reader_waits_for_a_broker_that_restarts(restarting: Restarting) -> None:
    asking = {"kafka.bootstrap.servers": restarting.start(), "startingOffsets": "earliest"}
    with Topics(asking["kafka.bootstrap.servers"]) as topics:
        topic = topics.create()
        topics.write(topic, ((None, b"%d" % number + bytes(20_000)) for number in range(600)))
        reading = Batch(asking | {"subscribe": topic, "kafka.max.partition.fetch.bytes": "1000000"}).arrow()
        rows = next(reading).num_rows
        restarting.stop()
        restarting.start()
        rows += sum(batch.num_rows for batch in reading)
        assert rows == 600
        stream = Stream(asking | {"subscribe": topic})
        assert len(stream.next()) == 600
        restarting.stop()
        restarting.start()
        topics.write_values(topic, 5)
        assert stream.values() == [b"0", b"1", b"2", b"3", b"4"]


def test_a_reader_does_not_wait_for_ever(restarting: Restarting) -> None:
    asking = {"kafka.bootstrap.servers": restarting.start(), "kafkaConsumer.pollTimeoutMs": str(EXPIRES_MS)}
    with Topics(asking["kafka.bootstrap.servers"]) as topics:
        topic = topics.create()
        topics.write_values(topic, 5)
        planned = Batch(asking | {"subscribe": topic})
        restarting.stop()
        with pytest.raises(PeerFailure, match=f"gave up after {EXPIRES_S} s"):
            planned.rows()


class Tampering:
    """A way to a node that changes some bytes, in as many answers as it is told to."""

    def __init__(self, node: tuple[str, int], old: bytes, new: bytes) -> None:
        self.times = 0
        self._node, self._old, self._new = node, old, new
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return "{}:{}".format(*self._listener.getsockname())

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client, socket.create_connection(self._node)), daemon=True).start()

    def _carry(self, client: socket.socket, node: socket.socket) -> None:
        with client, node:
            while True:
                for came in select.select([client, node], [], [])[0]:
                    piece = came.recv(1 << 20)
                    if not piece:
                        return
                    (client if came is node else node).sendall(self._tamper(piece) if came is node else piece)

    def _tamper(self, piece: bytes) -> bytes:
        if self.times and self._old in piece:
            self.times -= 1
            return piece.replace(self._old, self._new)
        return piece


def write_three_batches(topics: Topics) -> tuple[str, str]:
    topic, dead = topics.create(), topics.create()
    for value in (b"before", b"target", b"behind"):
        topics.write(topic, [(b"", value)])
    return topic, dead


def test_records_that_do_not_parse_are_an_error_or_a_dead_letter(restarting: Restarting) -> None:
    """A producer sent nonsense with a right checksum, to a broker that did not look: the rest of the topic can still be read."""
    asking = {"kafka.bootstrap.servers": restarting.start()}
    with Topics(asking["kafka.bootstrap.servers"]) as topics:
        topic, dead = write_three_batches(topics)
        restarting.stop()
        restarting.patch(b"\x0ctarget", b"\x7ftarget")
        restarting.start()
        asking |= {"subscribe": topic}
        with pytest.raises(PipelineComplaint, match="the batch at offset 1 is damaged: its records cannot be taken apart") as told:
            Batch(asking).rows()
        assert "deadLetterTopic" in told.value.advice
        assert Batch(asking | {"deadLetterTopic": dead}).values() == [b"before", b"behind"]
        (letter,) = topics.read(dead)
        assert b"target" in (letter.value or b""), "its bytes are kept as they are"
        headers = dict(letter.headers)
        assert (headers["penstock.offset"], headers["penstock.end_offset"]) == (b"1", b"2")


def test_bytes_damaged_on_the_way_are_fetched_again_and_set_aside_if_they_stay_so(restarting: Restarting) -> None:
    way = Tampering(restarting.address, b"target", b"forged")
    restarting.start(advertise=way.address)
    asking = {"kafka.bootstrap.servers": way.address}
    with Topics(way.address) as topics:
        topic, dead = write_three_batches(topics)
        asking |= {"subscribe": topic}
        way.times = 2
        assert Batch(asking).values() == [b"before", b"target", b"behind"]
        way.times = 3
        with pytest.raises(PipelineComplaint, match="the batch at offset 1 is damaged: its checksum is wrong"):
            Batch(asking).rows()
        way.times = 3
        assert Batch(asking | {"deadLetterTopic": dead}).values() == [b"before", b"behind"]
        assert b"checksum" in (dict(topics.read(dead)[0].headers)["penstock.reason"] or b"")
    way.close()


def test_a_broker_whose_copy_is_damaged_is_told_in_words(restarting: Restarting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.pipeline.source.fetching.GONE_S", 0.2)
    asking = {"kafka.bootstrap.servers": restarting.start()}
    with Topics(asking["kafka.bootstrap.servers"]) as topics:
        topic, _ = write_three_batches(topics)
        restarting.stop()
        (segment,) = (path for path in restarting.segments() if b"target" in path.read_bytes())
        segment.write_bytes(segment.read_bytes().replace(b"target", b"rotten"))
        restarting.start()
        with pytest.raises(PipelineComplaint, match="its leader cannot read the batch at offset 1") as told:
            Batch(asking | {"subscribe": topic}).rows()
        assert "let another replica lead" in told.value.advice
