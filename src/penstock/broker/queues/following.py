"""How a ledger hears of messages: it follows its data partition up to the last stable offset.

It stands among the partition's watchers, so a message is known to the ledger before its sender is told that it is durable. What is in
memory is read at once; what is not, or is much, is read beside everything else, and whoever wants messages waits a little longer.
Plain messages that came through the queue's own doors need not be read again: whoever appends them says so (`appended`), and they are
learned as a run when the last stable offset passes them. That is taken for true only where the ledger knows everything before them, and the
log still begins before them: then they are in no transaction, and nothing that anybody else has written is passed over.
Where the log begins later than the ledger thinks (DeleteRecords, retention), the ledger is told (`Trimmed`).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.broker.patience import Patience
from penstock.broker.queues.scanning import entries_of
from penstock.errors import DiskFailed
from penstock.log.faults import OffsetOutOfRange
from penstock.partition.partition import Partition
from penstock.queues.state import LedgerState, Run
from penstock.settings import KIB
from penstock.vocabulary import Buffer, Offset

if TYPE_CHECKING:
    from penstock.broker.node import Node

READ_BYTES = 256 * KIB
READS_AT_ONCE = 4  # A megabyte of small messages takes some milliseconds.
READ_AGAIN_SECONDS = 1.0  # After a read that has failed.
OWN_RUNS_MAX = 10_000  # Many, if nothing is committed for a while.


class Following:
    def __init__(self, node: "Node", data: Partition, on_news: Callable[[], None], on_trimmed: Callable[[int], None]) -> None:
        self._node = node
        self._data = data
        self._state: LedgerState | None = None
        self._on_news = on_news  # There may be something to be taken.
        self._on_trimmed = on_trimmed  # The log begins there now.
        self._start = 0  # As the ledger knows it.
        self._own: deque[Run] = deque()  # Appended here, and not learned of yet; in order, with gaps where others have written.
        self._life = 0  # Which one it is: the node may lead the partition again before who waits here has looked.
        self._is_reading = False
        self._has_failed = False  # The last read did, and is tried again.
        self._moved = asyncio.Event()  # The watermark did, or the leadership.
        self._has_read = asyncio.Event()

    async def catch_up(self, state: LedgerState) -> int | None:
        """Teaches a state that is being loaded all that there is now: all that an earlier leader may have lent. Returns how many bytes it
        has read for that; None: nobody needs the state any more. Raises DiskFailed."""
        patience, data, read_bytes, life = Patience(self._node.env), self._data, 0, self._life
        data.watchers[self] = None
        while data.leader is not None and not data.is_deleted and self._life == life:
            self._moved.clear()
            while self._is_behind(state):
                content = await self._read_later(state)
                if content is not None:
                    self._learn(state, content)
                    read_bytes += len(content)
                await patience.pause_if_over()
            if data.leader is None or data.leader.may_tell_end:
                break
            await self._moved.wait()
        return read_bytes if self._life == life else None

    def begin(self, state: LedgerState) -> None:
        """The state answers from now on."""
        self._state = state
        self._data.watchers[self] = None
        self.advanced(self._data, 0)

    def end(self) -> None:
        self._life += 1
        self._state = None
        self._start = 0
        self._own.clear()
        self._moved.set()
        self._has_read.set()
        self._data.watchers.pop(self, None)

    def appended(self, start: int, end: int, written_ms: int) -> None:
        """Plain messages of no transaction were appended, and all of them have this time."""
        if self._state is None:
            return
        own = self._own
        if own and own[-1].end == start and own[-1].written_ms == written_ms:
            own[-1] = Run(own[-1].start, end, written_ms)
        elif len(own) < OWN_RUNS_MAX:
            own.append(Run(start, end, written_ms))  # Otherwise they are read, like anybody else's.

    def advanced(self, partition: Partition, grown_bytes: int) -> None:
        state = self._state
        self._moved.set()
        if state is None or partition.is_deleted or partition.leader is None:
            return
        if partition.log.start_offset > self._start:
            self.look_at_start()
        end_offset = partition.last_stable_offset
        if self._is_reading or state.learned_end >= end_offset:
            return
        if self._own and self._learn_own(state, end_offset):
            self._on_news()
            return
        for _ in range(READS_AT_ONCE):
            content = self._read_now(state)
            if content is None:
                break
            self._learn(state, content)
            if not self._is_behind(state):
                self._on_news()
                return
        self._is_reading = True
        self._node.spawn(self._read_on(state))

    async def learned_all(self) -> bool:
        """Waits until the ledger knows of everything that is stable now. False: some of that cannot be read now."""
        state, end_offset = self._state, self._data.last_stable_offset
        while state is not None and state is self._state and state.learned_end < end_offset:
            if self._has_failed or not self._is_reading:
                return False
            self._has_read.clear()
            await self._has_read.wait()
        return True

    def look_at_start(self) -> None:
        """Retention tells nobody."""
        start = int(self._data.log.start_offset)
        if self._state is not None and start > self._start:
            self._start = start
            self._on_trimmed(start)

    async def _read_on(self, state: LedgerState) -> None:
        """A read that has failed may succeed later. Nobody else would try before the next message comes."""
        try:
            while state is self._state and not self._data.is_deleted and self._data.leader is not None and self._is_behind(state):
                try:
                    content = await self._read_later(state)
                except DiskFailed as failure:
                    await self._pause_after(failure)
                    continue
                self._has_failed = False
                if state is self._state and content is not None:
                    self._learn(state, content)
                    self._has_read.set()
                    self._on_news()
        finally:
            self._is_reading = self._has_failed = False
            self._has_read.set()
            if self._state is not None and self._state is not state:  # It was loaded anew meanwhile.
                self.advanced(self._data, 0)

    async def _pause_after(self, failure: DiskFailed) -> None:
        if not self._has_failed:
            self._node.report(f"the messages of {self._data.topic}-{self._data.index} cannot be read: {failure}")
        self._has_failed = True
        self._has_read.set()
        await asyncio.sleep(READ_AGAIN_SECONDS)

    def _learn_own(self, state: LedgerState, end_offset: int) -> bool:
        """Whether that was all there is up to there."""
        own, learned_end = self._own, state.learned_end
        while own and own[0].end <= learned_end:
            own.popleft()  # It was read: something of somebody else's was before it.
        if self._data.log.start_offset > learned_end:
            return False
        while own and own[0].start <= learned_end < end_offset:
            run = own[0]
            if run.end <= end_offset:
                own.popleft()
            else:
                run = Run(run.start, end_offset, run.written_ms)  # A flush has come between the two.
            learned_end = run.end
            state.learn((run,), learned_end)
        return learned_end >= end_offset

    # Reading

    def _is_behind(self, state: LedgerState) -> bool:
        return state.learned_end < self._data.last_stable_offset

    def _read_now(self, state: LedgerState) -> Buffer | None:
        try:
            return self._data.log.read(state.learned_end, bytes_max=READ_BYTES, end_offset=self._data.last_stable_offset)
        except (OffsetOutOfRange, DiskFailed):
            return None  # Read again beside everything else, where there is room to say what is wrong.

    async def _read_later(self, state: LedgerState) -> Buffer | None:
        """None: the queue was rewound meanwhile, and what comes before this is not known any more. It would be taken for nothing."""
        data = self._data
        if state.learned_end < data.log.start_offset:
            state.learn((), int(data.log.start_offset))
        if not self._is_behind(state):
            return b""
        first = state.learned_end
        content: Buffer = b""
        with suppress(OffsetOutOfRange):  # It was trimmed meanwhile.
            content = await data.log.read_later(Offset(first), bytes_max=READ_BYTES, end_offset=data.last_stable_offset)
        return content if state.learned_end == first else None

    def _learn(self, state: LedgerState, content: Buffer) -> None:
        first = state.learned_end
        if not content:
            if self._data.log.start_offset <= first < self._data.last_stable_offset:
                state.learn((), int(self._data.last_stable_offset))  # Compaction took all that was left.
            return
        aborted = self._data.aborted(first, self._data.last_stable_offset) if self._data.has_aborted_after(first) else ()
        entries, end_offset = entries_of(content, first, aborted)
        state.learn(entries, end_offset, self._node.env.wall_ms())
