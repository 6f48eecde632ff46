"""A coordinator with a clock of its own: commands go in, decisions are carried out as a node would, answers are kept by token."""

from itertools import count
from typing import Any, TypeVar

from penstock.groups import records
from penstock.groups.bounds import GroupSettings
from penstock.groups.commands import (
    Abandoned,
    Command,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    NewOffset,
    SyncGroup,
    Token,
)
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.draft import Decision
from penstock.groups.replies import (
    CommitReply,
    DeleteGroupReply,
    DeleteOffsetsReply,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    Reply,
    SyncReply,
)
from penstock.groups.states import GroupState
from penstock.groups.views import OffsetView
from penstock.settings import NodeSettings

R = TypeVar("R")

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
RANGE = (("range", b"v1"),)
WALL_MS = 1_700_000_000_000


class Scene:
    def __init__(self, *, delay_ms: int = 0, bytes_max: int = 1 << 40, **changes: Any) -> None:
        self.settings = GroupSettings.of(NodeSettings(group_initial_rebalance_delay_ms=delay_ms, **changes))
        self.now = 1_000.0
        self.wall_ms = WALL_MS
        self.log: dict[bytes, bytes | None] = {}  # The last value of each key, as compaction would leave it.
        self.answers: dict[Token, Reply] = {}
        self.sizes: list[int] = []  # How many records each decision had.
        self.is_disk_full = False
        self.bytes_max = bytes_max  # What groups may take in memory.
        self._tokens = count(1)
        self._names = count(1)
        self.coordinator = self._started()

    # The node's part

    def ask(self, command: Command) -> Reply | None:
        """Sends a command; the answer, if it came at once."""
        self._carry_out(self.coordinator.decide(command, self.now, self.wall_ms))
        return self.answers.get(command.token)

    def wait(self, seconds: float) -> None:
        """Lets time pass, lapsing whatever is due on the way."""
        end = self.now + seconds
        while (due := self.coordinator.due()) is not None and due <= end:
            self.wait_for_one()
        self._pass_to(end)

    def wait_for_one(self) -> None:
        """Until the next thing lapses."""
        self._pass_to(max(self.coordinator.due() or 0, self.now))
        self._carry_out(self.coordinator.lapse(self.now, self.wall_ms))

    def restart(self) -> None:
        """The node goes down and comes back: only what is in the log is left."""
        self.coordinator = self._started()

    def read(self, token: Token, shape: type[R]) -> R:
        reply = self.answers[token]
        assert isinstance(reply, shape)
        return reply

    def is_parked(self, token: Token) -> bool:
        return token not in self.answers

    def _pass_to(self, instant: float) -> None:
        self.wall_ms += round((instant - self.now) * 1000)
        self.now = instant

    def _started(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(self.settings, lambda: self.bytes_max - coordinator.held_bytes)
        for key, value in self.log.items():
            coordinator.replay_stored(key, value)
        coordinator.begin(self.now)
        return coordinator

    def _carry_out(self, decision: Decision) -> None:
        self.sizes.append(len(decision.records))
        if decision.records and self.is_disk_full:
            return
        for record in decision.records:
            key, value = records.encode(record)
            self.log[key] = value
            self.coordinator.replay(records.decode(key, value))
        for token, reply in decision.replies:
            assert token not in self.answers, f"{token} is answered twice"
            self.answers[token] = reply

    # The clients' part

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
    ) -> int:
        """Asks to join, once; the token of the request."""
        token = next(self._tokens)
        self.ask(
            JoinGroup(
                token=token, group=group, member_id=member_id, fresh_member_id=f"m{next(self._names)}", instance_id=instance,
                client_id="client", client_host="/127.0.0.1", session_timeout_ms=session_ms, rebalance_timeout_ms=rebalance_ms,
                protocol_type=protocol_type, protocols=protocols, needs_known_member_id=version >= 4, can_skip_assignment=version >= 9,
            )
        )  # fmt: skip
        return token

    def joined(self, token: int) -> JoinReply:
        return self.read(token, JoinReply)

    def come(self, **details: Any) -> tuple[str, int]:
        """Joins as a new dynamic member does: gets an id, comes back with it. The id and the token of the second request."""
        member_id = self.joined(self.join(**details)).member_id
        return member_id, self.join(member_id, **details)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> int:
        token = next(self._tokens)
        self.ask(
            SyncGroup(
                token=token, group=group, generation=generation, member_id=member_id, instance_id=instance,
                protocol_type=protocol_type, protocol_name=protocol, assignments=tuple((assignments or {}).items()),
            )
        )  # fmt: skip
        return token

    def synced(self, token: int) -> SyncReply:
        return self.read(token, SyncReply)

    def beat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> int:
        token = next(self._tokens)
        self.ask(Heartbeat(token=token, group=group, generation=generation, member_id=member_id, instance_id=instance))
        return self.read(token, HeartbeatReply).error

    def leave(self, *members: Leaving, group: str = "g") -> LeaveReply:
        token = next(self._tokens)
        self.ask(LeaveGroup(token=token, group=group, members=members))
        return self.read(token, LeaveReply)

    def commit(
        self,
        *offsets: NewOffset,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        retention_ms: int = -1,
    ) -> list[int]:
        token = next(self._tokens)
        self.ask(
            CommitOffsets(
                token=token, group=group, generation=generation, member_id=member_id, instance_id=instance, offsets=offsets,
                retention_ms=retention_ms,
            )
        )  # fmt: skip
        return [error for _, _, error in self.read(token, CommitReply).offsets]

    def delete_offsets(self, *partitions: tuple[str, int], group: str = "g") -> DeleteOffsetsReply:
        token = next(self._tokens)
        self.ask(DeleteOffsets(token=token, group=group, partitions=partitions))
        return self.read(token, DeleteOffsetsReply)

    def delete_group(self, group: str = "g") -> int:
        token = next(self._tokens)
        self.ask(DeleteGroup(token=token, group=group))
        return self.read(token, DeleteGroupReply).error

    def hang_up(self, token: int) -> None:
        self.ask(Abandoned(token))

    # What can be seen

    @property
    def state(self) -> GroupState:
        return self.coordinator.describe("g").state

    @property
    def generation(self) -> int:
        return self.coordinator.describe("g").generation

    def members(self) -> list[str]:
        return [member.member_id for member in self.coordinator.describe("g").members]

    def offsets(self, group: str = "g") -> dict[tuple[str, int], int]:
        return {(view.topic, view.partition): view.offset for view in self.coordinator.offsets(group, None)}

    def offset(self, topic: str, partition: int) -> OffsetView:
        return self.coordinator.offsets("g", [(topic, partition)])[0]


def settled(scene: Scene, size: int = 2, **details: Any) -> list[str]:
    """A Stable group of so many members, each with its own id as its assignment; the first leads."""
    names: list[str] = []
    for _ in range(size):
        newcomer, _ = scene.come(**details)
        for name in names:
            scene.join(name, **details)
        names.append(newcomer)
    for name in reversed(names):  # The leader comes last, so that the others wait.
        scene.sync(name, scene.generation, {each: each.encode() for each in names})
    assert scene.state is GroupState.STABLE
    return names
