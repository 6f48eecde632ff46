"""Codecs: what others packed unpacks here, what we pack unpacks there, and nothing unpacks past its bound."""

import gzip
import os
import subprocess
import sys
from random import Random

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka.codec import snappy_decode, snappy_encode

from penstock.errors import MalformedInput
from penstock.wire.compression import Codec, TooLarge, compress, decompress

MEGABYTE = 1 << 20
PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b'{"order": %d, "state": "paid"}\n' % number for number in range(5_000))

PACKED_ELSEWHERE = {
    "gzip": (Codec.GZIP, gzip.compress(TEXT)),
    "gzip in two members": (Codec.GZIP, gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])),
    "snappy, bare": (Codec.SNAPPY, snappy.compress(TEXT)),
    "snappy, chunks": (Codec.SNAPPY, snappy_encode(TEXT, xerial_compatible=True)),
    "lz4": (Codec.LZ4, lz4.frame.compress(TEXT)),
    "lz4 with its size": (Codec.LZ4, lz4.frame.compress(TEXT, store_size=True, content_checksum=True)),
    "lz4 in dependent small blocks": (Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)),
    "zstd": (Codec.ZSTD, zstandard.compress(TEXT)),
    "zstd of unknown size": (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT)),
}


@pytest.mark.parametrize(("codec", "packed"), PACKED_ELSEWHERE.values(), ids=PACKED_ELSEWHERE)
def test_what_other_libraries_packed_unpacks_here(codec, packed):
    assert decompress(codec, packed, len(TEXT)) == TEXT
    assert decompress(codec, memoryview(bytearray(packed)), 10 * MEGABYTE) == TEXT


@pytest.mark.parametrize(
    ("codec", "unpack"),
    [
        (Codec.GZIP, gzip.decompress),
        (Codec.SNAPPY, snappy_decode),
        (Codec.LZ4, lz4.frame.decompress),
        (Codec.ZSTD, lambda packed: zstandard.ZstdDecompressor().decompress(packed, max_output_size=MEGABYTE)),
    ],
)
def test_what_we_pack_unpacks_elsewhere(codec, unpack):
    assert unpack(compress(codec, TEXT)) == TEXT


@given(st.sampled_from(Codec), st.binary(max_size=5_000), st.integers(1, 200))
def test_bytes_come_out_as_they_went_in(codec, content, times):
    assert decompress(codec, compress(codec, content * times), len(content) * times) == content * times


@pytest.mark.parametrize("codec", Codec)
def test_the_same_bytes_are_always_packed_alike(codec):
    assert compress(codec, TEXT) == compress(codec, TEXT)


@pytest.mark.parametrize(("codec", "packed"), PACKED_ELSEWHERE.values(), ids=PACKED_ELSEWHERE)
@pytest.mark.parametrize("bytes_max", [0, 1, 100, 4096, len(TEXT) - 1])
def test_more_than_the_bound_is_too_large(codec, packed, bytes_max):
    with pytest.raises(TooLarge):
        decompress(codec, packed, bytes_max)


def test_plain_bytes_are_bound_too():
    assert decompress(Codec.NONE, b"12345", 5) == b"12345"
    with pytest.raises(TooLarge):
        decompress(Codec.NONE, b"12345", 4)


@pytest.mark.parametrize("codec", PACKED)
def test_packed_bytes_cut_anywhere_are_malformed(codec):
    packed = compress(codec, TEXT[:300])
    starts = {16} if codec is Codec.SNAPPY else set()  # A stream of chunks that ends between two of them is whole: here, after its header.
    for end in set(range(len(packed))) - starts:
        with pytest.raises(MalformedInput):
            decompress(codec, packed[:end], MEGABYTE)


@pytest.mark.parametrize("codec", PACKED)
def test_noise_is_malformed(codec):
    random = Random(codec)
    for size in [1, 2, 3, 10, 100, 1000] * 20:
        with pytest.raises(MalformedInput):
            decompress(codec, b"\xf0" + random.randbytes(size), MEGABYTE)


@pytest.mark.parametrize("codec", PACKED)
def test_changed_bytes_unpack_within_the_bound_or_are_malformed(codec):
    random, packed = Random(codec), compress(codec, TEXT[:2000])
    for _ in range(500):
        changed = bytearray(packed)
        for _ in range(random.randint(1, 4)):
            changed[random.randrange(len(changed))] = random.randrange(256)
        try:
            assert len(decompress(codec, changed, 3000)) <= 3000
        except MalformedInput:
            continue


@pytest.mark.parametrize("codec", PACKED)
def test_bytes_after_the_packed_ones_are_malformed(codec):
    with pytest.raises(MalformedInput):
        decompress(codec, compress(codec, TEXT) + b"more", MEGABYTE)


XERIAL = b"\x82SNAPPY\0" + b"\0\0\0\1" * 2


@pytest.mark.parametrize("chunks", [b"\0", b"\0\0\0", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff" + bytes(100), b"\0\0\0\5abc"])
def test_snappy_chunks_that_reach_past_their_stream_are_malformed(chunks):
    with pytest.raises(MalformedInput):
        decompress(Codec.SNAPPY, XERIAL + chunks, MEGABYTE)


def test_a_snappy_block_that_claims_more_than_it_can_hold_is_malformed():
    with pytest.raises(MalformedInput):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(50), 1 << 40)


BOMB_BYTES = 128 * MEGABYTE
BOUND_BYTES = 8 * MEGABYTE
# Beside the bound: the growing buffers before it, lz4's blocks, an allocator's habits.
ALLOWED_BYTES = 4 * BOUND_BYTES

DETONATE = """
import resource, sys
from penstock.wire.compression import Codec, TooLarge, decompress
codec, bomb, bound = Codec(int(sys.argv[1])), open(sys.argv[2], "rb").read(), int(sys.argv[3])
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
try:
    decompress(codec, bomb, bound)
except TooLarge:
    print(peak() - before)
"""


def snappy_chunks(content):
    packed = snappy.compress(content[: 32 * 1024])
    return XERIAL + (len(packed).to_bytes(4, "big") + packed) * (len(content) // (32 * 1024))


def zstd_with_a_wide_window(content):
    wide = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    return zstandard.ZstdCompressor(compression_params=wide).compress(content)


BOMBS = {
    "gzip": (Codec.GZIP, lambda content: gzip.compress(content, 1)),
    "snappy, bare": (Codec.SNAPPY, snappy.compress),
    "snappy, chunks": (Codec.SNAPPY, snappy_chunks),
    "lz4": (Codec.LZ4, lambda content: lz4.frame.compress(content, block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=False)),
    "lz4 with its size": (Codec.LZ4, lambda content: lz4.frame.compress(content, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "zstd": (Codec.ZSTD, zstandard.compress),
    "zstd with a wide window": (Codec.ZSTD, zstd_with_a_wide_window),
}


@pytest.mark.parametrize(("codec", "pack"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_takes_no_more_memory_than_its_bound(tmp_path, codec, pack):
    """In a process of its own, whose peak of resident memory is its own too."""
    path = tmp_path / "bomb"
    path.write_bytes(pack(bytes(BOMB_BYTES)))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", DETONATE, str(int(codec)), str(path), str(BOUND_BYTES)]
    grown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert grown, "the bomb was not noticed"
    assert int(grown) < ALLOWED_BYTES


def test_a_zstd_window_past_all_reason_is_malformed():
    header = b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([(31 - 10) << 3]) + b"\x01\x00\x00"
    with pytest.raises(MalformedInput):
        decompress(Codec.ZSTD, header + bytes(20), MEGABYTE)


@pytest.mark.parametrize("content", [b"", b"x", os.urandom(200_000), bytes(1 << 20), os.urandom(70_000) + bytes(70_000)])
def test_lz4_is_written_in_blocks_that_stand_alone_as_java_demands(content: bytes) -> None:
    packed = compress(Codec.LZ4, content)
    described = lz4.frame.get_frame_info(packed)
    assert not described["block_linked"]
    assert lz4.frame.decompress(packed) == content
    assert decompress(Codec.LZ4, packed, 2 << 20) == content
