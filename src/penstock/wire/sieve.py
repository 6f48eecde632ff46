"""What compaction does to bytes, in bulk: the compiled loop where it was built, its Python twin elsewhere.

A *table* is a bytearray of a power of two slots (`SLOT_BYTES` each) that holds for the hash of a key the last offset at which it stands.
`seed` is sixteen bytes of chance, one and the same for the life of a table: nobody can prepare keys that fall together. The two loops hash
differently, so a table belongs to the loop that filled it.

`note_keys(batches, start, end, table, seed=, room=)` enters the keys of plain batches. It stops before a batch that it must not read
(see `Stop`), and before one with more records than `room` leaves: so a batch is entered whole or not at all.

`grow_table(table)` is a table of twice the slots with the same entries.

`sift_batches(batches, start, end, table, seed=, map_end=, wall_ms=, horizon_ms=, kept_ends=, mark_bytes=)` leaves out the records that
nobody needs, of plain batches again. A record below `map_end` stays if no later one has its key; one without a key goes. Offsets, deltas,
sequences and epochs stay as they are; what changes is told by the header: length, count, highest timestamp, checksum.
- A batch in which a tombstone stays gets a delete horizon (KIP-534): attribute bit 6, and `horizon_ms` as its base timestamp, from
  which its records' timestamps then count. Once `wall_ms` has reached a batch's horizon its tombstones go.
- A batch that is left without records goes, unless its last offset is among `kept_ends` (sorted signed 64-bit numbers, big-endian):
  of those the header stays, with no records.
Both stop before transactional batches, unless they are told to take those too (`takes_transactional`): by who knows them for committed.
Marks are made at the first batch of the content and then at the first one at least `mark_bytes` after the last mark.

All of it trusts that the batches are whole and their checksums right: scan them first. Positions never leave the given range.
"""

from typing import TYPE_CHECKING

from penstock.wire.sieve_verdicts import SLOT_BYTES, Noted, Sifted, Stop

if TYPE_CHECKING:
    from penstock.wire._sieve_py import grow_table, note_keys, sift_batches

    COMPILED: bool
else:
    try:
        from penstock.wire._sieve import grow_table, note_keys, sift_batches

        COMPILED = True
    except ImportError:
        from penstock.wire._sieve_py import grow_table, note_keys, sift_batches

        COMPILED = False

__all__ = ["COMPILED", "SLOT_BYTES", "Noted", "Sifted", "Stop", "grow_table", "note_keys", "sift_batches"]
