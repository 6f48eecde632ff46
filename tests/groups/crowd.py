"""A crowd of consumers in a few groups, driven by a seed: they join, work, crash, hang up, lie and come back; nodes restart; disks fill.

Every step is one command or some passing time. Clients behave as libraries do most of the time, and say something wrong now and then.
"""

from dataclasses import dataclass, field, replace
from random import Random

from groups.checkers import Checker, look_inside
from groups.scene import WALL_MS

from penstock.errors import ErrorCode
from penstock.groups import commands, records, replies
from penstock.groups.bounds import GroupSettings
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.draft import Decision
from penstock.settings import DAY_MS, NodeSettings
from penstock.vocabulary import Instant

GROUPS = ("a", "b", "c")
TOPICS = ("t", "u")
OFFERS = (
    (("range", b"1"),), (("range", b"2"),), (("range", b"1"), ("sticky", b"1")), (("sticky", b"3"), ("range", b"3")), (("sticky", b"4"),),
)  # fmt: skip


@dataclass(slots=True)
class Client:
    group: str
    instance: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    peers: tuple[str, ...] = ()  # As the leader knows them.
    mood: str = "out"  # out, joined, working
    token: int | None = None  # What it waits for.
    offer: tuple[tuple[str, bytes], ...] = OFFERS[0]
    sleeps_until: float = 0.0
    heard: list[object] = field(default_factory=list)


class Crowd:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        delay_ms = self.dice.choice((0, 0, 3_000))
        size_max = self.dice.choice((3, 6, 10_000))
        self.settings = GroupSettings.of(NodeSettings(group_initial_rebalance_delay_ms=delay_ms, group_max_size=size_max))
        self.checker = Checker(self.settings.offsets_retention_ms)
        self.now = Instant(1_000.0)
        self.wall_ms = WALL_MS
        self.log: dict[bytes, bytes | None] = {}
        self.clients = [self._client(n) for n in range(self.dice.randrange(4, 16))]
        self.waiting: dict[int, Client] = {}
        self.tokens = 0
        self.coordinator = self._started()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
            look_inside(self.coordinator, self.now)
        self._pass(2_000)  # Longer than any time-out that a client asked for, twice.
        look_inside(self.coordinator, self.now)
        self.checker.compare_offsets(self.coordinator)
        self.checker.over()

    # The world's moves

    def _step(self) -> None:
        roll = self.dice.random()
        if roll < 0.12:
            self._pass(self.dice.choice((0.1, 1, 1, 3, 3, 8)))
        elif roll < 0.13:
            self._pass(self.dice.choice((20, 70, 400)))
        elif roll < 0.1305:
            self._pass(self.dice.choice((1, 8)) * DAY_MS / 1000)
        elif roll < 0.136:
            self._restart()
        elif roll < 0.16:
            self._admin()
        else:
            client = self.dice.choice(self.clients)
            if client.sleeps_until <= self.now:
                self._act(client)

    def _pass(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.coordinator.due()) is not None and due <= end:
            self._move_to(max(self.now, due))
            self._carry_out(self.coordinator.lapse(self.now, self.wall_ms), None)
        self._move_to(end)

    def _move_to(self, instant: float) -> None:
        self.wall_ms += round((instant - self.now) * 1000)
        self.now = Instant(instant)

    def _restart(self) -> None:
        self.checker.compare_offsets(self.coordinator)
        self.coordinator = self._started()
        for client in self.waiting.values():
            client.token, client.mood = None, "out"
        self.waiting.clear()
        self.checker.restarted(self.coordinator)

    def _started(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(self.settings)
        for key, value in self.log.items():
            coordinator.replay_stored(key, value)
        if self.dice.random() < 0.5:  # From a snapshot of that instead.
            loaded, coordinator = coordinator, GroupCoordinator(self.settings)
            for record in loaded.snapshot():
                coordinator.replay(records.decode(*records.encode(record)))
        coordinator.begin(self.now)
        return coordinator

    def _admin(self) -> None:
        group = self.dice.choice(GROUPS)
        partitions = tuple((self.dice.choice(TOPICS), self.dice.randrange(3)) for _ in range(2))
        instances = [client.instance for client in self.clients if client.group == group and client.instance]
        match self.dice.randrange(5):
            case 0:
                self._ask(commands.DeleteGroup(token=self._token(), group=group), None)
            case 1:
                self._ask(commands.DeleteOffsets(token=self._token(), group=group, partitions=partitions), None)
            case 2:
                self._ask(commands.ForgetTopic(token=self._token(), topic=self.dice.choice(TOPICS)), None)
            case 3:
                self._ask(commands.CommitOffsets(token=self._token(), group=group, offsets=self._new_offsets()), None)
            case _ if instances:
                leaving = commands.Leaving("", self.dice.choice(instances))
                self._ask(commands.LeaveGroup(token=self._token(), group=group, members=(leaving,)), None)

    def _carry_out(self, decision: Decision, cause: commands.Command | None) -> None:
        if decision.records and self.dice.random() < 0.03:
            self.checker.dropped(decision)
            for token, _ in decision.replies:
                client = self.waiting.pop(token, None)
                if client is not None:
                    client.token, client.mood = None, "out"
            return
        for record in decision.records:
            key, value = records.encode(record)
            self.log[key] = value
            self.coordinator.replay(records.decode(key, value))
        self.checker.carried_out(decision, cause, self.now, self.wall_ms)
        self.checker.compare_offsets(self.coordinator)
        for token, reply in decision.replies:
            client = self.waiting.pop(token, None)
            if client is not None and client.token == token:
                client.token = None
                self._hear(client, reply)

    # The clients' moves

    def _client(self, number: int) -> Client:
        instance = f"i{number // 2}" if self.dice.random() < 0.4 else None  # Some instance ids have two holders.
        return Client(self.dice.choice(GROUPS[: 1 + number % 3]), instance, self.dice.choice((3, 8, 9)), offer=self.dice.choice(OFFERS))

    def _act(self, client: Client) -> None:
        roll = self.dice.random()
        if client.token is not None:
            if roll < 0.05:
                self._hang_up(client)
            elif roll < 0.08:
                self._join(client)
            return
        if roll < 0.03:
            self._crash(client)
        elif roll < 0.06 and client.member_id:
            self._leave(client)
        elif roll < 0.10:
            self._say_something_wrong(client)
        elif client.mood == "out":
            self._join(client)
        elif client.mood == "joined" and roll < 0.9:
            self._sync(client)
        elif roll < 0.13:
            client.offer = self.dice.choice(OFFERS)
            self._join(client)
        elif roll < 0.5:
            self._beat(client)
        else:
            self._commit(client)

    def _join(self, client: Client) -> None:
        version = client.version if client.instance is None or client.version > 4 else 5
        timeouts = self.dice.choice(((6_000, 10_000), (10_000, 60_000), (30_000, 300_000), (6_000, 400_000)))
        token = self._token()
        command = commands.JoinGroup(
            token=token, group=client.group, member_id=client.member_id, fresh_member_id=f"m{token}", instance_id=client.instance,
            client_id="c", client_host="h", session_timeout_ms=timeouts[0], rebalance_timeout_ms=timeouts[1], protocol_type="consumer",
            protocols=client.offer, needs_known_member_id=version >= 4, can_skip_assignment=version >= 9,
        )  # fmt: skip
        self._ask(command, client)

    def _sync(self, client: Client, **wrong: int) -> None:
        token = self._token()
        assignments = tuple((peer, f"{token}/{peer}".encode()) for peer in client.peers)
        command = commands.SyncGroup(
            token=token, group=client.group, generation=client.generation, member_id=client.member_id, instance_id=client.instance,
            protocol_type=None, protocol_name=None, assignments=assignments,
        )  # fmt: skip
        self._ask(replace(command, **wrong), client)

    def _beat(self, client: Client, **wrong: int) -> None:
        command = commands.Heartbeat(
            token=self._token(), group=client.group, generation=client.generation, member_id=client.member_id, instance_id=client.instance
        )
        self._ask(replace(command, **wrong), client)

    def _commit(self, client: Client, **wrong: int) -> None:
        command = commands.CommitOffsets(
            token=self._token(), group=client.group, generation=client.generation, member_id=client.member_id,
            instance_id=client.instance, offsets=self._new_offsets(),
        )  # fmt: skip
        self._ask(replace(command, **wrong), client)

    def _leave(self, client: Client) -> None:
        leaving = commands.Leaving(client.member_id, client.instance)
        client.member_id, client.mood = "", "out"
        self._ask(commands.LeaveGroup(token=self._token(), group=client.group, members=(leaving,)), None)

    def _say_something_wrong(self, client: Client) -> None:
        wrong = {"generation": client.generation + self.dice.choice((-2, -1, 1))}
        self.dice.choice((self._beat, self._commit, self._sync))(client, **wrong)

    def _hang_up(self, client: Client) -> None:
        token, client.token, client.mood = client.token, None, "out"
        if token is not None:
            self.waiting.pop(token, None)
            command = commands.Abandoned(token)
            self.checker.asked(command, self.now)
            self._carry_out(self.coordinator.decide(command, self.now, self.wall_ms), command)

    def _crash(self, client: Client) -> None:
        if self.dice.random() < 0.7:
            client.member_id = ""  # Otherwise only its connection broke.
        client.mood, client.generation = "out", -1
        client.sleeps_until = self.now + self.dice.choice((0, 0, 5, 40))

    def _hear(self, client: Client, reply: replies.Reply) -> None:
        match reply:
            case replies.JoinReply(error=ErrorCode.NONE):
                client.member_id, client.generation, client.mood = reply.member_id, reply.generation, "joined"
                client.peers = () if reply.skip_assignment else tuple(member.member_id for member in reply.members)
            case replies.JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = reply.member_id
            case replies.SyncReply(error=ErrorCode.NONE):
                client.mood = "working"
            case replies.JoinReply() | replies.SyncReply() | replies.HeartbeatReply():
                self._take_refusal(client, reply.error)
            case replies.CommitReply():
                self._take_refusal(client, reply.offsets[0][2])

    def _take_refusal(self, client: Client, error: ErrorCode) -> None:
        match error:
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_INSTANCE_ID | ErrorCode.GROUP_ID_NOT_FOUND:
                client.member_id, client.mood = "", "out"
            case ErrorCode.ILLEGAL_GENERATION | ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.GROUP_MAX_SIZE_REACHED:
                client.mood = "out"
            case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                client.offer = self.dice.choice(OFFERS)

    def _new_offsets(self) -> tuple[commands.NewOffset, ...]:
        return tuple(
            commands.NewOffset(self.dice.choice(TOPICS), self.dice.randrange(3), self.dice.randrange(1_000), metadata=metadata)
            for metadata in self.dice.choices(("", "x" * 5, "x" * 5_000), k=self.dice.randrange(1, 3))
        )

    def _ask(self, command: commands.Command, client: Client | None) -> None:
        self.checker.asked(command, self.now)
        if client is not None:
            client.token = command.token
            self.waiting[command.token] = client
        self._carry_out(self.coordinator.decide(command, self.now, self.wall_ms), command)

    def _token(self) -> int:
        self.tokens += 1
        return self.tokens
