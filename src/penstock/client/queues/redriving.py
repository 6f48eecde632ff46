"""Sending dead letters back: what was wanted, and how far it has come.

A redrive goes on when the node that runs it dies, and when whoever began it does not wait for it. One at a time runs for a queue, which
keeps the last ten.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.client.queues.failures import Refused
from penstock.client.queues.loop_thread import loop_thread

if TYPE_CHECKING:
    from penstock.client.queues.actions import Actions

LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which dead letters, where to, and how fast. What is empty or 0 does not matter."""

    to: str = ""
    reason: str = ""
    source: str = ""
    failed_after_ms: int = 0
    failed_before_ms: int = 0
    ids: tuple[str, ...] = ()
    limit: int = 0
    rate: int = 0
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    handle: str
    status: str  # running, completed, cancelling, cancelled, failed
    moved: int
    to_move: int  # Those that fit, as far as they were seen.
    by_target: dict[str, int] = field(default_factory=dict)
    failure: str = ""

    @property
    def is_running(self) -> bool:
        return self.status in ("running", "cancelling")


Watch = Callable[[Progress], object]


class AsyncRedrive:
    """A redrive that was begun."""

    def __init__(self, actions: "Actions", progress: Progress) -> None:
        self.progress = progress  # As it was last heard.
        self._actions = actions

    async def refresh(self) -> Progress:
        if self.progress.is_running:
            self.progress = await self._actions.redrive_progress(self.progress.handle)
        return self.progress

    async def wait(self, watch: Watch | None = None) -> Progress:
        """Until it has ended; `watch` hears of each look at it. Raises Refused where it failed."""
        while True:
            if watch is not None:
                watch(self.progress)
            if not self.progress.is_running:
                break
            await asyncio.sleep(LOOK_SECONDS)
            await self.refresh()
        if self.progress.status == "failed":
            raise Refused(self.progress.failure, "what was moved stays moved: mend it, and begin again", "failed")
        return self.progress

    async def cancel(self) -> Progress:
        """What was moved stays moved."""
        self.progress = await self._actions.cancel_redrive(self.progress.handle)
        return self.progress


class Redrive:
    """A redrive that was begun."""

    def __init__(self, within: AsyncRedrive) -> None:
        self._within = within

    @property
    def progress(self) -> Progress:
        """As it was last heard."""
        return self._within.progress

    def refresh(self) -> Progress:
        return loop_thread().wait_for(self._within.refresh())

    def wait(self, watch: Watch | None = None) -> Progress:
        """Until it has ended; `watch` hears of each look at it. Raises Refused where it failed."""
        return loop_thread().wait_for(self._within.wait(watch))

    def cancel(self) -> Progress:
        """What was moved stays moved."""
        return loop_thread().wait_for(self._within.cancel())
