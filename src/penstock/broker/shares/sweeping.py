"""Ledgers of share groups that are not there any more: found by the leaders of their partitions, and forgotten.

No ledger begins without its group (beginning.py), but one may be left: by an older version, or by a leader or a coordinator that was
replaced in the middle of a deletion. It keeps the log from being trimmed, and no admin can name it. So each leader asks now and then. To
lose what a living group has done would be far worse than to keep a ledger that nobody needs, so one goes only if
- the coordinator has said for a day that nobody is to have a ledger there; whoever cannot be asked has not said so. Should it have lost its
  log, members that join again in that time have theirs back;
- the last time it has written a record, which is committed: a coordinator that was replaced without knowing commits none;
- the group has no members, and nobody may join or begin anything until the ledger has gone (groups/share/changing.py);
- nobody waits at the ledger or holds anything of it, and it stands as it stood when the coordinator was asked.
"""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.queues.calls import QueueRefusal
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.refusals import NotHere
from penstock.broker.shares import ledger_calls
from penstock.groups.replies import LedgerWord
from penstock.groups.share.changing import SWEPT_MS
from penstock.links.share_calls import LedgerQuestion
from penstock.queues.commands import QUEUE_GROUP
from penstock.vocabulary import Instant

if TYPE_CHECKING:
    from penstock.broker.node import Node
    from penstock.broker.shares.beginning import Beginnings

log = logging.getLogger("penstock")

ROUND_SECONDS = 600.0  # Nobody is in a hurry.
SUSPECTED_SECONDS = 86_400.0  # Before it goes.
PAUSE_SECONDS = 0.01  # Between two questions, so that a round of many is not felt.
IN_TIME_SECONDS = SWEPT_MS / 1000 / 2  # Clocks of two nodes may differ in how fast they go.


class _Stand(NamedTuple):
    """Of a ledger: another one each time that somebody has worked on it."""

    next_lease: int
    base: int
    finished: int


class Sweeping:
    def __init__(self, node: "Node", beginnings: "Beginnings") -> None:
        self._node = node
        self._beginnings = beginnings
        self._suspects: dict[tuple[QueuePartition, str], Instant] = {}  # Since when the coordinator says so.

    async def look_after(self) -> None:
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            try:
                await self.look()
            except Exception:
                log.exception("a round through the ledgers of share groups failed; the next one tries again")

    async def look(self) -> None:
        """One round."""
        before, self._suspects = self._suspects, {}
        for queue in self._node.ledgers:
            state = queue.coordinator.state
            for group in [] if state is None else state.groups():
                if group != QUEUE_GROUP:
                    with suppress(NotHere, QueueRefusal):  # Another node leads, or nothing can be written: it has time.
                        await self._look_at(queue, group, before.get((queue, group)))
                    await asyncio.sleep(PAUSE_SECONDS)

    async def _look_at(self, queue: QueuePartition, group: str, since: Instant | None) -> None:
        stood, asked = self._stand(queue, group), self._node.env.now()
        if stood is None:
            return
        sweeps = since is not None and asked - since >= SUSPECTED_SECONDS
        answer = await self._beginnings.ask(LedgerQuestion(group, queue.data.topic_id, queue.data.index, sweeps))
        if answer.word in (LedgerWord.RECORDED.value, LedgerWord.GOING.value):
            return
        is_certain = sweeps and answer.word == LedgerWord.UNKNOWN.value and self._node.env.now() - asked < IN_TIME_SECONDS
        if is_certain and self._stand(queue, group) == stood:
            await ledger_calls.forget(queue, group)  # Decided before anything else can happen.
            place = f"{queue.data.topic}-{queue.data.index}"
            self._node.report(f"the ledger of share group {group!r} on {place} is forgotten: there is no such group any more")
        elif since is not None or answer.word:  # Who says nothing takes nothing back.
            self._suspects[queue, group] = asked if since is None else since

    def _stand(self, queue: QueuePartition, group: str) -> _Stand | None:
        """None: somebody is there, or the ledger is not. Raises NotHere."""
        if not queue.state.has(group) or queue.waiting(group):
            return None
        ledger, counts = queue.state.ledgers[group], queue.state.counts(group, self._node.env.wall_ms())
        return None if counts.leased else _Stand(ledger.next_lease, ledger.done.base, counts.finished)
