"""Members of a group under the new protocol that come, go and stall, read what they own, and commit what they have read.

Some leave, some vanish without a word, some doze past their session and then try to commit; some change what they subscribe to. What each
was told goes into the diary. When the play is over they go on until the group is at rest: then everything must have an owner.
"""

import asyncio
from dataclasses import dataclass, field

from penstock.peers.client import Client
from penstock.peers.consumer_member import ConsumerMember, Subscription
from penstock.peers.failures import MemberFenced, PeerFailure
from penstock.peers.fetching import FetchLimits
from penstock.simulator.diary import Outcome
from penstock.simulator.env import SimEnv
from penstock.simulator.membership_diary import Beat, Membership
from penstock.simulator.menu import ClientPlan
from penstock.simulator.workloads.fetching import take_records
from penstock.simulator.workloads.stage import Stage
from penstock.vocabulary import TopicPartition

_LEAVES, _VANISHES, _DOZES, _CHANGES, _COMMITS = 0.02, 0.015, 0.02, 0.02, 0.4
_READ_SECONDS = 0.3
_CALL_SECONDS = 5.0
_REST_SECONDS_MAX = 90.0


@dataclass(slots=True)
class _Life:
    """One membership, from joining to its end."""

    member: ConsumerMember
    told: Membership
    next: dict[TopicPartition, int] = field(default_factory=dict)  # What it owns and knows where to read on.
    leaving: dict[TopicPartition, int] = field(default_factory=dict)  # What it gives back with its next heartbeat.
    silent_since: float | None = None  # Its first heartbeat without an answer, since the last that had one.


class Belonging:
    def __init__(self, plan: ClientPlan, stage: Stage, env: SimEnv) -> None:
        self._plan = plan
        self._options = plan.options
        self._group: str = plan.options["group"]
        self._stage = stage
        self._diary = stage.notebook.diary
        self._env = env
        self._lives = 0

    async def run(self) -> None:
        self._diary.group_readers.setdefault(self._group, []).append(self._plan.name)
        self._stage.at_rest.setdefault(self._group, {})[self._plan.name] = False
        async with self._stage.client(self._env, self._plan.name) as client:
            while not self._stage.is_over:
                await self._live(self._join(client), client)
            await self._rest(self._join(client))

    def _join(self, client: Client) -> _Life:
        self._lives += 1
        member = ConsumerMember(client, self._group, self._draw_subscription(), deadline_s=_CALL_SECONDS)
        return _Life(member, self._note(member))

    def _note(self, member: ConsumerMember) -> Membership:
        """A fenced member that joins anew is noted as another: its epochs begin anew too."""
        name = f"{self._plan.name}.{self._lives} ({member.member_id[:6]})"
        session_ms, rebalance_ms = self._options["session_ms"], self._options["rebalance_ms"]
        told = self._diary.memberships.joins(self._group, name, session_ms=session_ms, rebalance_ms=rebalance_ms)
        told.topics |= dict.fromkeys(self._matching(member.subscription))
        return told

    def _draw_subscription(self) -> Subscription:
        topics = self._options["topics"]
        chosen = [topic for topic in topics if self._env.rng.random() < 0.7] or [self._env.rng.choice(topics)]
        names = {"assignor": self._options["assignor"], "rebalance_timeout_ms": self._options["rebalance_ms"]}
        if self._options["uses_regex"] and self._env.rng.random() < 0.5:
            return Subscription(regex="|".join(chosen), **names)
        return Subscription(chosen, **names)

    def _matching(self, subscription: Subscription) -> list[str]:
        return list(subscription.topics) if subscription.regex is None else subscription.regex.split("|")

    # A life.

    async def _live(self, life: _Life, client: Client) -> None:
        rng = self._env.rng
        while not self._stage.is_over:
            await self._beat(life)
            await self._find_places(life)
            await self._read(life, client)
            if rng.random() < _COMMITS:
                await self._commit(life, life.next)
            if rng.random() < _DOZES:
                await asyncio.sleep(self._options["session_ms"] / 1_000 * rng.uniform(0.8, 2.5))
                await self._commit(life, life.next)
            if rng.random() < _CHANGES:
                life.member.subscription = self._draw_subscription()
                life.told.topics |= dict.fromkeys(self._matching(life.member.subscription))
            if rng.random() < _LEAVES:
                return await self._leave(life)
            if rng.random() < _VANISHES:
                break
            await self._stage.breathe(self._env, self._options["pause"])
        life.told.loses_everything(self._env.now())

    async def _beat(self, life: _Life) -> bool:
        """Whether it was answered, and nothing has changed."""
        if life.leaving and self._env.rng.random() < 0.5:
            await self._commit(life, life.leaving)
        for where in life.leaving:
            life.told.loses(where, self._env.now())
        life.leaving.clear()
        began = self._env.now()
        try:
            change = await life.member.beat()
        except MemberFenced:
            life.told.loses_everything(self._env.now())
            life.next.clear()
            life.silent_since, life.told = None, self._note(life.member)
            return False
        except PeerFailure:
            life.silent_since = began if life.silent_since is None else life.silent_since
            return False
        since, life.silent_since = began if life.silent_since is None else life.silent_since, None
        life.told.beats.append(Beat(since, self._env.now(), life.member.epoch))
        for where in change.revoked:
            life.leaving[where] = life.next.pop(where, -1)
        for where in change.added:
            life.told.gains(where, self._env.now())
        if change:
            self._stage.provoke()
        return not change

    async def _leave(self, life: _Life) -> None:
        life.told.loses_everything(self._env.now())
        try:
            await life.member.leave()
        except PeerFailure:
            return  # Its session ends it.

    # Work.

    async def _find_places(self, life: _Life) -> None:
        """Where the group has come to in what is newly owned."""
        wanted = [where for where in life.member.owned if where not in life.next]
        if not wanted:
            return
        began = self._env.now()
        try:
            found = await life.member.committed(wanted)
        except PeerFailure:
            return  # Asked again after the next heartbeat.
        for where in wanted:
            offset = found.get(where, -1)
            self._diary.found_committed(self._group, where, offset, began=began, ended=self._env.now())
            life.next[where] = max(0, offset)
            self._diary.seek(where, self._plan.name, life.next[where])

    async def _read(self, life: _Life, client: Client) -> None:
        limits = FetchLimits(wait_ms=0, bytes_max=self._env.rng.choice((1, 2_000)))
        for where, offset in list(life.next.items()):
            try:
                row = await client.fetch(where.topic, where.partition, offset, limits=limits, deadline_s=_READ_SECONDS)
            except PeerFailure:
                continue
            life.next[where] = take_records(
                self._stage.notebook, where, self._stage.topics[where.topic], self._plan.name, row.records,
                offset=offset, now=self._env.now(),
            )  # fmt: skip

    async def _commit(self, life: _Life, offsets: dict[TopicPartition, int]) -> None:
        known = {where: offset for where, offset in offsets.items() if offset >= 0}
        attempts = [self._diary.committing(self._group, where, offset, self._env.now()) for where, offset in known.items()]
        if not attempts:
            return
        try:
            await life.member.commit(known)
        except PeerFailure:
            return  # Some may be taken: nobody knows.
        for attempt in attempts:
            attempt.outcome, attempt.ended = Outcome.ACKNOWLEDGED, self._env.now()

    # The end.

    async def _rest(self, life: _Life) -> None:
        """Keeps its membership until nothing has moved for so long that nothing can, for anybody.

        Another coordinator may take over meanwhile, and gives a new session to those who are gone.
        """
        everyone, began = self._stage.at_rest[self._group], self._env.now()
        still_since, enough_seconds = began, (2 * self._options["session_ms"] + self._options["rebalance_ms"]) / 1_000 + 2.0
        while not all(everyone.values()) and self._env.now() - began < _REST_SECONDS_MAX:
            if not await self._beat(life):
                still_since = self._env.now()
            everyone[self._plan.name] = self._env.now() - still_since >= enough_seconds
            patience_ms = min(self._options["session_ms"], self._options["rebalance_ms"])
            await asyncio.sleep(max(0.02, min(life.member.interval_s, patience_ms / 4_000)))
        wanted = [where for topic in self._matching(life.member.subscription) for where in self._stage.partitions(topic)]
        self._diary.memberships.rests_at(self._group, self._plan.name, wanted=wanted, owned=life.member.owned)
        life.told.loses_everything(self._env.now())
