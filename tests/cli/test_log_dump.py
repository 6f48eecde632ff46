"""`penstock log dump`: segment files read without a node, damage told where it stands."""

import json
from pathlib import Path

import pytest
from cli.running import penstock, succeed

from penstock.wire.batches import Record, encode_batch, stamp
from penstock.wire.markers import Marker, encode_marker


def batch(first: int, *values: bytes, codec: int = 0) -> bytes:
    records = [Record(b"k", value, (("h", b"1"),), 1_700_000_000_000) for value in values]
    return bytes(encode_batch(records, base_offset=first, leader_epoch=3, codec=codec))


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "topics" / "ab" / "0" / "00000000000000000000.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(batch(0, b"one", b"two") + batch(2, b"three" * 100, codec=4))
    return path


def test_batches_are_listed_with_their_offsets(segment: Path):
    lines = succeed("log", "dump", str(segment)).splitlines()
    assert lines[1].strip().startswith("at 0: offsets 0..1, 2 records")
    assert "epoch 3, zstd" in lines[2]


def test_records_are_shown_on_request(segment: Path):
    text = succeed("log", "dump", str(segment), "--records")
    assert "0 1700000000000 'k' 'one' h='1'" in text


def test_a_marker_says_what_it_ended(segment: Path):
    marker = encode_marker(Marker(is_commit=False, coordinator_epoch=6, number=41), producer_id=9, producer_epoch=2, timestamp_ms=5)
    stamp(marker, 3, 3)
    segment.write_bytes(segment.read_bytes() + marker)
    assert "transactional, abort of transaction 41 by coordinator epoch 6 producer 9/2" in succeed("log", "dump", str(segment))
    row = json.loads(succeed("log", "dump", str(segment), "--json").splitlines()[-1])
    assert row["marker"] == {"is_commit": False, "coordinator_epoch": 6, "number": 41}


def test_a_data_directory_stands_for_all_its_segments(segment: Path, tmp_path: Path):
    segment.with_name("00000000000000000003.log").write_bytes(batch(3, b"four"))
    rows = [json.loads(line) for line in succeed("log", "dump", str(tmp_path), "--json").splitlines()]
    assert [row["base_offset"] for row in rows] == [0, 2, 3]


def test_a_wrong_checksum_is_told_and_the_walk_goes_on(segment: Path):
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    ended = penstock("log", "dump", str(segment))
    assert ended.code == 1
    assert "DAMAGE at 0: wrong checksum" in ended.out
    assert "offsets 2..2" in ended.out
    assert "1 place is damaged" in ended.err


def test_a_torn_tail_is_told(segment: Path):
    for cut in (5, 80):
        content = segment.read_bytes()
        segment.write_bytes(content[:-cut])
        ended = penstock("log", "dump", str(segment), "--json")
        assert ended.code == 1
        assert "the file ends inside a batch" in json.loads(ended.out.splitlines()[-1])["damage"]


def test_bytes_that_are_no_batch_end_the_walk(segment: Path):
    segment.write_bytes(segment.read_bytes() + bytes(200))
    ended = penstock("log", "dump", str(segment))
    assert (ended.code, "there is no batch here" in ended.out) == (1, True)


def test_offsets_that_go_back_are_damage(segment: Path):
    segment.write_bytes(segment.read_bytes() + batch(1, b"again"))
    assert "offset 1 stands after offset 2" in penstock("log", "dump", str(segment)).out


def test_a_path_without_segments_is_told(tmp_path: Path):
    ended = penstock("log", "dump", str(tmp_path))
    assert (ended.code, "there are no segment files" in ended.err) == (1, True)
