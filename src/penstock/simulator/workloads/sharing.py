"""Members of a share group on the log of a queue, and what each writes into the diary.

A member goes to some node, opens a session there and fetches; partitions that another node leads give it nothing. It accepts, releases or
rejects what it was given, or leaves without a word. Then it goes elsewhere, under another name.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from penstock.broker.node import Node
from penstock.broker.queues.calls import QueueRefusal
from penstock.errors import ErrorCode, Refusal
from penstock.peers.connection import Address
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import ClientPlan
from penstock.simulator.places import Place
from penstock.simulator.share_diary import ACCEPT, GROUP, REJECT, RELEASE, Session, ShareTold
from penstock.simulator.workloads.line import Line, LineLost, whole_batches
from penstock.simulator.workloads.queue_desk import Desk, Unanswered
from penstock.simulator.workloads.stage import Stage
from penstock.vocabulary import TopicId
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import decode_records

WORDS = (ACCEPT, RELEASE, REJECT)
_CERTAIN = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)  # After any other error nobody knows.
_VERSION = 2
_FETCHES_MAX = 6  # Of one session.
_PIGGYBACK = 0.4  # How many acknowledgements travel with the next fetch.
_LEAVES = 0.1
_EMPTY_WITHIN_SECONDS = 120.0
_ADMIN = "the group's admin"
_FIND_VERSION = 4
_ALTER_SECONDS = 30.0  # Leaders may be looked for.


class _Over(Exception):
    """The session is."""


class Visit:
    """One session of one member at one node."""

    def __init__(self, stage: Stage, env: SimEnv, queue: str, topic_id: TopicId, *, partitions: int, member: str) -> None:
        self._stage = stage
        self._env = env
        self._queue = queue
        self._topic_id = topic_id
        self._partitions = partitions
        self._told = stage.notebook.diary.queues.shares
        self._session = Session(member)
        self._names = {"group_id": GROUP, "member_id": member}
        self._epoch = 0
        self._line: Line | None = None

    async def open(self) -> None:
        """Raises LineLost."""
        address = self._env.rng.choice(self._stage.bootstrap(self._session.member))
        self._line = await Line.open(self._stage.notebook, self._session.member, timeout_seconds=5.0, address=address)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()

    async def fetch(self, said: Sequence[ShareTold] = (), *, wait_ms: int, count: int) -> list[ShareTold]:
        """Raises LineLost or _Over."""
        asked, places = self._env.now(), range(self._partitions)
        rows = [{"partition_index": each, "acknowledgement_batches": _batches(said, each)} for each in places]
        wanted = [row for row in rows if not self._epoch or row["acknowledgement_batches"]]
        details = {
            "max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": count, "batch_size": count,
        }  # fmt: skip
        answer = await self._ask(ApiKey.SHARE_FETCH, wanted, said, details)
        told: list[ShareTold] = []
        for row in (row for topic in answer.responses for row in topic.partitions):
            self._believe(said, row.partition_index, row.acknowledge_error_code)
            self._told.unheard += row.error_code != ErrorCode.NONE  # Its log may have failed after it was decided, and be written anew.
            there = _offsets(row)
            for offset, deliveries in _acquired(row):
                place = Place(self._queue, row.partition_index, offset)
                if offset not in there:
                    self._stage.notebook.find("what a member is given is there", place.where, f"offset {offset} has no record")
                told.append(ShareTold(place, self._session, deliveries, asked, self._env.now()))
        self._told.deliveries += told
        return told

    async def acknowledge(self, said: Sequence[ShareTold]) -> None:
        """Raises LineLost or _Over."""
        places = dict.fromkeys(each.place.partition for each in said)
        rows = [{"partition_index": each, "acknowledgement_batches": _batches(said, each)} for each in places]
        answer = await self._ask(ApiKey.SHARE_ACKNOWLEDGE, rows, said, {})
        for row in (row for topic in answer.responses for row in topic.partitions):
            self._believe(said, row.partition_index, row.error_code)

    async def _ask(self, api: ApiKey, rows: Sequence[dict[str, Any]], said: Sequence[ShareTold], details: dict[str, Any]) -> Any:
        assert self._line is not None
        topics = [{"topic_id": self._topic_id, "partitions": list(rows)}] if rows else []
        for each in said:
            each.said = self._env.now()
        try:
            answer = await self._line.ask(api, _VERSION, {**self._names, "share_session_epoch": self._epoch, "topics": topics, **details})
        except LineLost:
            self._told.unheard += 1
            raise
        if answer.error_code:
            raise _Over
        self._session.heard = self._env.now()
        self._epoch += 1
        return answer

    def _believe(self, said: Sequence[ShareTold], partition: int, code: int) -> None:
        for each in said:
            if each.place.partition == partition:
                each.is_believed, each.ended = (None if code and code not in _CERTAIN else not code), self._env.now()


class Sharing:
    def __init__(self, plan: ClientPlan, stage: Stage, env: SimEnv) -> None:
        assert stage.desk is not None
        self._plan = plan
        self._stage = stage
        self._env = env
        self._desk: Desk = stage.desk
        self._visits = 0

    async def run(self) -> None:
        while not self._stage.is_over:
            await self.visit(self._member)
            await self._stage.breathe(self._env, self._plan.options["pause"])

    async def visit(self, work: Any) -> None:
        """Goes to some node, works there until that ends in one way or another."""
        self._visits += 1
        try:
            topic_id = (await self._desk.ask(self._env, _topic_id(self._plan.topic)))[0]
            member = f"{self._plan.name}.{self._visits}"
            partitions = self._plan.options["partitions"]
            visit = Visit(self._stage, self._env, self._plan.topic, topic_id, partitions=partitions, member=member)
        except (QueueRefusal, Unanswered):
            return
        try:
            await visit.open()
            await work(visit)
        except (LineLost, _Over):
            pass
        finally:
            visit.close()

    async def _member(self, visit: Visit) -> None:
        rng, options, said = self._env.rng, self._plan.options, list[ShareTold]()
        for _ in range(rng.randint(1, _FETCHES_MAX)):
            told = await visit.fetch(said, wait_ms=rng.choice((0, 300, 1_000)), count=options["count"])
            await self._stage.breathe(self._env, options["pause"])
            if rng.random() < _LEAVES or self._stage.is_over:
                return
            for each in told:
                each.word = rng.choices(WORDS, options["words"])[0]
            said = told if rng.random() < _PIGGYBACK else []
            if told and not said:
                await visit.acknowledge(told)
                self._stage.provoke()
        if said:
            await visit.acknowledge(said)


class ShareReckoning(Sharing):
    """When all trouble is over, a group can have everything."""

    async def empty(self) -> None:
        told, queue = self._stage.notebook.diary.queues.shares, self._plan.topic
        until = self._env.now() + _EMPTY_WITHIN_SECONDS
        while self._env.now() < until:
            await self.visit(self._accept_all)
            if await self._lag() == 0:
                told.emptied[queue] = True
                return
        told.emptied[queue] = False

    async def _accept_all(self, visit: Visit) -> None:
        for _ in range(_FETCHES_MAX):
            told = await visit.fetch(wait_ms=500, count=100)
            if not told:
                return
            for each in told:
                each.word = ACCEPT
            await visit.acknowledge(told)

    async def _lag(self) -> int:
        try:
            topic_id, partitions = await self._desk.ask(self._env, _topic_id(self._plan.topic))
            return sum([await self._desk.ask_node(self._env, partial(_lag_of, topic_id, index)) for index in range(partitions)])
        except (QueueRefusal, Unanswered):
            return -1


async def begin_group(stage: Stage, env: SimEnv, queue: str) -> None:
    """Of all that was ever sent to the queue. Raises QueueRefusal or Unanswered."""
    assert stage.desk is not None
    _, partitions = await stage.desk.ask(env, _topic_id(queue))
    starts = [{"partition_index": index, "start_offset": 0} for index in range(partitions)]
    try:
        line = await Line.open(stage.notebook, _ADMIN, address=env.rng.choice(stage.bootstrap(_ADMIN)))
        try:
            asked = await line.ask(ApiKey.FIND_COORDINATOR, _FIND_VERSION, {"key_type": 0, "coordinator_keys": [GROUP]})
        finally:
            line.close()
        await _alter(stage, asked.coordinators[0], [{"topic_name": queue, "partitions": starts}])
    except LineLost as lost:
        raise Unanswered(str(lost)) from None
    stage.notebook.diary.queues.shares.emptied[queue] = False


async def _alter(stage: Stage, found: Any, topics: list[dict[str, Any]]) -> None:
    if found.error_code:
        raise Unanswered("the group has no coordinator yet")
    line = await Line.open(stage.notebook, _ADMIN, timeout_seconds=_ALTER_SECONDS, address=Address(found.host, int(found.port)))
    try:
        answer = await line.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": GROUP, "topics": topics})
    finally:
        line.close()
    codes = [answer.error_code, *(row.error_code for topic in answer.responses for row in topic.partitions)]
    if any(codes):
        raise Unanswered(f"the group was not begun: {codes}")


def _topic_id(queue: str) -> Any:
    async def look(queues: Any) -> tuple[TopicId, int]:
        view = queues.describe(queue)
        return view.topic_id, view.partitions

    return look


async def _lag_of(topic_id: TopicId, index: int, node: Node) -> int:
    return int((await _as_queues(node.shares.standing(topic_id, index, GROUP))).lag)


async def _as_queues(work: Any) -> Any:
    try:
        return await work
    except Refusal as refusal:
        raise Unanswered(refusal.reason) from None


def _batches(said: Sequence[ShareTold], partition: int) -> list[dict[str, Any]]:
    chosen = sorted((each.place.offset, each.word) for each in said if each.place.partition == partition and each.word)
    return [{"first_offset": offset, "last_offset": offset, "acknowledge_types": [word]} for offset, word in chosen]


def _acquired(row: Any) -> list[tuple[int, int]]:
    """Offsets with their delivery counts."""
    return [(offset, each.delivery_count) for each in row.acquired_records for offset in range(each.first_offset, each.last_offset + 1)]


def _offsets(row: Any) -> frozenset[int]:
    batches = whole_batches(bytes(row.records or b""))
    return frozenset(record.offset for _, batch in batches for record in decode_records(batch, bytes_max=1 << 24))
