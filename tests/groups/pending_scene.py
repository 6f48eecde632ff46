"""A scene with transactional producers, whose log can be cut after any decision."""

from typing import Any

from groups.scene import Scene

from penstock.groups import records
from penstock.groups.commands import CommitPending, EndPending, ForgetTopic, NewOffset
from penstock.groups.draft import Decision
from penstock.groups.guards import Guard
from penstock.groups.pending_records import NO_NUMBER
from penstock.groups.replies import CommitReply, PendingEnded, TopicForgotten
from penstock.vocabulary import ProducerId, TopicId

P = ProducerId(7)
Q = ProducerId(8)


class PendingScene(Scene):
    def __init__(self, **changes: Any) -> None:
        self.batches: list[list[tuple[bytes, bytes | None]]] = []  # What each decision has stored.
        super().__init__(**changes)

    def pend(
        self,
        *offsets: NewOffset,
        producer: ProducerId = P,
        epoch: int = 0,
        number: int = 1,
        guard: Guard | None = None,
        group: str = "g",
        **member: Any,
    ) -> list[int]:
        """Commits in a transaction. Who brings no guard takes one now, as if the transaction had just been found open."""
        token = next(self._tokens)
        self.ask(
            CommitPending(
                token=token, group=group, producer_id=producer, producer_epoch=epoch, number=number, offsets=offsets,
                guard=guard or self.coordinator.guard(producer), **member,
            )
        )  # fmt: skip
        return [error for _, _, error in self.read(token, CommitReply).offsets]

    def pend_on(self, *offsets: NewOffset, producer: ProducerId = P, epoch: int = 0, group: str = "g") -> list[int]:
        """More of a transaction that is open here, so that nobody was asked."""
        token = next(self._tokens)
        self.ask(CommitPending(token=token, group=group, producer_id=producer, producer_epoch=epoch, offsets=offsets))
        return [error for _, _, error in self.read(token, CommitReply).offsets]

    def end(self, *, commits: bool, producer: ProducerId = P, epoch: int = 0, number: int = 1) -> PendingEnded:
        token = next(self._tokens)
        self.ask(EndPending(token=token, producer_id=producer, producer_epoch=epoch, number=number, is_commit=commits))
        return self.read(token, PendingEnded)

    def end_whichever(self, *, commits: bool, epoch: int = 0) -> PendingEnded:
        return self.end(commits=commits, epoch=epoch, number=NO_NUMBER)

    def forget(self, topic: str, topic_id: TopicId) -> int:
        token = next(self._tokens)
        self.ask(ForgetTopic(token=token, topic=topic, topic_id=topic_id))
        return self.read(token, TopicForgotten).offsets

    def unstable(self, group: str = "g") -> list[tuple[str, int]]:
        return sorted(self.coordinator.unstable(group))

    def _carry_out(self, decision: Decision) -> None:
        if decision.records and not self.is_disk_full:
            self.batches.append([records.encode(record) for record in decision.records])
        super()._carry_out(decision)
