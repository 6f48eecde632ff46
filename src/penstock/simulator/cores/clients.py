"""Clients that write unique values through whoever says that it leads, and read through the barrier; and an operator who changes voters."""

from collections.abc import Callable
from random import Random

from penstock.consensus.effects import Answer, Done, Reason, Refused
from penstock.consensus.events import AddVoter, AskBarrier, Order, Propose, RemoveVoter, TransferLeadership
from penstock.simulator.cores.diary import Asked, Result
from penstock.simulator.cores.judging import Violation
from penstock.simulator.cores.plan import Plan
from penstock.simulator.cores.replica import VALUE, SimReplica
from penstock.simulator.cores.world import World
from penstock.vocabulary import NodeId

_RETRY_SECONDS = 0.04
_PATIENCE_SECONDS = (0.05, 0.2, 0.5)


class Clients:
    def __init__(self, world: World, plan: Plan) -> None:
        self.asked: list[Asked] = []
        self.refusals: dict[Reason, int] = {}
        self.changes_done = 0
        self._world, self._plan = world, plan
        self._rng = Random(f"{plan.seed}/clients")
        self._next_value = 1
        self._favourites: dict[int, NodeId] = {}  # Where a client believes the leader to be.
        # How often each one reads, and how often it turns to where it believes the leader to be.
        self._tempers = [(self._rng.choice((0.1, 0.5, 0.95)), self._rng.choice((0.5, 0.9, 1.0))) for _ in range(plan.clients)]
        self._is_over = False
        world.answer = self._answered

    def begin(self) -> None:
        for client in range(self._plan.clients):
            self._world.after(self._rng.random() * 0.2, lambda client=client: self._ask(client))  # type: ignore[misc]
        self._world.after(_RETRY_SECONDS, self._look_for_two)
        if self._plan.operator_seconds:
            self._world.after(self._plan.operator_seconds, self._wish)

    def end(self) -> None:
        self._is_over = True

    def write_last(self) -> Asked | None:
        """One more value, through a leader, if there is one."""
        leader = self._world.leader()
        return None if leader is None else self._write(-1, leader)

    # Clients.

    def _ask(self, client: int) -> None:
        if self._is_over:
            return
        alive = self._world.alive()
        if not alive:
            self._later(client)
            return
        read_share, loyalty = self._tempers[client]
        favourite = self._favourites.get(client) if self._rng.random() < loyalty else None
        replica = next((one for one in alive if one.node == favourite), None) or self._rng.choice(alive)
        put = self._read if self._rng.random() < read_share else self._write
        asked = put(client, replica)
        if asked.result is Result.OPEN:
            self._world.after(self._rng.choice(_PATIENCE_SECONDS), lambda: self._give_up(asked))

    def _read(self, client: int, replica: SimReplica) -> Asked:
        return self._put(replica, Asked(client, None, self._world.now), AskBarrier)

    def _write(self, client: int, replica: SimReplica) -> Asked:
        value, self._next_value = self._next_value, self._next_value + 1
        return self._put(replica, Asked(client, value, self._world.now), lambda token: Propose(token, VALUE.pack(value)))

    def _put(self, replica: SimReplica, asked: Asked, order: Callable[[object], Order]) -> Asked:
        self.asked.append(asked)
        self._world.order(replica, order(asked))
        return asked

    def _answered(self, replica: SimReplica, answer: Answer) -> None:
        asked = answer.token
        if not isinstance(asked, Asked):
            self.changes_done += isinstance(answer.outcome, Done)
            return
        if asked.result is not Result.OPEN:
            if asked.ended != float("inf"):
                raise Violation("each order is answered once", f"{asked} again by {answer}")
            return  # The client has given up; what it wrote stays unknown.
        match answer.outcome:
            case Done(end):
                self._done(asked, end, replica)
            case Refused(reason, leader):
                asked.result, asked.ended = Result.REFUSED, self._world.now
                self.refusals[reason] = self.refusals.get(reason, 0) + 1
                self._believe(asked.client, leader if reason is Reason.NOT_LEADER else replica.node)
            case _:
                asked.result = Result.UNKNOWN
        if asked.client >= 0:
            self._later(asked.client, hurries=isinstance(answer.outcome, Done))

    def _done(self, asked: Asked, end: int, replica: SimReplica) -> None:
        asked.result, asked.ended = Result.DONE, self._world.now
        if replica.applied_end < end:
            raise Violation("what is answered is applied", f"{asked} at {end}, applied up to {replica.applied_end}")
        if asked.value is None:
            asked.read = replica.register
        elif self._world.judge.values.get(VALUE.pack(asked.value)) != end - 1:
            raise Violation("what is acknowledged is committed", f"{asked.value} at {end - 1}")
        else:
            self._world.after(0.000_1, lambda: self._try_others(replica))

    def _look_for_two(self) -> None:
        """While two believe to lead, something new is written through the later one."""
        if not self._is_over:
            self._world.after(_RETRY_SECONDS, self._look_for_two)
            if sum(replica.leads for replica in self._world.replicas) > 1:
                self.write_last()

    def _try_others(self, leader: SimReplica) -> None:
        """Whoever else believes to lead is asked at the worst moment: right after the true leader has promised something new."""
        for replica in self._world.alive():
            if replica is not leader and replica.leads:
                self._read(-1, replica)

    def _give_up(self, asked: Asked) -> None:
        if asked.result is Result.OPEN:
            asked.result = Result.UNKNOWN
            self._believe(asked.client, None)
            self._ask(asked.client)

    def _believe(self, client: int, leader: NodeId | None) -> None:
        """Anybody, if nobody says who leads."""
        self._favourites[client] = leader if leader is not None else self._rng.choice(self._world.replicas).node

    def _later(self, client: int, *, hurries: bool = False) -> None:
        """Soon; a little later if there is no leader yet."""
        think = self._plan.think_seconds if hurries else max(self._plan.think_seconds, _RETRY_SECONDS)
        self._world.after(think * (0.5 + self._rng.random()), lambda: self._ask(client))

    # The operator.

    def _wish(self) -> None:
        if self._is_over:
            return
        self._world.after(self._plan.operator_seconds * (0.5 + self._rng.random()), self._wish)
        leader = self._world.leader()
        if leader is not None:
            order = self._choose_wish(leader)
            if order is not None:
                self._world.order(leader, order)

    def _choose_wish(self, leader: SimReplica) -> Order | None:
        """Lost voters are replaced first; nothing that would take the majority away is wished for meanwhile."""
        assert leader.core is not None
        voters, lost = leader.core.voters, self._world.lost
        gone = [voter for voter in voters.replicas if voter in lost]
        if gone:
            return RemoveVoter("operator", gone[0])
        observers = [one.me for one in self._world.replicas if voters.directory_of(one.node) is None]
        choice = self._rng.random()
        if observers and (choice < 0.5 or len(voters.replicas) < self._plan.voters):
            return AddVoter("operator", self._rng.choice(observers))
        if choice < 0.8 and self._plan.voters + self._plan.spares > 2:
            return RemoveVoter("operator", self._rng.choice(voters.replicas))
        return TransferLeadership("operator", self._rng.choice((None, *(one.node for one in self._world.replicas))))
