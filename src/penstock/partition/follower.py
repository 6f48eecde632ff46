"""A follower's side of one partition under one leader: what to ask for, and what to make of the answer.

A machine beside a log that it only looks at: `next_fetch` says what to ask for, `answered` what to do, in this order. Rules:
- Logs are made to agree by epochs, never by watermarks (KIP-101): the leader tells where the epoch of our last batch ended there, we cut
  what we have after that, and ask again, until it has nothing to object (KIP-279).
- An answer counts only for what was asked, in this epoch, from this end (KIP-320).
- Before the leader has agreed once, what lies here may be something that it never had: nothing is reported to it as reached.
- The watermark is the leader's, as far as the log goes, and never goes back. The log starts where the leader's does.
Not here: carrying it out (the log, the flush, the link), and when to ask again after a `Wait`.
"""

from typing import NamedTuple, Protocol

from penstock.errors import ErrorCode
from penstock.log.epochs import NO_EPOCH, Epochs
from penstock.partition.in_sync import NOTHING
from penstock.partition.joining import Batch, join
from penstock.partition.leader import AdvanceWatermark
from penstock.vocabulary import Buffer, LeaderEpoch, Offset
from penstock.wire.batches import read_header


class ReplicaLog(Protocol):
    """What this side needs to know of its log."""

    @property
    def start_offset(self) -> Offset: ...

    @property
    def end_offset(self) -> Offset: ...

    @property
    def epochs(self) -> Epochs: ...


class Diverging(NamedTuple):
    """Where, at the leader, the records end of the last epoch that is not after the one asked about."""

    epoch: int
    end_offset: Offset


class Fetch(NamedTuple):
    """What is asked of the leader."""

    epoch: LeaderEpoch  # In which it is believed to lead.
    offset: Offset
    last_epoch: int  # Of the last batch here; `NO_EPOCH` for none.


class Fetched(NamedTuple):
    """What it answers."""

    error_code: int
    high_watermark: Offset
    log_start: Offset
    diverging: Diverging | None
    records: Buffer


class Report(NamedTuple):
    """Everything below the end is durable here, and the log starts there, also after a crash."""

    durable_end: Offset
    start: Offset


NO_REPORT = Report(NOTHING, NOTHING)


class Append(NamedTuple):
    batches: list[Batch]


class Truncate(NamedTuple):
    """Cut off everything from this offset on; if that is below the watermark, what was acknowledged goes, and somebody must be told."""

    offset: Offset
    is_loss: bool


class StartOver(NamedTuple):
    """Nothing here is of use: begin at this offset."""

    offset: Offset


class RaiseStart(NamedTuple):
    offset: Offset


class Wait(NamedTuple):
    """Nothing can be done with this answer. Ask again a little later."""

    reason: str


Step = Append | Truncate | StartOver | RaiseStart | AdvanceWatermark | Wait


def diverging_at(log: ReplicaLog, offset: int, last_epoch: int) -> Diverging | None:
    """The leader's side: where the follower must cut that has this end and this last epoch; None where it agrees."""
    if last_epoch == NO_EPOCH:
        return None
    epoch, end_offset = log.epochs.last_up_to(last_epoch, log.end_offset)
    end_offset = max(end_offset, log.start_offset)
    if epoch == NO_EPOCH:  # Retention took it. What lies after it here is of later epochs.
        epoch = last_epoch
    return Diverging(epoch, Offset(end_offset)) if epoch < last_epoch or end_offset < offset else None


class Follower:
    __slots__ = ("_asks_from", "_log", "_reported", "epoch", "high_watermark", "is_agreed")

    def __init__(self, epoch: LeaderEpoch, log: ReplicaLog, high_watermark: Offset) -> None:
        self.epoch = epoch
        self.high_watermark = high_watermark
        self.is_agreed = False  # All that is here came from this leader, or is what it has too.
        self._log = log
        self._reported = NO_REPORT
        self._asks_from = NOTHING  # A log that begins with a whole batch begins before the leader's does, which answers from its start on.

    def next_fetch(self) -> Fetch:
        return Fetch(self.epoch, max(self._log.end_offset, self._asks_from), self._log.epochs.latest)

    def answered(self, asked: Fetch, answer: Fetched) -> list[Step]:
        """What to do, in this order. The log must be as it was when this was asked; otherwise nothing."""
        if asked != self.next_fetch():
            return []
        self._asks_from = NOTHING
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return [StartOver(answer.log_start)]  # Its log begins after ours ends, or it has lost ours from sight.
        if answer.error_code != ErrorCode.NONE:
            return [Wait(f"the leader answers {_name_of(answer.error_code)}")]
        if answer.diverging is not None:
            self.is_agreed = False
            return [self._cut(answer.diverging)]
        self.is_agreed = True
        return self._take(answer)

    def report(self, durable_end: Offset) -> Report | None:
        """Returns what the leader is to be told, when this much is as durable here as the topic promises; None for nothing new."""
        report = Report(durable_end, self._log.start_offset)
        if not self.is_agreed or report <= self._reported:
            return None
        self._reported = report
        return report

    def report_again(self) -> None:
        """What was reported may have been lost on the way, or forgotten: the next `report` is news whatever it says."""
        self._reported = NO_REPORT

    def _cut(self, diverging: Diverging) -> Step:
        """Where both have the epoch, the shorter one tells. Where only the leader has it, ours ends before it, and it is asked again."""
        _, own_end = self._log.epochs.last_up_to(diverging.epoch, self._log.end_offset)
        offset = Offset(min(own_end, diverging.end_offset))
        if offset >= self._log.end_offset:
            return Wait(f"the leader objects to what it was not asked about: {diverging}")
        return self._truncate(offset)

    def _truncate(self, offset: Offset) -> Step:
        if offset < self._log.start_offset:
            return StartOver(offset)
        return Truncate(offset, is_loss=offset < self.high_watermark)

    def _take(self, answer: Fetched) -> list[Step]:
        log, steps = self._log, list[Step]()
        end_offset = log.end_offset
        if answer.records:
            first_offset = Offset(read_header(answer.records).base_offset)
            if first_offset < end_offset:
                # A batch that begins before our end holds it: the leader starts inside of a batch, or compaction has made two into one.
                if log.start_offset < end_offset:
                    return [self._truncate(max(first_offset, log.start_offset))]
                self._asks_from = end_offset
                return [StartOver(first_offset)]
            joined = join(answer.records, end_offset=end_offset, last_epoch=log.epochs.latest, epoch_max=self.epoch)
            if not joined.batches:
                return [Wait(joined.fault or "the leader sent nothing whole")]
            steps.append(Append(joined.batches))
            end_offset = joined.end_offset
        leaders_start = Offset(min(answer.log_start, end_offset))
        if leaders_start > log.start_offset:
            steps.append(RaiseStart(leaders_start))
        watermark = Offset(min(answer.high_watermark, end_offset))
        if watermark > min(self.high_watermark, log.end_offset):  # Once more, if an append came to nothing.
            self.high_watermark = max(self.high_watermark, watermark)
            steps.append(AdvanceWatermark(watermark))
        return steps


def _name_of(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
