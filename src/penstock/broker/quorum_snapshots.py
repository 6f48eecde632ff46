"""What is inside a snapshot of the metadata: the records that replay into the image, packed.

Packed it is a tenth of itself, so that it is kept in memory as well as on the disk, and can be given to others piece by piece without
waiting for a read. It is sealed: whoever gets it from a leader sees whether it is whole, and of a version that it knows.
To encode a large image takes long, so it is done in stretches between which others have their turn; only replay waits for the last of them.
"""

import asyncio
from collections.abc import Iterable

from penstock.broker.quorum_entries import pack_records, unpack_records
from penstock.cluster import records
from penstock.cluster.image import ClusterImage
from penstock.env import Env
from penstock.errors import DiskFailed
from penstock.log.small_files import seal, unseal
from penstock.settings import KIB, MIB
from penstock.wire.compression import Codec, compress, decompress

SNAPSHOT_EVERY_BYTES = 4 * MIB  # Of new entries: loading then reads about this much after the snapshot.
PIECE_BYTES = 32 * KIB  # Encoded or replayed in one turn of the loop: a few milliseconds.
VERSION = 1

_KIND = b"pnstk-im"
_UNPACKED_BYTES_MAX = 2**31 - 1


async def encode(env: Env, kept: Iterable[records.Record]) -> bytes:
    encoded: list[bytes] = []
    unpaused_bytes = 0
    for record in kept:
        encoded.append(records.encode(record))
        unpaused_bytes = await _pause_after(unpaused_bytes + len(encoded[-1]))
    return seal(_KIND, VERSION, await env.offload(compress, Codec.ZSTD, pack_records(encoded)))


def check(content: bytes) -> memoryview:
    """What is packed in it. Raises where it is not whole (DiskFailed), or of a version that this node does not know (NewerFormat)."""
    body = unseal(content, _KIND, VERSION, "the snapshot of the metadata")
    if body is None:
        raise DiskFailed("the snapshot of the metadata is damaged")
    return body


async def decode(env: Env, content: bytes) -> ClusterImage:
    body = check(content)
    image, unpaused_bytes = ClusterImage(), 0
    for one in unpack_records(await env.offload(decompress, Codec.ZSTD, bytes(body), _UNPACKED_BYTES_MAX)):
        image.replay(records.decode(one))
        unpaused_bytes = await _pause_after(unpaused_bytes + len(one))
    return image


async def _pause_after(done_bytes: int) -> int:
    if done_bytes < PIECE_BYTES:
        return done_bytes
    await asyncio.sleep(0)
    return 0
