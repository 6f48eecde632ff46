"""A coordinator with topics, and members of share groups that behave as clients do."""

from typing import Any

from groups.consumer.company import Company

from penstock.errors import ErrorCode
from penstock.groups.commands import NO_HOLD, DeleteGroup, ShareHeartbeat
from penstock.groups.consumer.partitions import NOTHING, Partitions
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.replies import DeleteGroupReply, ShareHeartbeatReply
from penstock.groups.share.views import ShareGroupView
from penstock.settings import GroupConfig

NONE = ErrorCode.NONE


class Crew(Company):
    def __init__(self, topics: dict[str, int] | None = None, config: GroupConfig | None = None, **settings: Any) -> None:
        self.config = config or GroupConfig()  # Of the group g.
        super().__init__(topics, **settings)

    def _started(self) -> GroupCoordinator:
        def config_of(name: str) -> GroupConfig:
            return self.config if name == "g" else GroupConfig()

        coordinator = GroupCoordinator(self.settings, lambda: self.bytes_max - coordinator.held_bytes, self.topics, config_of)
        for key, value in self.log.items():
            coordinator.replay_stored(key, value)
        coordinator.begin(self.now)
        return coordinator

    def share(self, member_id: str, epoch: int, *, group: str = "g", **said: Any) -> ShareHeartbeatReply:
        token = next(self._tokens)
        self.ask(ShareHeartbeat(token=token, group=group, member_id=member_id, member_epoch=epoch, **said))
        return self.read(token, ShareHeartbeatReply)

    def worker(self, member_id: str, *topics: str) -> "Worker":
        """A member that has joined."""
        worker = Worker(self, member_id, topics or ("t",))
        assert worker.join() is NONE
        return worker

    def shared(self, group: str = "g") -> ShareGroupView:
        view = self.coordinator.describe_share(group)
        assert view is not None
        return view

    def try_delete(self, group: str = "g", *, hold: int = NO_HOLD) -> DeleteGroupReply:
        token = next(self._tokens)
        self.ask(DeleteGroup(token=token, group=group, hold=hold))
        return self.read(token, DeleteGroupReply)


class Worker:
    def __init__(self, crew: Crew, member_id: str, topics: tuple[str, ...]) -> None:
        self.crew = crew
        self.member_id = member_id
        self.topics = topics
        self.epoch = 0
        self.told: Partitions = NOTHING

    def join(self) -> ErrorCode:
        return self._hear(self.crew.share(self.member_id, 0, topics=self.topics))

    def beat(self) -> ErrorCode:
        return self._hear(self.crew.share(self.member_id, self.epoch))

    def leave(self) -> ErrorCode:
        return self.crew.share(self.member_id, -1).error

    @property
    def has(self) -> list[tuple[str, int]]:
        return self.crew.named(self.told)

    def _hear(self, reply: ShareHeartbeatReply) -> ErrorCode:
        if reply.error is NONE:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.told = reply.assignment
        return reply.error
