"""A seeded walk of many members of the new protocol, watched at every step.

Members do what clients do, and what they do on bad days: they miss answers, dawdle over what they are to give up, stop without a word, come
back as another. Topics come, grow and go; the node restarts, its disk is full for a while. What is watched:
- a partition that a living member works on is its own at the coordinator, and no partition is two members';
- what is taken from a member is not in its target; epochs only grow, and nobody is ahead of the assignment;
- nobody may dawdle for longer than its rebalance time-out;
- a restart changes nothing that is recorded;
- at rest everything that is read is shared out, evenly.
"""

import random
from contextlib import suppress
from itertools import count

from groups.consumer.company import NONE, Client, Company

from penstock.errors import ErrorCode
from penstock.groups.consumer.partitions import NOTHING, each, is_within, joined, overlap
from penstock.groups.consumer.records import LEFT_FOR_NOW, ConsumerGroupGone, ConsumerGroupSaved, CurrentAssigned, MemberState
from penstock.groups.draft import Decision
from penstock.groups.records import encode
from penstock.groups.states import GroupState

REBALANCE_SECONDS = 20
FULL_SECONDS = 11  # For so long nothing can be stored at times, and then it is tried again.
TOPICS = ("t", "u", "logs-a", "logs-b")
FATAL = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND)


class Violation(Exception):
    pass


def must(claim: bool, otherwise: str) -> None:
    if not claim:
        raise Violation(otherwise)


class Watched(Company):
    """The company, with an eye on every record."""

    def __init__(self, interval_ms: int) -> None:
        self.epochs = (0, 0)
        self.dawdling_since: dict[str, tuple[CurrentAssigned, float]] = {}
        self.seen: dict[str, int] = {}
        super().__init__(
            {"t": 3, "u": 2}, group_consumer_assignment_interval_ms=interval_ms, group_consumer_session_timeout_ms=15_000,
            group_consumer_max_size=6,
        )  # fmt: skip

    def _carry_out(self, decision: Decision) -> None:
        super()._carry_out(decision)
        if decision.records and self.is_disk_full:
            self.saw("dropped decisions")
            return
        for record in decision.records:
            self._recorded(record)
        self.look()

    def saw(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    def _recorded(self, record: object) -> None:
        group = self.coordinator._image.consumers.groups.get("g")
        if isinstance(record, ConsumerGroupGone):
            self.epochs = (0, 0)
        elif isinstance(record, ConsumerGroupSaved):
            now = (record.epoch, record.assignment_epoch)
            must(now >= self.epochs and now[1] >= self.epochs[1], f"{now} follows {self.epochs}")
            must(now[1] <= now[0], "an assignment is ahead of its group")
            self.epochs = now
            self.saw("epochs")
        elif isinstance(record, CurrentAssigned) and group is not None:
            must(record.epoch <= self.epochs[1], f"{record.member_id} is in epoch {record.epoch}, the assignment in {self.epochs[1]}")
            is_meant = overlap(record.revoking, group.target(record.member_id)) and not group.is_to_be_assigned  # Unless it reads less now.
            must(not is_meant, f"{record.member_id} must give up what it shall have")
            self.saw(record.state.name)

    def look(self) -> None:
        """What must hold whenever nothing is half done."""
        group = self.coordinator._image.consumers.groups.get("g")
        if group is None:
            return
        owners: dict[object, str] = {}
        for member_id, current in group.currents.items():
            must(member_id in group.members, f"{member_id} has something and is no member")
            for place in each(joined(current.assigned, current.revoking)):
                must(place not in owners, f"{place} is {member_id}'s and {owners.get(place)}'s")
                owners[place] = member_id
        must(group.currents.keys() == group.members.keys() >= group.targets.keys(), "records of a member are missing, or left behind")
        session = self.coordinator._sessions.consumers["g"] if group.members else None
        due = self.coordinator.due()
        if session is not None:
            must(session.heard_by.keys() >= group.members.keys(), "somebody may be silent for ever")
            must(due is not None and due <= session.earliest(), "nobody is woken for the next deadline")
        self._look_at_dawdlers(group.currents)

    def _look_at_dawdlers(self, currents: dict[str, CurrentAssigned]) -> None:
        before, self.dawdling_since = self.dawdling_since, {}
        for name, current in currents.items():
            if current.state is MemberState.UNREVOKED:
                known, since = before.get(name, (None, self.now))
                self.dawdling_since[name] = (current, since if known == current else self.now)
                must(self.now - self.dawdling_since[name][1] <= REBALANCE_SECONDS + FULL_SECONDS, f"{name} gives nothing up, for too long")

    def restart(self) -> None:
        before = _told(self)
        super().restart()
        must(_told(self) == before, "a restart has changed what is recorded")
        self.dawdling_since.clear()
        self.saw("restarts")


class Walk:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.company = Watched(self.dice.choice([0, 0, 1_000]))
        self.clients: list[Client] = []
        self._names = count(1)
        self._lives = count(1)
        self.slow: list[Client] = []  # Who gives nothing up until all is over.

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
            self._watch_clients()
        self._rest()

    def _step(self) -> None:
        what = self.dice.choices(
            ["beat", "come", "leave", "stop", "miss", "dawdle", "wait", "topic", "restart", "static", "again", "disk", "reads"],
            [40, 8, 3, 2, 6, 8, 10, 4, 2, 3, 2, 1, 4],
        )[0]
        getattr(self, f"_{what}")()

    def _some(self) -> Client | None:
        return self.dice.choice(self.clients) if self.clients else None

    def _beat(self) -> None:
        client = self._some()
        self._told(client, obeys=client not in self.slow)

    def _dawdle(self) -> None:
        self._told(self._some(), obeys=False)

    def _told(self, client: Client | None, *, obeys: bool) -> None:
        if client is not None:
            code = client.beat(obeys=obeys)
            self.company.saw(f"beats {code.name}")
            if code in FATAL:
                self._drop(client)
                if self.dice.random() < 0.5 and client.instance is None:
                    client.owned = client.told = NOTHING
                    if client.join() is NONE:
                        self.clients.append(client)
                        self.company.saw("came again under its id")

    def _miss(self) -> None:
        """The answer to this one gets lost."""
        client = self._some()
        if client is not None:
            company = self.company
            company.say(client.member_id, client.epoch, group="g", instance_id=client.instance, owned=client.owned)
            company.saw("answers missed")

    def _come(self) -> None:
        said = self.dice.choice([{}, {}, {"assignor": "range"}, {"regex": "logs-.*"}])
        topics = self.dice.choice([("t",), ("t",), ("t", "u"), ("u",)])
        client = Client(self.company, f"m{next(self._names)}", topics, rebalance_timeout_ms=REBALANCE_SECONDS * 1_000, **said)
        code = client.join()
        self.company.saw(f"joins {code.name}")
        if code is NONE:
            self.clients.append(client)
            self.slow += [client] if self.dice.random() < 0.2 else []

    def _again(self) -> None:
        """One joins again although nobody asked it to: it has forgotten everything."""
        client = self._some()
        if client is not None:
            client.owned = client.told = NOTHING
            if client.join() is not NONE:
                self._drop(client)

    def _static(self) -> None:
        """A static member comes; or it steps out and comes back as another; or one claims a place that is taken."""
        holders = [client for client in self.clients if client.instance == "s"]
        if holders and self.dice.random() < 0.7:
            holders[0].leave(LEFT_FOR_NOW)
            self._drop(holders[0])
            self.company.saw("static ones stepped out")
        client = Client(self.company, f"m{next(self._names)}", ("t",), instance="s", rebalance_timeout_ms=REBALANCE_SECONDS * 1_000)
        code = client.join()
        self.company.saw(f"static joins {code.name}")
        if code is NONE:
            self.clients = [one for one in self.clients if one.instance != "s"] + [client]

    def _leave(self) -> None:
        client = self._some()
        if client is not None:
            client.leave()
            self._drop(client)

    def _stop(self) -> None:
        client = self._some()
        if client is not None:
            self._drop(client)

    def _wait(self) -> None:
        self.company.wait(self.dice.choice([0.3, 1, 4, 9]))

    def _topic(self) -> None:
        name, shapes = self.dice.choice(TOPICS), self.company.topics.shapes
        if name not in shapes:
            self.company.make(name, self.dice.randint(1, 4), life=next(self._lives))
        elif self.dice.random() < 0.6:
            self.company.make(name, shapes[name].partition_count + self.dice.randint(1, 2), life=_life_of(self.company, name))
        else:
            self.company.delete(name)

    def _reads(self) -> None:
        client = self._some()
        if client is not None:
            topics = self.dice.choice([("t",), ("u",), ("t", "u")])
            client.said["topics"] = topics
            reply = self.company.say(client.member_id, client.epoch, instance_id=client.instance, topics=topics, owned=client.owned)
            client._hear(reply)
            if reply.error in FATAL:
                self._drop(client)

    def _restart(self) -> None:
        self.company.restart()

    def _disk(self) -> None:
        """Nothing can be stored for a while: nobody is answered whose request would have stored something."""
        self.company.is_disk_full = True
        client = self._some()
        if client is not None:
            with suppress(KeyError):
                client.beat(obeys=False)
        self.company.wait(self.dice.choice([0.1, 5]))
        self.company.is_disk_full = False

    def _drop(self, client: Client) -> None:
        self.clients = [one for one in self.clients if one is not client]

    def _watch_clients(self) -> None:
        """Whoever is a member, and knows it, works on nothing that the coordinator might have given to another."""
        group = self.company.coordinator._image.consumers.groups.get("g")
        for client in self.clients:
            current = None if group is None else group.currents.get(client.member_id)
            if current is not None and client.epoch in (current.epoch, current.previous_epoch):
                its_own = joined(current.assigned, current.revoking)
                must(is_within(client.owned, its_own), f"{client.member_id} works on {client.owned}, of which it has {its_own}")

    def _rest(self) -> None:
        """The world is quiet again: everybody beats and obeys. Then nothing happens but to a topic."""
        self._settle(rounds=12)
        self._topic()
        self._settle(rounds=6)

    def _settle(self, rounds: int) -> None:
        for _ in range(rounds):
            self.company.wait(4)
            for client in list(self.clients):
                if client.beat() in FATAL:
                    self._drop(client)
            self._watch_clients()
        if not self.clients:
            return
        group = self.company.coordinator._image.consumers.groups["g"]
        must(group.state is GroupState.STABLE, f"the group is {group.state} at rest")
        read = self._read()
        worked_on = sorted(place for client in self.clients for place in each(client.owned))
        must(worked_on == read, f"{worked_on} is worked on, {read} is read")
        if len({(tuple(client.said["topics"]), client.said.get("regex")) for client in self.clients}) == 1:
            loads = [len(client.has) for client in self.clients]
            is_uniform = self.company.view().assignor == "uniform"
            must(not is_uniform or max(loads) - min(loads) <= 1, f"shares of {loads}")
        self.company.saw("rests")

    def _read(self) -> list[tuple[bytes, int]]:
        read = set()
        for shape in self.company.topics.shapes.values():
            is_matched = shape.name.startswith("logs-")
            for client in self.clients:
                if shape.name in client.said["topics"] or (is_matched and client.said.get("regex")):
                    read |= {(shape.topic_id, number) for number in range(shape.partition_count)}
        return sorted(read)


def _life_of(company: Company, name: str) -> int:
    return int(company.topics.shapes[name].topic_id.split(b"/")[1].rstrip(b"."))


def _told(company: Company) -> list[tuple[bytes, bytes | None]]:
    return sorted(encode(record) for record in company.coordinator.snapshot())
