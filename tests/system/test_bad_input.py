"""Bytes that no proper client sends: an error or a closed connection, and a node that carries on.

Each test ends with proof that the node still serves others: the fixture asks it something sensible on a connection of its own.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cramjam
import pytest
from system import librdkafka
from system.harness import Node
from system.raw import Line, batch, good_batch, produce_frame, record
from waiting import NEVER_MS

from penstock.wire.api_keys import ApiKey

MIB = 1 << 20
UNSUPPORTED_VERSION = 35
CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, UNSUPPORTED_FOR_MESSAGE_FORMAT = 2, 87, 10, 43
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

# Small bounds, so that a node that does not keep them shows it at once.
SETTINGS = {"decompressed.batch.bytes.max": 4 * MIB, "socket.request.max.bytes": 8 * MIB, "connections.max.stalled.ms": NEVER_MS}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory: Path = tmp_path_factory.mktemp("bad-input")
    with Node(directory / "data", settings=SETTINGS) as node:
        librdkafka.make_topic(node.bootstrap, "steady")
        yield node


@pytest.fixture
def address(node: Node) -> Iterator[tuple[str, int]]:
    """Where to misbehave. Somebody who behaves has a connection open the whole time, and it works before and after."""
    where = ("127.0.0.1", node.kafka_port)
    with Line(where) as neighbour:
        assert neighbour.produce("steady", good_batch(b"before")) == 0
        yield where
        assert neighbour.produce("steady", good_batch(b"after")) == 0
    assert node.complaints() == []


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 8 * MIB + 1])
def test_an_impossible_length_closes_the_connection_before_anything_is_allocated(node: Node, address: tuple[str, int], length: int) -> None:
    before = node.resident_bytes()
    with Line(address) as line:
        line.send(struct.pack(">i", length) + b"anything")
        assert line.is_closed()
    assert node.resident_bytes() - before < 16 * MIB


@pytest.mark.parametrize("size", range(8))
def test_a_frame_too_short_for_its_header_closes_the_connection(address: tuple[str, int], size: int) -> None:
    with Line(address) as line:
        line.send_frame(struct.pack(">hhi", 18, 0, 1)[:size])
        assert line.is_closed()


def test_a_frame_that_never_ends_harms_nobody(address: tuple[str, int]) -> None:
    with Line(address) as line:
        line.send(struct.pack(">i", 1_000) + b"only this")


def test_a_request_that_never_ends_is_given_up(tmp_path: Path) -> None:
    with Node(tmp_path / "data", settings={"connections.max.stalled.ms": 1_000}) as node, Line(("127.0.0.1", node.kafka_port)) as line:
        line.send(b"\0\0")
        assert line.is_closed()


@pytest.mark.parametrize("api", [-1, 4, 999, 32767])
def test_an_unknown_api_closes_the_connection(address: tuple[str, int], api: int) -> None:
    with Line(address) as line:
        line.send_frame(struct.pack(">hhih", api, 0, 1, -1))
        assert line.is_closed()


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.LIST_OFFSETS])
@pytest.mark.parametrize("version", [-1, 99, 32767])
def test_an_unknown_version_closes_the_connection(address: tuple[str, int], api: int, version: int) -> None:
    with Line(address) as line:
        line.send_frame(struct.pack(">hhih", api, version, 1, -1))
        assert line.is_closed()


def test_an_unknown_version_of_api_versions_is_answered_in_version_0_and_the_connection_goes_on(address: tuple[str, int]) -> None:
    with Line(address) as line:
        line.send_frame(struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 7, -1) + b"\0")
        reply = line.read_frame()
        assert reply is not None
        correlation, error, count = struct.unpack_from(">ihi", reply)
        rows = [struct.unpack_from(">hhh", reply, 10 + 6 * row) for row in range(count)]
        assert (correlation, error, len(reply)) == (7, UNSUPPORTED_VERSION, 10 + 6 * count)
        assert any(api == ApiKey.API_VERSIONS and lowest == 0 for api, lowest, _ in rows)
        assert line.ask(ApiKey.API_VERSIONS, 3, client_software_name="test", client_software_version="1").error_code == 0


@pytest.mark.parametrize("client_id_size", [5, 32767, -2])
def test_a_client_id_that_reaches_past_its_frame_closes_the_connection(address: tuple[str, int], client_id_size: int) -> None:
    with Line(address) as line:
        line.send_frame(struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 1, client_id_size) + b"abc")
        assert line.is_closed()


def test_bytes_after_the_end_of_a_request_are_let_go(address: tuple[str, int]) -> None:
    """As Kafka does it: librdkafka sends a few too many when it asks for all topics."""
    with Line(address) as line:
        line.send_frame(struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + struct.pack(">i", 0) + b"more than was announced")
        assert not line.is_closed()
        assert line.produce("steady", good_batch(b"the same connection goes on")) == 0


def test_a_list_that_claims_to_be_endless_closes_the_connection(node: Node, address: tuple[str, int]) -> None:
    before = node.resident_bytes()
    for count in (2**31 - 1, 1_000_000):
        with Line(address) as line:
            line.send_frame(struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + struct.pack(">i", count))
            assert line.is_closed()
    assert node.resident_bytes() - before < 16 * MIB


A, B = record(b"a"), record(b"b", delta=1)

BAD_BATCHES = {
    "nothing at all": (b"", {CORRUPT_MESSAGE, INVALID_RECORD}),
    "less than a header": (good_batch(b"a")[:40], {CORRUPT_MESSAGE, INVALID_RECORD}),
    "wrong crc": (batch(A, 1, crc=1), {CORRUPT_MESSAGE}),
    "length past the end": (batch(A, 1, length=10), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "length short of the end": (batch(A + B, 2, length=-5), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "length negative": (batch(A, 1, length=-10_000), {CORRUPT_MESSAGE, INVALID_RECORD}),
    "two batches": (good_batch(b"a") + good_batch(b"b"), {INVALID_RECORD}),
    "trailing bytes": (good_batch(b"a") + b"xyz", {CORRUPT_MESSAGE, INVALID_RECORD}),
    "base offset": (batch(A, 1, base_offset=5), {INVALID_RECORD}),
    "no records": (batch(b"", 0), {INVALID_RECORD}),
    "count negative": (batch(A, 1, record_count=-1), {INVALID_RECORD}),
    "count too high": (batch(A, 1, record_count=2, last_offset_delta=1), {INVALID_RECORD}),
    "count too low": (batch(A + B, 1), {INVALID_RECORD}),
    "count huge": (batch(A, 1, record_count=2**31 - 1, last_offset_delta=2**31 - 2), {INVALID_RECORD}),
    "last offset delta": (batch(A + B, 2, last_offset_delta=7), {INVALID_RECORD}),
    "offset deltas swapped": (batch(B + A, 2), {INVALID_RECORD}),
    "offset deltas doubled": (batch(A + A, 2), {INVALID_RECORD}),
    "garbage inside": (batch(b"\xff" * 50, 1), {INVALID_RECORD}),
    "record cut short": (batch(A[:-2], 1), {INVALID_RECORD}),
    "record longer than the batch": (batch(b"\x7e" + A[1:], 1), {INVALID_RECORD}),
    "magic 0": (batch(A, 1, magic=0), {UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_RECORD}),
    "magic 1": (batch(A, 1, magic=1), {UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_RECORD}),
    "magic 3": (batch(A, 1, magic=3), {UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_RECORD, CORRUPT_MESSAGE}),
    "control": (batch(A, 1, attributes=1 << 5), {INVALID_RECORD}),
    "unknown codec": (batch(A, 1, attributes=7), {INVALID_RECORD, CORRUPT_MESSAGE, 76}),
    "sequence missing": (batch(A, 1, producer_id=5, producer_epoch=0, base_sequence=-1), {INVALID_RECORD}),
    "far future": (batch(A, 1, base_timestamp=2**62, max_timestamp=2**62), {32}),
    "gzip that is none": (batch(A, 1, attributes=GZIP), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "snappy that is none": (batch(A, 1, attributes=SNAPPY), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "lz4 that is none": (batch(A, 1, attributes=LZ4), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "zstd that is none": (batch(A, 1, attributes=ZSTD), {INVALID_RECORD, CORRUPT_MESSAGE}),
    "garbage in gzip": (batch(zlib.compress(b"\xff" * 50, wbits=31), 1, attributes=GZIP), {INVALID_RECORD, CORRUPT_MESSAGE}),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_batch_that_would_poison_its_readers_is_refused(address: tuple[str, int], name: str) -> None:
    bad, allowed = BAD_BATCHES[name]
    with Line(address) as line:
        before = line.end_offset("steady")
        assert line.produce("steady", bad) in allowed
        assert line.produce("steady", good_batch(b"good")) == 0, "the same connection goes on"
        assert line.end_offset("steady") == before + 1


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_than_0_1_and_all_are_refused(address: tuple[str, int], acks: int) -> None:
    with Line(address) as line:
        assert line.produce("steady", good_batch(b"x"), acks=acks) == 21


def bomb(codec: int, unpacked: int) -> bytes:
    pack: dict[int, Callable[[bytes], Any]] = {
        GZIP: lambda raw: zlib.compress(raw, wbits=31),
        SNAPPY: cramjam.snappy.compress_raw,
        LZ4: cramjam.lz4.compress,
        ZSTD: cramjam.zstd.compress,
    }
    value = record(bytes(unpacked))
    return batch(bytes(pack[codec](value)), 1, attributes=codec)


@pytest.mark.parametrize(("codec", "unpacked"), [(GZIP, 64 * MIB), (SNAPPY, 20 * MIB), (LZ4, 64 * MIB), (ZSTD, 128 * MIB)])
def test_a_decompression_bomb_is_refused_within_bounds(node: Node, address: tuple[str, int], codec: int, unpacked: int) -> None:
    small = bomb(codec, unpacked)
    assert len(small) < 1_048_588, "it must pass the limit on its size"
    node.forget_peak()
    before = node.peak_resident_bytes()
    lines = [Line(address) for _ in range(8)]
    for line in lines:  # All at once: the bound holds for the node, not for one batch at a time.
        line.send(produce_frame("steady", small))
    for line in lines:
        reply = line.read_frame()
        assert reply is not None
        assert error_in(reply) in {MESSAGE_TOO_LARGE, INVALID_RECORD, CORRUPT_MESSAGE}
        line.socket.close()
    assert node.peak_resident_bytes() - before < 8 * 4 * MIB + 32 * MIB


def test_a_snappy_block_that_lies_about_its_size_is_refused(node: Node, address: tuple[str, int]) -> None:
    claims_four_gigabytes = b"\xff\xff\xff\xff\x0f" + b"\0" * 20
    node.forget_peak()
    before = node.peak_resident_bytes()
    with Line(address) as line:
        assert line.produce("steady", batch(claims_four_gigabytes, 1, attributes=SNAPPY)) in {
            INVALID_RECORD,
            CORRUPT_MESSAGE,
            MESSAGE_TOO_LARGE,
        }
    assert node.peak_resident_bytes() - before < 32 * MIB


def error_in(reply: bytes) -> int:
    (name_size,) = struct.unpack_from(">h", reply, 8)
    return int(struct.unpack_from(">h", reply, 10 + name_size + 8)[0])
