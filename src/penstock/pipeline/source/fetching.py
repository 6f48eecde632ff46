"""One range of one partition, fetched answer by answer; and what is told when it cannot be had.

Rules:
- A leader that moved, or a broker that restarts, is waited for, up to the reader's patience.
- A topic that was deleted is not waited for much longer than it takes a new leader to hear of it. One that was made again is another topic:
  it is never read for the old one.
- A broker that finds its own copy damaged is asked a few times more: another may lead by then.
- An offset that the partition no longer has is looked into: `OutOfRange` says where the partition begins and ends now.
- Something must come: a range whose end was there when it was planned, and from which nothing comes, ends the reader.
Not here: what the answers hold (reading.py).
"""

import asyncio

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import BadAnswer, PeerFailure, Refused, check_code
from penstock.peers.fetch_session import FetchWish
from penstock.peers.fetching import Fetched, FetchLimits, fetch_once
from penstock.peers.offsets import EARLIEST, LATEST
from penstock.peers.patience import Backoff, Deadline
from penstock.pipeline.source.loss import DELETED, REPLACED
from penstock.pipeline.source.options import Fetching
from penstock.pipeline.source.ranges import Range
from penstock.vocabulary import NO_TOPIC_ID, Instant

LANE = "spark-read"
GONE_S = 5.0  # How long a topic may seem to be missing, or a copy damaged, before that is believed.

_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)


class OutOfRange(PeerFailure):
    """The partition does not have the offset, or no longer."""

    def __init__(self, wanted: Range, offset: int, first: int, end: int) -> None:
        super().__init__(f"{wanted.where} has no offset {offset}: it begins at {first} and ends before {end}")
        self.first = first
        self.end = end


class Gone(PeerFailure):
    """The topic of the range is not there any more; `reason` says what became of it."""

    def __init__(self, wanted: Range, reason: str) -> None:
        super().__init__(f"{wanted.where}: {reason}")
        self.reason = reason


class Damaged(PeerFailure):
    """The partition's leader finds that its copy is damaged, and sends nothing of it."""

    def __init__(self, wanted: Range, offset: int) -> None:
        problem = f"{wanted.where}: its leader cannot read the batch at offset {offset}: the bytes do not match their checksum"
        super().__init__(problem, "let another replica lead (penstock cluster elect), or read on behind it with startingOffsets")


async def fetch(client: Client, wanted: Range, offset: int, fetching: Fetching) -> Fetched:
    """The next answer that holds something, from `offset` on. Its first batch may begin below it."""
    router = client.router
    deadline = router.deadline(fetching.patience_s)
    limits = FetchLimits(
        wait_ms=fetching.wait_ms, bytes_min=fetching.bytes_min, bytes_max=fetching.bytes_max, is_committed_only=fetching.is_committed_only
    )
    doubts = _Doubts(client, wanted, offset)

    async def attempt() -> Fetched:
        try:
            row = await _ask(client, wanted, offset, limits, deadline)
            return row
        except PeerFailure as failure:
            router.doubt(wanted.where.topic)
            doubts.note(failure)
            raise

    backoff = Backoff(client.env)
    while True:
        row = await router.retry(f"fetch {wanted.where} from offset {offset}", deadline, attempt)
        if row.records:
            return row
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            first, end = await _range_now(client, wanted)
            if not first <= offset < end:
                raise OutOfRange(wanted, offset, first, end)
            router.doubt(wanted.where.topic)  # Somebody else has it: whoever was asked has fallen behind.
            await asyncio.sleep(backoff.pause_s())
        if deadline.left_s() <= 0:
            problem = f"nothing came of {wanted} for {fetching.patience_s:g} s, from offset {offset} on"
            advice = "look whether the partition's brokers are well; if they lost records, set failOnDataLoss to false and start again"
            raise PeerFailure(problem, advice)


class _Doubts:
    """Answers that are believed only when they have stayed the same for a while."""

    def __init__(self, client: Client, wanted: Range, offset: int) -> None:
        self._client = client
        self._answers: dict[int, PeerFailure] = dict.fromkeys(_MISSING, Gone(wanted, DELETED))
        self._answers[ErrorCode.CORRUPT_MESSAGE] = Damaged(wanted, offset)
        self._since: Instant | None = None

    def note(self, failure: PeerFailure) -> None:
        answer = self._answers.get(failure.code) if isinstance(failure, Refused) else None
        now = self._client.env.now()
        if answer is None or self._since is None:
            self._since = None if answer is None else now
        elif now - self._since >= GONE_S:
            raise answer from failure


async def _ask(client: Client, wanted: Range, offset: int, limits: FetchLimits, deadline: Deadline) -> Fetched:
    router = client.router
    route = await router.leader(wanted.where, deadline, lane=LANE)
    if NO_TOPIC_ID not in (wanted.topic_id, route.topic.topic_id) and route.topic.topic_id != wanted.topic_id:
        raise Gone(wanted, REPLACED)
    wish = FetchWish(wanted.where, route.topic.topic_id, offset, route.partition.leader_epoch, limits.bytes_max)
    timeout_s = router.timeouts(deadline).whole_s + limits.wait_ms / 1_000
    for row in await fetch_once(route.connection, [wish], limits, timeout_s=timeout_s):
        if row.partition == wanted.where:
            if row.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
                check_code(row.error_code, f"fetch {wanted.where} from offset {offset}")
            return row
    raise BadAnswer(f"{route.connection.address} left {wanted.where} out of its answer to a fetch")


async def _range_now(client: Client, wanted: Range) -> tuple[int, int]:
    """Where the partition begins and ends; open transactions count."""
    first = (await client.list_offsets({wanted.where: EARLIEST}))[wanted.where].offset
    end = (await client.list_offsets({wanted.where: LATEST}))[wanted.where].offset
    return first, end
