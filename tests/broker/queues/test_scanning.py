"""What a ledger is told of a stretch of its queue's log, and what a taker gets to read of it."""

from random import Random

import pytest
from serving import Serving

from penstock.broker.memory import ReplyRoom
from penstock.broker.queues.bodies import Bodies
from penstock.broker.queues.scanning import entries_of
from penstock.queues.headers import Traits
from penstock.queues.state import Marked, Run
from penstock.vocabulary import Offset, ProducerId
from penstock.wire.batches import Record, empty_batch, encode_batch
from penstock.wire.compression import Codec
from penstock.wire.markers import Marker, encode_marker

ALL_LOOPS = True

URGENT = (("penstock.priority", b"9"),)


def records(*headers: tuple[tuple[str, bytes | None], ...]) -> list[Record]:
    return [Record(value=b"x", headers=each, timestamp_ms=100 + at) for at, each in enumerate(headers)]


def test_plain_batches_side_by_side_are_one_run() -> None:
    content = bytes(encode_batch(records((), ()), base_offset=5) + encode_batch(records((("trace", b"1"),)), base_offset=7))
    assert entries_of(content, 5) == ([Run(5, 8, 101)], 8)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_messages_with_options_stand_alone(codec: Codec) -> None:
    content = bytes(encode_batch(records((), URGENT, (), (("penstock.id", b"no option"),)), base_offset=5, codec=codec))
    marked = Marked(6, Traits(priority=9, written_ms=101))
    assert entries_of(content, 5) == ([Run(5, 6, 103), marked, Run(7, 9, 103)], 9)


def test_a_stretch_may_begin_in_the_middle_of_a_batch() -> None:
    content = bytes(encode_batch(records(URGENT, (), URGENT), base_offset=5))
    entries, _ = entries_of(content, 6)
    assert [each[0] for each in entries] == [6, 7]


def test_markers_aborted_records_and_emptied_batches_hold_no_message() -> None:
    def batch(offset: int, producer: int) -> bytes:
        return bytes(
            encode_batch(records(()), base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True)
        )

    def marker(offset: int, producer: int, *, is_commit: bool) -> bytes:
        ending = encode_marker(Marker(is_commit, 0, 1), producer_id=producer, producer_epoch=0, timestamp_ms=1)
        ending[:8] = offset.to_bytes(8, "big")
        return bytes(ending)

    content = b"".join(
        (
            batch(0, 7), batch(1, 8), marker(2, 7, is_commit=False), batch(3, 7), marker(4, 7, is_commit=True),
            marker(5, 8, is_commit=True), bytes(empty_batch(6, 9, 0)), bytes(encode_batch(records(()), base_offset=9)),
        )
    )  # fmt: skip
    entries, end = entries_of(content, 0, [(ProducerId(7), Offset(0))])
    assert [(each.start, each.end) for each in entries if isinstance(each, Run)] == [(1, 2), (3, 4), (9, 10)]
    assert end == 10


async def test_messages_are_read_whole_wherever_they_lie(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("jobs")
    for codec in (Codec.NONE, Codec.LZ4):
        chosen = [Record(b"k%d" % at, b"v%d" % at, (("h", b"%d" % at),), 1_700_000_000_000 + at) for at in range(5)]
        await line.produce_batch("jobs", bytes(encode_batch(chosen, codec=codec)))
    await line.produce("jobs", bytes(50_000))
    partition = node.partitions.find("jobs", 0)
    assert partition is not None
    bodies = Bodies(partition, ReplyRoom(1 << 20))
    for wanted in ([1, 2], [3], [4, 5], [0], [9, 10], [2, 7, 10], [6], [11]):
        found = (await bodies.read(wanted)).messages
        assert {offset: message.value for offset, message in found.items()} == {
            offset: b"v%d" % (offset % 5) if offset < 10 else bytes(50_000) for offset in wanted if offset < 11
        }
    (message,) = (await bodies.read([8])).messages.values()
    assert message == (8, 1_700_000_000_003, b"k3", b"v3", (("h", b"3"),))


async def test_what_was_read_ahead_is_what_lies_there_and_is_let_go_of_in_the_end(serving: Serving) -> None:
    """Takers go through the log in order, go back, jump about, and want less than they asked for; parts of the log go meanwhile."""
    node, rng = await serving.open(), Random(3)
    line = await serving.line()
    await line.create("jobs")
    size_of = [rng.choice((1, 100, 5_000)) for _ in range(300)]
    at = 0
    while at < len(size_of):
        count = rng.choice((1, 2, 30))
        values = [Record(value=bytes(size), timestamp_ms=1_700_000_000_000) for size in size_of[at : at + count]]
        await line.produce_batch("jobs", bytes(encode_batch(values, codec=rng.choice((Codec.NONE, Codec.NONE, Codec.LZ4)))))
        at += count
    partition = node.partitions.find("jobs", 0)
    assert partition is not None
    room, next_offset = ReplyRoom(1 << 20), 0
    bodies = Bodies(partition, room)
    for _ in range(200):
        count = rng.randint(1, 10)
        first = next_offset if rng.random() < 0.7 else rng.randrange(len(size_of))
        wanted = [offset for offset in range(first, first + count) if rng.random() < 0.9]
        if rng.random() < 0.1:
            rng.shuffle(wanted)
        next_offset = (first + count) % len(size_of)
        bytes_max = rng.choice((1, 6_000, 1 << 30))
        found, unread = await bodies.read(wanted, bytes_max=bytes_max)
        there = [offset for offset in wanted if offset < len(size_of)]
        assert {offset: len(message.value or b"") for offset, message in found.items()} == {
            offset: size_of[offset] for offset in there if offset not in unread
        }
        assert not unread or found, "at least one is read"
        assert bytes_max < 1 << 30 or not unread
        assert room.bytes_taken <= 1 << 20
    assert room.bytes_taken > 0, "something is in hand"
    bodies.let_go_if_idle()
    assert room.bytes_taken > 0, "it was wanted a moment ago"
    bodies.let_go_if_idle()
    assert room.bytes_taken == 0
