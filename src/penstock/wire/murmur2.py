"""The hash by which clients of the ecosystem agree where a key lives: 32-bit murmur2, with Kafka's seed."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """As the signed integer that Java knows."""
    size = len(key)
    whole = size & ~3
    mixed = _SEED ^ size
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        word = (word ^ (word >> 24)) * _M & _MASK
        mixed = (mixed * _M & _MASK) ^ word
    if size > whole:
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    mixed = (mixed ^ (mixed >> 13)) * _M & _MASK
    mixed ^= mixed >> 15
    return mixed - (1 << 32) if mixed & 0x80000000 else mixed


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
