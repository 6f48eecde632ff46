from penstock.vocabulary import Buffer
from penstock.wire.sieve_verdicts import Noted, Sifted

def siphash(key: Buffer, seed: bytes) -> bytes: ...
def note_keys(
    batches: Buffer, start: int, end: int, table: bytearray, *, seed: bytes, room: int, takes_transactional: bool = False
) -> Noted: ...
def grow_table(table: bytearray) -> bytearray: ...
def sift_batches(
    batches: Buffer,
    start: int,
    end: int,
    table: bytearray,
    *,
    seed: bytes,
    map_end: int,
    wall_ms: int,
    horizon_ms: int,
    kept_ends: bytes,
    mark_bytes: int,
    takes_transactional: bool = False,
) -> Sifted: ...
