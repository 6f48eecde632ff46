"""Comparing replicas: what may differ passes, and each way in which they may not is told."""

import pytest

from penstock.simulator.clusters.replicas import StoredBatch, StoredLog, compare
from penstock.wire.batches import Record, encode_batch, read_header, stamp

pytestmark = pytest.mark.invariant("replication.logs-agree", "replication.in-sync-has-committed")


def batch(offset: int, value: bytes, epoch: int = 1) -> StoredBatch:
    content = bytearray(encode_batch([Record(key=b"k", value=value, timestamp_ms=0)]))
    stamp(content, offset, epoch)
    header = read_header(content)
    return StoredBatch(offset, offset + 1, epoch, header.crc, bytes(content))


def log(host: str, *batches: StoredBatch, watermark: int, start: int = 0, is_compacted: bool = False) -> StoredLog:
    return StoredLog(host, start, list(batches), watermark, is_compacted)


A, B, C = batch(0, b"a"), batch(1, b"b"), batch(2, b"c")


def told(one: StoredLog, other: StoredLog) -> list[str]:
    return list(compare(one, other))


def test_the_same_batches_pass_and_one_may_have_more():
    assert told(log("x", A, B, C, watermark=3), log("y", A, B, watermark=2)) == []


def test_tails_of_different_epochs_pass_above_the_watermark():
    assert told(log("x", A, B, C, watermark=2), log("y", A, B, batch(2, b"other", epoch=2), watermark=3)) == []


def test_another_epoch_below_both_watermarks_is_told():
    assert "epoch 1" in told(log("x", A, B, watermark=2), log("y", A, batch(1, b"other", epoch=2), watermark=2))[0]


def test_two_batches_of_one_epoch_at_one_offset_are_told_also_above_the_watermark():
    assert "different batches of epoch 1" in told(log("x", A, B, watermark=1), log("y", A, batch(1, b"other"), watermark=1))[0]


def test_a_batch_that_is_missing_below_both_watermarks_is_told():
    assert "not on y" in told(log("x", A, B, watermark=2), log("y", A, watermark=2))[0]


def test_what_retention_has_passed_on_one_side_is_not_missed():
    assert told(log("x", A, B, C, watermark=3), log("y", C, watermark=3, start=2)) == []


def test_compacted_replicas_may_have_dropped_different_records_but_not_hold_different_ones():
    assert told(log("x", A, C, watermark=3, is_compacted=True), log("y", B, C, watermark=3, is_compacted=True)) == []
    assert told(log("x", A, watermark=3, is_compacted=True), log("y", batch(0, b"other"), watermark=3, is_compacted=True))
