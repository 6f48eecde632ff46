"""Where records go: keys as every client of the ecosystem places them, the rest in turns."""

from collections import Counter
from random import Random

import pytest

from penstock.peers.partitioner import StickyPartitions, murmur2, partition_of_key

# The vectors of Kafka's own test of its hash.
VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "expected"), VECTORS)
def test_a_key_hashes_as_javas_client_hashes_it(key: bytes, expected: int):
    assert murmur2(key) == expected


def test_keys_of_every_length_hash_as_another_client_hashes_them():
    from aiokafka.partitioner import murmur2 as peers_murmur2

    rng = Random(7)
    for size in range(70):
        key = rng.randbytes(size)
        assert murmur2(key) & 0xFFFFFFFF == peers_murmur2(key) & 0xFFFFFFFF, key.hex()


def test_a_negative_hash_still_gives_a_partition():
    assert partition_of_key(b"foobar", 10) == (-790332482 & 0x7FFFFFFF) % 10


def test_records_without_a_key_stay_together_until_their_share_is_full():
    sticky = StickyPartitions(Random(1), bytes_each=100)
    chosen = [sticky.choose("orders", 10, 6) for _ in range(30)]
    runs = [chosen[at : at + 10] for at in range(0, 30, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert runs[0] != runs[1] != runs[2], "it must move on to another partition"


def test_records_without_a_key_reach_every_partition_over_time():
    sticky = StickyPartitions(Random(2), bytes_each=1)
    shares = Counter(sticky.choose("orders", 1, 4) for _ in range(4_000))
    assert sorted(shares) == [0, 1, 2, 3]
    assert min(shares.values()) > 800


def test_topics_do_not_share_their_turns():
    sticky = StickyPartitions(Random(3), bytes_each=100)
    first = sticky.choose("a", 10, 50)
    for _ in range(50):
        sticky.choose("b", 100, 50)
    assert sticky.choose("a", 10, 50) == first


def test_a_topic_with_one_partition_always_gets_it():
    sticky = StickyPartitions(Random(4), bytes_each=1)
    assert {sticky.choose("a", 5, 1) for _ in range(10)} == {0}
