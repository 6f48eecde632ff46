"""The consumer: records in, offsets committed when the caller says so.

At least once, unless told otherwise: nothing is committed by itself, and what was handed out but not committed is delivered again after a
crash or when partitions move. `commit()` means: all that poll() or the loop has handed out so far is done. With `auto_commit=True` asking
for the next records says so, and what is done is committed every few seconds, when partitions move, and on close.

With a `group` its members share the partitions. Without one a consumer reads every partition of its topics by itself, beginning at
`start`, and commits nothing.

In a loop the library gets its turn between records, however slow they are: the group hears that this member is alive, and partitions move
when they must. Records that were fetched and not handed out are dropped when their partition goes: its next owner gets them. One record
of a loop, or all that one poll() gave, must be done within librdkafka's max.poll.interval.ms (five minutes), or the group goes on without.

A consumer belongs to one thread at a time. Not here: asyncio (async_consumer.py), what may be committed (progress.py).
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

from penstock.client.failures import Closed, CommitFailed, ReadFailed, TransactionAborted
from penstock.client.library import common_settings
from penstock.client.options import Assignment, Isolation, Protocol, Start
from penstock.client.progress import Place, Progress
from penstock.client.records import Message
from penstock.client.source import SLICE_SECONDS, Source

MAX_RECORDS = 500  # As Java's max.poll.records.
SERVE_SECONDS = 0.1  # In a loop, the library is asked this often at least: each time where a record takes that long.
NO_GROUP = "penstock-python-without-group"  # librdkafka wants a name even for one who joins nothing.


class Consumer:
    """Use it in `with`, or close() it: then the group hears at once that its partitions are free.

    `bootstrap` falls back to PENSTOCK_BOOTSTRAP, then to 127.0.0.1:9092. `start` is where to begin where the group has committed nothing.
    A member with an `instance` of its own may be restarted within `session_seconds` without its partitions moving. All members of a group
    need the same `assignment`. With `protocol="consumer"` the broker shares the partitions out (KIP-848), and only those that change hands
    pause; `assignment` is then "uniform" or "range", and how long a member may be silent is the broker's to say.
    `isolation="read_uncommitted"` also hands out records of transactions that are still open or were aborted.
    `settings` are librdkafka's own, by its names, and win over ours.
    """

    def __init__(
        self,
        *,
        topics: Sequence[str],
        group: str | None = None,
        bootstrap: str | None = None,
        start: Start = "earliest",
        auto_commit: bool = False,
        instance: str | None = None,
        protocol: Protocol = "classic",
        assignment: Assignment | None = None,
        session_seconds: float = 45.0,
        isolation: Isolation = "read_committed",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        if isinstance(topics, str):
            raise TypeError(f"topics is a list of names: topics=[{topics!r}]")
        ours: dict[str, object] = {
            "group.id": group or NO_GROUP,
            "auto.offset.reset": start,
            "enable.auto.commit": auto_commit and group is not None,
            "enable.auto.offset.store": False,  # What is done, only the caller knows.
            "isolation.level": isolation,
            **_membership(protocol, assignment, session_seconds),
        }
        if instance is not None:
            ours["group.instance.id"] = instance
        self.group = group
        self.topics = list(topics)
        self._start = start
        self._commits_itself = auto_commit and group is not None
        self._progress = Progress()
        self._waiting: deque[Message] = deque()  # Fetched, and not yet handed out.
        self._handing = threading.Lock()  # AsyncConsumer hands out on its loop while a cancelled call still runs in its thread.
        self._has_handed_out = False  # Since the library was last asked.
        self._asked_at = 0.0
        self._is_closed = self._has_begun = False
        self._source = Source(common_settings(bootstrap, ours, settings), self._progress.assign, self._revoked)

    def poll(self, max_records: int = MAX_RECORDS, timeout: float = 1.0) -> list[Message]:
        """The next records, as soon as there are any; an empty list when none came in time."""
        self.fill(max_records, timeout)
        return self.take(max_records)

    def __iter__(self) -> Iterator[Message]:
        """One record after the other, for ever: leave the loop with `break`. Asking for the next one counts as poll()."""
        while not self._is_closed:
            if self.is_due:
                self.fill(MAX_RECORDS, SLICE_SECONDS)
            yield from self.take(1)

    def commit(self, messages: Message | Iterable[Message] | None = None) -> None:
        """Notes in the group that these, and all before them in their partitions, are done; without any: all that was handed out.

        Returns when the group has it; where nobody answers for the group, it gives up after `session_seconds`. What was handed out of
        partitions that were taken away meanwhile is left out: it is delivered again.
        """
        self._must_be_open()
        if self.group is None:
            raise CommitFailed("a consumer without a group has nowhere to commit to", "give it a group=")
        if messages is None:
            offsets = self._progress.owed()
        else:
            offsets = self._progress.after([messages] if isinstance(messages, Message) else messages)
        lost = [place for place in offsets if place not in self._progress.assigned]
        if lost:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in lost)
            problem = f"{names} now belongs to another member of group {self.group!r}"
            raise CommitFailed(problem, "leave it: its records are delivered there again")
        if offsets:
            self._source.commit(offsets, f"group {self.group!r} did not commit")
            self._progress.committed(offsets)

    def rewind(self) -> None:
        """What was handed out and not committed is handed out again, from the next poll() on; of partitions that are still this one's."""
        self._must_be_open()
        for place, offset in self._progress.since().items():
            self._go_to(place, offset)
        self._progress.forgive()

    def seek(self, topic: str, partition: int, offset: int | Literal["earliest", "latest"]) -> None:
        """The next record from this partition will be this one. The partition must be assigned to this consumer."""
        self._begin()
        place = (topic, partition)
        if place not in self._progress.assigned:
            problem = f"{topic}-{partition} is not assigned to this consumer"
            raise ReadFailed(problem, "poll() until it is, and look at assignment()", "_STATE")
        if not isinstance(offset, int):
            offset = self._source.ends(place)[0 if offset == "earliest" else 1]
        self._go_to(place, offset)

    def position(self, topic: str, partition: int) -> int | None:
        """The offset of the next record: after what was handed out or sought, or else what the group has committed. None: not known."""
        self._must_be_open()
        known = self._progress.position((topic, partition))
        return known if known is not None or self.group is None else self._source.committed((topic, partition))

    def assignment(self) -> list[Place]:
        """The partitions that this consumer reads now, as (topic, partition). It changes during poll() only."""
        return sorted(self._progress.assigned)

    def close(self) -> None:
        """Leaves the group. Commits nothing, unless it was told to commit by itself."""
        if not self._is_closed:
            self._note_done()
            self._is_closed = True
            self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        if failure is not None:
            self._commits_itself = False  # What the caller was busy with when it failed is not done.
        self.close()

    # For transactions, which commit in another way.

    def must_suit_transactions(self) -> None:
        if self.group is None:
            raise ValueError("a consumer without a group has no offsets to commit in a transaction: give it a group=")
        if self._commits_itself:
            raise ValueError("a consumer that commits by itself cannot commit in a transaction: leave auto_commit out")

    def for_transaction(self) -> tuple[dict[Place, int], object]:
        """What was handed out, as offsets to commit, and who says so in the group. Raises where some of it is another member's by now."""
        self._must_be_open()
        lost = self._progress.lost()
        if lost:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in lost)
            problem = f"{names} went to another member of group {self.group!r} in the middle of a transaction"
            raise TransactionAborted(problem, "try again with what comes next: its records are delivered there", "REBALANCE_IN_PROGRESS")
        return self._progress.owed(), self._source.membership()

    def was_committed(self, offsets: dict[Place, int]) -> None:
        self._progress.committed(offsets)

    # For AsyncConsumer, which fetches in a thread and hands out on its loop: a cancelled poll() loses nothing.

    def fill(self, max_records: int, timeout: float) -> None:
        """Fetches; where something is left from before, it only serves the library, which gives no more than was handed out meanwhile.

        All that was handed out until now counts as done where commits are automatic.
        """
        if max_records < 1:
            raise ValueError(f"max_records must be 1 or more, not {max_records}")
        self._begin()
        self._note_done()
        if not self._waiting:
            for piece in self._source.fetch(max_records, timeout):
                self._keep(piece)
        elif self._has_handed_out:
            self._keep(self._source.serve())
        self._has_handed_out = False
        self._asked_at = time.monotonic()

    def take(self, max_records: int) -> list[Message]:
        """Hands out what was fetched."""
        with self._handing:
            messages = [self._waiting.popleft() for _ in range(min(max_records, len(self._waiting)))]
            for message in messages:
                self._progress.handed(message)
        self._has_handed_out = self._has_handed_out or bool(messages)
        return messages

    @property
    def is_due(self) -> bool:
        """Nothing waits, or the library has waited long enough for its turn."""
        return not self._waiting or time.monotonic() - self._asked_at >= SERVE_SECONDS

    def hurry(self) -> None:
        self._source.hurry()

    def _go_to(self, place: Place, offset: int) -> None:
        if self.group is not None or self._start == "latest":  # What "latest" was when reading began, only the library knows.
            self._source.seek(place, offset)
            self._discard([place])
            self._progress.sought(place, offset)
            return
        # Not the library's own seek: one that comes while it still asks where a partition begins is lost without a word.
        self._progress.sought(place, offset)
        self._discard(self.assignment())
        self._source.read_from({each: self._progress.position(each) for each in self.assignment()}, self._start)

    def _begin(self) -> None:
        self._must_be_open()
        if self._has_begun:
            return
        if self.group is None:
            self._source.take_all(self.topics, self._start)
        else:
            self._source.join(self.topics)
        self._has_begun = True

    def _must_be_open(self) -> None:
        if self._is_closed:
            raise Closed("the consumer is closed", "make another one")

    def _note_done(self) -> None:
        owed = self._progress.owed() if self._commits_itself else {}
        if owed:
            self._source.store(owed)
            self._progress.committed(owed)

    def _keep(self, messages: list[Message]) -> None:
        """What is no longer ours by now is its next owner's to hand out."""
        with self._handing:
            self._waiting.extend(each for each in messages if (each.topic, each.partition) in self._progress.assigned)

    def _revoked(self, places: list[Place]) -> None:
        """What was fetched of them and not handed out belongs to their next owner."""
        self._discard(places)
        with self._handing:
            self._progress.revoke(places)

    def _discard(self, places: list[Place]) -> None:
        with self._handing:
            self._waiting = deque(message for message in self._waiting if (message.topic, message.partition) not in places)


def _membership(protocol: Protocol, assignment: Assignment | None, session_seconds: float) -> dict[str, object]:
    """How the group shares partitions out, in the library's words."""
    if protocol == "classic":
        return {"partition.assignment.strategy": assignment or "cooperative-sticky", "session.timeout.ms": int(session_seconds * 1000)}
    if protocol != "consumer":
        raise ValueError(f"protocol must be 'classic' or 'consumer', not {protocol!r}")
    return {"group.protocol": "consumer", **({"group.remote.assignor": assignment} if assignment else {})}
