"""Queues by their names, wherever their partitions are led: what every door of a node calls.

Any node answers: it finds the leaders in its image, asks them over links where they are others, and asks again, a few times, when one has
changed. Every method raises `QueueRefusal` (calls.py). A method that takes several messages answers for each of them, in order.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.broker.queues.calls import (
    QUEUE_GROUP,
    Counts,
    Draft,
    Lent,
    Order,
    Peeked,
    QueueRefusal,
    QueueView,
    Redrive,
    RedriveTask,
    Sent,
    State,
    Verdict,
)  # fmt: skip

if TYPE_CHECKING:
    from penstock.broker.node import Node


class Queues:
    def __init__(self, node: "Node") -> None:
        self._node = node

    # Queues

    def names(self) -> list[str]:
        """Of all queues, in order: topics with `queue.enabled`."""
        raise NotImplementedError

    def describe(self, queue: str) -> QueueView:
        raise NotImplementedError

    async def create(self, queue: str, settings: Mapping[str, str], *, partitions: int = 1, replicas: int | None = None) -> bool:
        """Makes the queue; `queue.enabled` need not be among the settings. True: it is new. False: it is there with these settings.
        Raises EXISTS_WITH_OTHER_SETTINGS where one of the given settings differs from what holds."""
        raise NotImplementedError

    async def configure(self, queue: str, settings: Mapping[str, str | None]) -> None:
        """Sets some of the topic's settings; None puts one back to its default. The others stay."""
        raise NotImplementedError

    async def delete(self, queue: str) -> None:
        """With all that is in it."""
        raise NotImplementedError

    # Messages

    async def send(self, queue: str, drafts: Sequence[Draft]) -> list[Sent | QueueRefusal]:
        """Answers when all that were taken are durable. One of them may be refused (FULL, TOO_LARGE, INVALID) and the others sent."""
        raise NotImplementedError

    async def take(
        self, queue: str, count: int, *, lease_ms: int | None = None, wait_s: float = 0.0, who: str = "", attempt_id: str = "",
        group: str = QUEUE_GROUP,
    ) -> list[Lent]:  # fmt: skip
        """Up to `count` messages under leases that are durable. Waits until there is at least one, or `wait_s` have passed.
        Cancelling the call takes nothing away: what was being lent to nobody is given back. IN_FLIGHT_LIMIT is raised only where
        nothing can be lent because of it, and only by queues that say so (`queue.inflight.refuse`)."""
        raise NotImplementedError

    async def settle(self, queue: str, orders: Sequence[Order], *, group: str = QUEUE_GROUP) -> list[Verdict]:
        raise NotImplementedError

    async def peek(self, queue: str, *, states: Sequence[State] = (), count: int = 10, after: str = "") -> list[Peeked]:
        """Messages in the order of the log, partition by partition, from behind the one with the id `after`. No states: all unfinished."""
        raise NotImplementedError

    async def find(self, queue: str, message_id: str) -> Peeked | None:
        """By the id that `send` gave. None: it was never here."""
        raise NotImplementedError

    async def cancel(self, queue: str, ids: Sequence[str]) -> list[Verdict]:
        """Finishes messages that nobody holds: OK; GONE when it was finished, LOST when somebody holds it, UNKNOWN for what is no id."""
        raise NotImplementedError

    async def purge(self, queue: str) -> None:
        """Finishes everything that was sent before."""
        raise NotImplementedError

    async def pause(self, queue: str) -> None:
        """Nothing is lent any more. What is lent may be settled; sends go on."""
        raise NotImplementedError

    async def resume(self, queue: str) -> None:
        raise NotImplementedError

    async def rewind(self, queue: str, *, to_ms: int) -> int:
        """Everything that was sent at that time or later is ready again, finished or not. Only of queues that keep what is done. Returns
        how many messages there are from there on."""
        raise NotImplementedError

    async def counts(self, queue: str, *, group: str = QUEUE_GROUP) -> Counts:
        raise NotImplementedError

    # Dead letters

    async def redrive(self, queue: str, wish: Redrive) -> RedriveTask:
        """Begins to send dead letters back; this node runs it. A dry run has ended when this returns. BUSY while another one runs here."""
        raise NotImplementedError

    def tasks(self, queue: str) -> list[RedriveTask]:
        """Of this node, the latest first: those that run and the last few that ended. They are forgotten when the node stops; what was
        moved by then stays moved."""
        raise NotImplementedError

    def cancel_task(self, handle: str) -> RedriveTask:
        """What was moved stays moved."""
        raise NotImplementedError
