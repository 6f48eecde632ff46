"""Which batches of a fetched row a reader of committed records leaves out."""

from penstock.peers.aborted import AbortedRecords, AbortedTransaction
from penstock.wire.batches import Record, encode_batch, read_header


def left_out(batches: list[bytearray], *aborted: tuple[int, int]) -> list[int]:
    """The base offsets of what is left out."""
    walk = AbortedRecords([AbortedTransaction(*one) for one in aborted])
    return [read_header(batch).base_offset for batch in batches if walk.has(read_header(batch), memoryview(batch))]


def data(producer_id: int, offset: int, *, is_transactional: bool = True) -> bytearray:
    return encode_batch([Record(value=b"v")], base_offset=offset, producer_id=producer_id, is_transactional=is_transactional)


def marker(producer_id: int, offset: int, *, is_commit: bool) -> bytearray:
    record = Record(key=b"\0\0\0" + bytes([is_commit]), value=bytes(6))
    return encode_batch([record], base_offset=offset, producer_id=producer_id, is_transactional=True, is_control=True)


def test_an_aborted_transaction_reaches_to_its_marker() -> None:
    row = [data(1, 0), data(1, 1), marker(1, 2, is_commit=False), data(1, 3), marker(1, 4, is_commit=True)]
    assert left_out(row, (1, 0)) == [0, 1]


def test_a_row_may_begin_inside_of_one() -> None:
    assert left_out([data(1, 7), marker(1, 8, is_commit=False), data(1, 9)], (1, 2)) == [7]


def test_one_that_begins_further_on_does_not_count_before() -> None:
    row = [data(1, 0), marker(1, 1, is_commit=True), data(1, 2), marker(1, 3, is_commit=False)]
    assert left_out(row, (1, 2)) == [2]


def test_producers_do_not_get_in_each_others_way() -> None:
    row = [data(1, 0), data(2, 1), data(1, 2), marker(2, 3, is_commit=True), marker(1, 4, is_commit=False), data(2, 5)]
    assert left_out(row, (1, 0)) == [0, 2]


def test_several_of_one_producer_end_each_at_its_own_marker() -> None:
    row = [data(1, 0), marker(1, 1, is_commit=False), data(1, 2), marker(1, 3, is_commit=True), data(1, 4), marker(1, 5, is_commit=False)]
    assert left_out(row, (1, 4), (1, 0)) == [0, 4], "in whatever order they are told"


def test_what_is_of_no_transaction_is_never_left_out() -> None:
    assert left_out([data(1, 0, is_transactional=False), data(-1, 1, is_transactional=False)], (1, 0), (-1, 1)) == []
