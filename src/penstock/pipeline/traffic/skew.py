"""Partitions that have more than their share, the keys behind it, and what would spread them.

A key lives in one partition, so that a key with more records than a partition's fair share cannot be balanced by more partitions: each
new one only makes the share smaller. It must be *salted*: written as several keys, `key#0` to `key#N`, which readers put together again.
Several middling keys that met in one partition by chance can be parted by another number of partitions.

Nothing is guessed: the advice is tried out with the keys' real counts and the hash of Kafka's clients, and says what would come of it.
Not here: counting keys (steps/traffic.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.wire.murmur2 import partition_of_key

BALANCED_MAX = 1.5  # The fullest partition may have so many times the fair share.
SALTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PARTITIONS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class HeavyKey:
    key: bytes
    records: int
    bytes: int
    share: float  # Of all records of the topic.
    partition: int  # Where Kafka's clients put it.
    salt: int = 1  # As how many keys it should be written; 1 is as it is.


@dataclass(frozen=True, slots=True)
class Advice:
    text: str
    partitions: int | None = None  # Make so many, where that helps.
    ratio: float | None = None  # What the fullest partition would have then, in fair shares.


@dataclass(frozen=True, slots=True)
class Skew:
    loads: list[int]  # Records of each partition, as they are.
    ratio: float  # The fullest partition in fair shares; 1 is perfect.
    heavy: list[HeavyKey]
    advice: Advice


def partition_counts(partitions: int) -> list[int]:
    """The numbers of partitions that are tried: as it is, a little more, and up to eight times as many."""
    wanted = {partitions, *range(partitions + 1, partitions + 4), *(partitions * times for times in (2, 3, 4, 6, 8))}
    return sorted(count for count in wanted if count == partitions or count <= PARTITIONS_MAX)


def judge(loads: Sequence[int], keys: Sequence[tuple[bytes, int, int]], placed: Mapping[int, Sequence[int]], *, keyless: int = 0) -> Skew:
    """`loads` is what each partition has; `keys` are the heaviest with their records and bytes, the heaviest first; `placed` says what
    each partition would have of all keyed records, for each number of partitions that is tried; `keyless` records go anywhere."""
    partitions, total = len(loads), sum(loads)
    heavy = [
        HeavyKey(key, records, size, records / max(total, 1), partition_of_key(key, partitions)) for key, records, size in keys
    ]
    ratio = _ratio(loads)
    if total == 0:
        return Skew(list(loads), ratio, [], Advice("nothing was written"))
    if ratio <= BALANCED_MAX:
        return Skew(list(loads), ratio, heavy, Advice(f"balanced: the fullest partition has {ratio:.2f} times its fair share"))
    if _ratio(_with_keyless(placed[partitions], keyless)) <= BALANCED_MAX:
        told = "the keys would be balanced where Kafka's clients put them: whoever writes this topic chooses partitions in another way"
        return Skew(list(loads), ratio, heavy, Advice(told, ratio=_ratio(_with_keyless(placed[partitions], keyless))))
    return _by_partitions(loads, ratio, heavy, placed, keyless) or _by_salt(loads, ratio, heavy, placed[partitions], keyless)


def _by_partitions(
    loads: Sequence[int], ratio: float, heavy: list[HeavyKey], placed: Mapping[int, Sequence[int]], keyless: int
) -> Skew | None:
    for count in sorted(placed):
        predicted = _ratio(_with_keyless(placed[count], keyless))
        if count > len(loads) and predicted <= BALANCED_MAX:
            told = f"{count} partitions instead of {len(loads)} would part the keys: {_fullest(predicted)}"
            return Skew(list(loads), ratio, heavy, Advice(told, partitions=count, ratio=predicted))
    return None


def _by_salt(loads: Sequence[int], ratio: float, heavy: list[HeavyKey], placed: Sequence[int], keyless: int) -> Skew:
    """Keys of overfull partitions in so many pieces that each is a small part of the fair share; smaller ones until all is balanced."""
    fair = sum(loads) / len(loads)
    overfull = {partition for partition, load in enumerate(placed) if load > BALANCED_MAX * fair}
    best: tuple[float, list[HeavyKey]] | None = None
    for pieces_a_share in (2, 3, 4, 6, 8):
        salted = [_salted(key, fair / pieces_a_share) if key.partition in overfull else key for key in heavy]
        predicted = _ratio(_with_keyless(_spread(placed, salted), keyless))
        if best is None or predicted < best[0]:
            best = (predicted, salted)
        if predicted <= BALANCED_MAX:
            break
    assert best is not None
    predicted, salted = best
    named = ", ".join(f"{_name(key.key)} as {key.salt}" for key in salted if key.salt > 1)
    if not named or predicted >= ratio:
        return Skew(list(loads), ratio, heavy, Advice("no number of partitions and no salt that was tried would balance it"))
    told = f"salt the heavy keys ({named}): {_fullest(predicted)}"
    return Skew(list(loads), ratio, salted, Advice(told, ratio=predicted))


def _salted(key: HeavyKey, piece_max: float) -> HeavyKey:
    if key.records < piece_max / 2:  # So little that its pieces would change nothing.
        return key
    salt = next((salt for salt in SALTS if salt * piece_max >= key.records), SALTS[-1])
    return HeavyKey(key.key, key.records, key.bytes, key.share, key.partition, salt)


def _spread(placed: Sequence[int], salted: Sequence[HeavyKey]) -> list[float]:
    loads = [float(load) for load in placed]
    for key in salted:
        if key.salt > 1:
            loads[key.partition] -= key.records
            for piece in range(key.salt):
                loads[partition_of_key(key.key + b"#%d" % piece, len(loads))] += key.records / key.salt
    return loads


def _with_keyless(loads: Sequence[float], keyless: int) -> list[float]:
    return [load + keyless / len(loads) for load in loads]


def _fullest(ratio: float) -> str:
    return f"the fullest partition would have {ratio:.2f} times its fair share"


def _ratio(loads: Sequence[float]) -> float:
    total = sum(loads)
    return max(loads) * len(loads) / total if total else 1.0


def _name(key: bytes) -> str:
    return repr(key.decode()) if key.isascii() else key.hex()
