"""Loops over the messages of one decision: their rows and their handles. Compiled where it was built, a twin elsewhere.

`lease_rows` gives each offset a row under leases of rising numbers: how many of them were under one before.
`deliveries` tells what those leases are, before they are given.
`held_offsets` reads the offsets of settlements that say of each message that it is done, by whoever holds it now; None where one does not.
`drop_rows` forgets the rows of a run: how many of them were under a lease.
`write_ids`: of messages, behind what all ids of a partition have in common.
`write_handles` and `read_handles`: receipt handles of one partition of a topic and one group (ids.py says what is in them).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.queues._many_py import deliveries, drop_rows, held_offsets, lease_rows, read_handles, write_handles, write_ids

    COMPILED: bool
else:
    try:
        from penstock.queues._many import deliveries, drop_rows, held_offsets, lease_rows, read_handles, write_handles, write_ids

        COMPILED = True
    except ImportError:
        from penstock.queues._many_py import deliveries, drop_rows, held_offsets, lease_rows, read_handles, write_handles, write_ids

        COMPILED = False

__all__ = ["COMPILED", "deliveries", "drop_rows", "held_offsets", "lease_rows", "read_handles", "write_handles", "write_ids"]
