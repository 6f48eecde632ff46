"""The small parts, each by itself."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.config import LogConfig
from penstock.log.epochs import NEVER, NO_EPOCH, Epochs
from penstock.log.faults import NewerFormat
from penstock.log.index import ENTRIES_MAX, SparseIndex
from penstock.log.open_files import OpenFiles
from penstock.log.segment import SegmentName, segment_name, standing
from penstock.log.small_files import seal, unseal
from penstock.simulator.disk import SimDisk

KIND = b"testkind"


def index_of(batches: list[tuple[int, int, int]], interval_bytes: int) -> SparseIndex:
    index = SparseIndex(interval_bytes)
    for offset, position, timestamp in batches:
        index.note(offset, position, timestamp)
    return index


def many_batches(count: int, seed: int = 1) -> list[tuple[int, int, int]]:
    rng = Random(seed)
    batches, offset, position = [], 0, 0
    for _ in range(count):
        batches.append((offset, position, rng.randint(0, 1_000_000)))
        offset += rng.randint(1, 3)
        position += rng.randint(70, 5_000)
    return batches


@pytest.mark.parametrize("count", [0, 1, 100, ENTRIES_MAX + 1, 5 * ENTRIES_MAX])
@pytest.mark.parametrize("interval_bytes", [0, 1, 4_096, 100_000])
def test_an_index_leads_to_a_batch_at_or_before_every_offset_and_its_stretches_tell_the_newest(count: int, interval_bytes: int) -> None:
    batches = many_batches(count)
    index = index_of(batches, interval_bytes)
    assert len(index.offsets) <= ENTRIES_MAX
    by_offset = {offset: (position, timestamp) for offset, position, timestamp in batches}
    segment_size = batches[-1][1] + 70 if batches else 0
    for entry, offset in enumerate(index.offsets):
        assert by_offset[offset][0] == index.positions[entry]
        assert index.find(offset) == entry
    for offset, position, _ in batches[:: max(1, count // 200)]:
        entry = index.find(offset)
        assert index.positions[entry] <= position < index.stretch_end(entry, segment_size)
    at = 0
    for entry in range(len(index.offsets)):
        end = index.stretch_end(entry, segment_size)
        newest = -1
        while at < count and batches[at][1] < end:
            newest = max(newest, batches[at][2])
            at += 1
        assert index.times[entry] == newest


def test_an_index_of_a_long_segment_stays_small_and_its_stretches_even() -> None:
    index = index_of([(number, number * 170, number) for number in range(300_000)], 4_096)
    assert ENTRIES_MAX // 2 <= len(index.offsets) <= ENTRIES_MAX
    assert max(after - before for before, after in zip(index.positions, index.positions[1:], strict=False)) <= 2 * 300_000 * 170 // len(
        index.offsets
    )


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(61, 900), st.integers(-1, 2**62)), max_size=60), st.integers(1, 3_000))
def test_an_index_survives_being_written_and_read(rows: list[tuple[int, int, int]], interval_bytes: int) -> None:
    offset = position = 0
    index = SparseIndex(interval_bytes)
    for delta, size, timestamp in rows:
        index.note(offset, position, timestamp)
        offset, position = offset + delta, position + size
    again, end = SparseIndex.decode(b"head" + index.encode() + b"tail", 4)
    assert end == 4 + len(index.encode())
    assert (again.offsets, again.positions, again.times, again.next_at) == (index.offsets, index.positions, index.times, index.next_at)


def test_an_index_that_is_cut_off_does_not_decode() -> None:
    content = index_of(many_batches(20), 1).encode()
    for size in range(len(content)):
        with pytest.raises(ValueError, match="cut off"):
            SparseIndex.decode(content[:size])


def test_epochs_know_who_wrote_what() -> None:
    epochs = Epochs()
    assert (epochs.latest, epochs.epoch_at(7), epochs.next_start(7)) == (NO_EPOCH, NO_EPOCH, NEVER)
    for epoch, start in ((1, 0), (4, 10), (6, 25)):
        epochs.begin(epoch, start)
    assert [epochs.epoch_at(offset) for offset in (0, 9, 10, 24, 25, 99)] == [1, 1, 4, 4, 6, 6]
    assert [epochs.next_start(offset) for offset in (0, 9, 10, 24, 25)] == [10, 10, 25, 25, NEVER]
    assert [epochs.first_above(epoch) for epoch in (0, 1, 3, 4, 6)] == [0, 10, 10, 25, NEVER]
    again, _ = Epochs.decode(epochs.encode(), 0)
    assert list(again) == list(epochs)
    epochs.cut(25)
    assert (list(epochs), epochs.latest) == ([(1, 0), (4, 10)], 4)
    epochs.drop_below(12)
    assert list(epochs) == [(4, 10)]
    epochs.cut(0)
    assert (list(epochs), epochs.latest, epochs.epoch_at(3)) == ([], NO_EPOCH, NO_EPOCH)


@given(st.binary(max_size=60), st.integers(0, 1_000))
def test_a_seal_tells_every_change(body: bytes, at: int) -> None:
    content = seal(KIND, 3, body)
    assert unseal(content, KIND, 3, "f") == body
    changed = bytearray(content)
    changed[at % len(content)] ^= 0x20
    assert unseal(bytes(changed), KIND, 3, "f") is None
    assert unseal(content[:-1], KIND, 3, "f") is None
    assert unseal(content, b"otherone", 3, "f") is None
    with pytest.raises(NewerFormat, match="f has format 3, this Penstock knows 2"):
        unseal(content, KIND, 2, "f")


def test_the_longest_unused_file_is_closed_first_and_a_pinned_one_never() -> None:
    disk = SimDisk()
    for name in "abcde":
        disk.close(disk.open(name, create=True))
    files = OpenFiles(disk, 3)
    pinned = files.pin("a")
    files.borrow("b")
    files.borrow("c")
    files.borrow("b")
    files.borrow("d")
    assert (sorted(files._idle), len(files)) == (["b", "d"], 3)
    assert files.pin("a") is pinned
    files.unpin(pinned)
    files.unpin(pinned)
    files.borrow("e")
    assert sorted(files._idle) == ["a", "d", "e"] or len(files) == 3


def test_more_files_than_the_limit_are_open_only_while_they_are_pinned() -> None:
    disk = SimDisk()
    files = OpenFiles(disk, 2)
    pins = [files.pin(name, create=True) for name in "abcde"]
    assert len(files) == 5
    for pin in pins:
        files.unpin(pin)
    assert len(files) == 2


def test_a_forgotten_file_can_be_read_until_its_last_reader_is_done() -> None:
    disk = SimDisk()
    files = OpenFiles(disk, 2)
    first = files.pin("a", create=True)
    disk.append(first.file, (b"old",))
    disk.unlink("a")
    files.forget("a")
    second = files.pin("a", create=True)
    assert disk.read_at(first.file, 0, 3) == b"old"
    assert disk.read_at(second.file, 0, 3) == b""
    files.unpin(first)
    with pytest.raises(ValueError, match="closed"):
        disk.read_at(first.file, 0, 3)
    files.unpin(second)
    assert len(files) == 1


def test_only_names_of_twenty_digits_are_segments() -> None:
    assert segment_name("00000000000000000042.log") == SegmentName(42)
    assert segment_name("00000000000000000042-00000000000000000050-00000003.log") == SegmentName(42, 50, 3)
    for name in (
        "42.log",
        "00000000000000000042.index",
        "0000000000000000004x.log",
        "+0000000000000000042.log",
        "checkpoint",
        "00000000000000000042-00000000000000000050.log",
        "00000000000000000042-00000000000000000050-3.log",
        "٠" * 20 + ".log",
    ):
        assert segment_name(name) is None


def test_of_segments_that_stand_for_the_same_offsets_the_latest_holds() -> None:
    plain = [SegmentName(0), SegmentName(10), SegmentName(20), SegmentName(30)]
    first, second = SegmentName(0, 20, 1), SegmentName(0, 30, 2)
    assert standing(plain) == (plain, [])
    assert standing([first, *plain]) == ([first, *plain[2:]], plain[:2])
    assert standing([*plain, first, second])[0] == [second, SegmentName(30)]


def test_what_was_replaced_itself_replaces_nothing() -> None:
    """A compacted segment was cut at offset 15; then the log went on. The old one was kept from going by a crash."""
    before, after, active = SegmentName(0, 30, 1), SegmentName(0, 15, 2), SegmentName(15)
    assert standing([before, active]) == ([before], [active]), "without the shorter one nothing was cut"
    assert standing([before, after, active]) == ([after, active], [before])


@pytest.mark.parametrize("segment_bytes", [0, -1, 2**31])
def test_a_segment_size_that_positions_cannot_tell_is_refused(segment_bytes: int) -> None:
    with pytest.raises(ValueError, match="segment_bytes"):
        LogConfig(segment_bytes=segment_bytes)
