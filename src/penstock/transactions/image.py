"""What is durable about the transactional ids of one coordinator: the records of its partition, replayed.

Only `replay` changes it, and it never refuses: a record in the log has happened. A snapshot is the shortest list of records that replays
into the same image. Its pieces may be taken one after the other while new records are replayed in between: because each key stands alone,
the pieces and then every record since the first of them give the same image.
"""

from collections.abc import Iterator
from typing import assert_never

from penstock.transactions import records
from penstock.transactions.records import TransactionSaved
from penstock.transactions.sizes import held_bytes

_PIECE_RECORDS = 500


class TransactionsImage:
    def __init__(self) -> None:
        self.saved: dict[str, TransactionSaved] = {}
        self.ending: dict[str, None] = {}  # Those whose end is settled and not yet known to all partitions, in that order.
        self.held_bytes = 0  # What all of it takes in memory, about.

    def replay(self, record: records.Record) -> None:
        match record:
            case records.TransactionSaved():
                self._remove(record.transactional_id)
                self.saved[record.transactional_id] = record
                self.held_bytes += held_bytes(record)
                if record.state.is_ending:
                    self.ending[record.transactional_id] = None
            case records.TransactionForgotten():
                self._remove(record.transactional_id)
            case _:
                assert_never(record)

    def snapshot_pieces(self) -> Iterator[list[records.Record]]:
        piece: list[records.Record] = []
        for transactional_id in list(self.saved):
            if saved := self.saved.get(transactional_id):
                piece.append(saved)
            if len(piece) >= _PIECE_RECORDS:
                yield piece
                piece = []
        yield piece

    def _remove(self, transactional_id: str) -> None:
        before = self.saved.pop(transactional_id, None)
        if before is not None:
            self.held_bytes -= held_bytes(before)
            self.ending.pop(transactional_id, None)
