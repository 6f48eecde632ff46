"""The ledgers of one data partition: commands in, records and replies out.

Three things stand side by side. The *facts* are what the companion log records: what is done, who holds what, what has failed and how.
The *index* is derived from facts, from the options of unfinished messages and from the clock: which message is next. A *decision* is what
`decide` and `lapse` return.

Rules for the one who runs it:
- Loading: `restore` the last whole checkpoint, if there is one; `replay_stored` every record since that checkpoint began; `learn` of the
  data log's messages from `learned_end` up to the watermark; then `begin`.
- After that, every decision is carried out before the next is asked for: its records are stored and replayed, then its replies may leave.
- A decision whose records cannot be stored is dropped whole: its tokens are answered with an error and nothing is replayed.
- New messages are learned when the watermark passes them, in order. After a `Rewind` `learned_end` is lower than before: learn again.
- Dead letters are *owed* as soon as the end of the last delivery is replayed. What was owed when the ledger was lost is owed again.
- `lapse` is called when `due` says so; it does a bounded piece, after which `due` may well be in the past.
Not here: disks, clocks, bodies, waiting for messages, moving dead letters.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.queues.commands import Command, Token
from penstock.queues.headers import Traits
from penstock.queues.policy import Policy
from penstock.queues.records import Record
from penstock.queues.replies import Reply
from penstock.queues.states import State
from penstock.queues.views import Counts, LetterOwed, MessageView
from penstock.vocabulary import Instant


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes true, and who hears what of it."""

    records: list[Record]
    replies: list[tuple[Token, Reply]]


class Run(NamedTuple):
    """Plain messages with offsets side by side."""

    start: int
    end: int
    written_ms: int  # The latest of them.


class Marked(NamedTuple):
    """A message with options."""

    offset: int
    traits: Traits


class LedgerState:
    def __init__(self, policy_of: Callable[[str], Policy], chance: Callable[[], float]) -> None:
        """`policy_of` tells how the ledger of a group treats messages now; `chance` is `env.rng.random`, for the jitter of a backoff."""
        self.learned_end = 0  # Every message below this is known.

    # Loading

    def restore(self, pieces: Iterable[bytes]) -> None:
        """The contents of all pieces of a checkpoint, in order."""
        raise NotImplementedError

    def replay(self, record: Record) -> None:
        raise NotImplementedError

    def replay_stored(self, key: bytes, value: bytes | None) -> None:
        raise NotImplementedError

    def learn(self, entries: Sequence[Run | Marked], end_offset: int) -> None:
        """What the data log has from `learned_end` up to `end_offset`, in order; offsets that are not told of hold no message."""
        raise NotImplementedError

    def begin(self, now: Instant, wall_ms: int) -> None:
        """Loading is over."""
        raise NotImplementedError

    def checkpoint(self) -> Iterator[bytes]:
        """The state as it is now, in pieces of at most some hundred KiB; while they are drawn, anything may be replayed and learned."""
        raise NotImplementedError

    # Deciding

    def decide(self, command: Command, now: Instant, wall_ms: int) -> Decision:
        raise NotImplementedError

    def due(self) -> Instant | None:
        """When `lapse` has something to do, at the earliest. None before `begin`, and while nothing is."""
        raise NotImplementedError

    def lapse(self, now: Instant, wall_ms: int) -> Decision:
        raise NotImplementedError

    # Sending

    def dedup(self, key: bytes, wall_ms: int) -> int | None:
        """The offset of the message that has this dedup id already."""
        raise NotImplementedError

    def dedup_key(self, dedup: bytes, group: bytes) -> bytes:
        """By the queue's policy: ids count in the whole queue, or in each group."""
        raise NotImplementedError

    def expect(self, key: bytes, offset: int, wall_ms: int) -> None:
        """A message with this dedup id was appended and will be learned of."""
        raise NotImplementedError

    def unexpect(self, key: bytes, offset: int) -> None:
        """It will not: the append has failed."""
        raise NotImplementedError

    def is_full(self, count: int, *, is_dedup: bool) -> bool:
        """Whether so many more messages are too many for the queue's limit, or for the dedup window."""
        raise NotImplementedError

    # What is owed

    def owed(self) -> Iterator[LetterOwed]:
        """All dead letters that have yet to be moved, those longest due first. Nothing may be replayed meanwhile."""
        raise NotImplementedError

    def newly_owed(self) -> list[LetterOwed]:
        """What has come to be owed since this was last asked; after `begin`, all of it."""
        raise NotImplementedError

    # Reading

    def groups(self) -> list[str]:
        raise NotImplementedError

    def has(self, group: str) -> bool:
        raise NotImplementedError

    def base(self, group: str) -> int:
        """Every message below this is finished."""
        raise NotImplementedError

    @property
    def base_of_all(self) -> int:
        """Every message below this is finished in all groups: the data log may be trimmed to here."""
        raise NotImplementedError

    def ready_at(self, group: str, wall_ms: int) -> int | None:
        """0: something can be taken now. Else the next time at which that may change by the clock alone; None: never."""
        raise NotImplementedError

    def counts(self, group: str, wall_ms: int) -> Counts:
        raise NotImplementedError

    def find(self, group: str, offset: int, wall_ms: int) -> MessageView | None:
        """None: the ledger has not learned of such a message."""
        raise NotImplementedError

    def peek(self, group: str, states: tuple[State, ...], first: int, count: int, wall_ms: int) -> list[MessageView]:
        """Unfinished messages from offset `first` on that are in one of these states."""
        raise NotImplementedError

    @property
    def held_bytes(self) -> int:
        """What all of it takes in memory, about."""
        raise NotImplementedError
