"""What the ledger says of a sink: who may write, and which batch it committed last. Pure: records in and out, nothing is sent here.

Two kinds of record, both replaced by the next of their kind, so that compaction keeps a few hundred bytes for each sink:

| key | value | meaning |
|---|---|---|
| `["run", sink]` | run, runs before it | from here on only this run commits batches |
| `["batch", sink, batch]` | run, query, winners, rows | the batch is committed: the transactions of the winners count, whoever ends them |
| `["batch", sink, batch]` | none | that one is superseded, or was given up for lost |

The commit of a batch and the tombstone of the one before are one batch of records, so that they come together.
Who may write is kept by the partition's leader, not by readers: a run appends under the producer id and epoch that it took the ledger with
(`Token`), and a leader that has seen a higher epoch refuses a lower one. The sequence does the rest: a record is stored once, and only
directly after the one that its writer knew. So whatever a reader finds is valid. One check is left to readers: a producer id whose epochs
are used up is replaced by another, which no leader can compare; then a commit counts only under the name of the last run.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from penstock.pipeline.sink.failures import SinkFailure
from penstock.wire.batches import BatchHeader, Record

FORMAT = 1
RETIRED_MAX = 16  # Runs that are remembered as over: a task that is left of one of them must not take the ledger back.


class Token(NamedTuple):
    """The right to append the next record for a sink."""

    producer_id: int
    epoch: int
    sequence: int
    offset: int  # Of the record that it follows: of two tokens the later one counts.


@dataclass(frozen=True, slots=True)
class Winner:
    """A transaction that counts. Where one of its records lies tells its fate when its coordinator no longer can."""

    transactional_id: str
    producer_id: int
    epoch: int
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Begun:
    sink: str
    run: str
    retired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    sink: str
    batch: int
    run: str
    query: str  # The query whose checkpoint counts the batches; empty for a batch write.
    winners: tuple[Winner, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class SinkState:
    """What the ledger says of one sink, as far as it was read."""

    begun: Begun | None = None
    token: Token | None = None
    last: Committed | None = None

    @property
    def run(self) -> str | None:
        return self.begun.run if self.begun else None

    def next_run(self, sink: str, run: str) -> Begun:
        before = () if self.begun is None else tuple(one for one in (self.begun.run, *self.begun.retired) if one != run)
        return Begun(sink, run, before[:RETIRED_MAX])

    def is_over(self, run: str) -> bool:
        return self.begun is not None and run in self.begun.retired


NOTHING = SinkState()


def begun_record(begun: Begun, wall_ms: int) -> Record:
    return Record(_key("run", begun.sink), _value({"run": begun.run, "retired": begun.retired}), timestamp_ms=wall_ms)


def committed_records(committed: Committed, last_batch: int | None, wall_ms: int) -> list[Record]:
    """The commit of a batch, after the tombstone of the last one."""
    records = [] if last_batch in (None, committed.batch) else [forgotten_record(committed.sink, last_batch, wall_ms)]
    content = {name: part for name, part in asdict(committed).items() if name not in ("sink", "batch")}
    return [*records, Record(_key("batch", committed.sink, committed.batch), _value(content), timestamp_ms=wall_ms)]


def forgotten_record(sink: str, batch: int, wall_ms: int) -> Record:
    return Record(_key("batch", sink, batch), None, timestamp_ms=wall_ms)


def ended_records(committed: Committed, wall_ms: int) -> list[Record]:
    """Of a write that is never resumed: nothing of it needs to be remembered."""
    return [forgotten_record(committed.sink, committed.batch, wall_ms), Record(_key("run", committed.sink), None, timestamp_ms=wall_ms)]


class Entries:
    """The states of all sinks, changed by what was read."""

    def __init__(self) -> None:
        self.states: dict[str, SinkState] = {}

    def replay(self, header: BatchHeader, records: Iterable[Record]) -> None:
        for record in records:
            key = _read(record.key)
            if isinstance(key, list) and len(key) == 2 and key[0] == "run":
                self._replay_run(str(key[1]), header, record)
            elif isinstance(key, list) and len(key) == 3 and key[0] == "batch":
                self._replay_batch(str(key[1]), int(key[2]), header, record)

    def _replay_run(self, sink: str, header: BatchHeader, record: Record) -> None:
        if record.value is None:
            self.states.pop(sink, None)
            return
        value = _content(record.value)
        state = self.states.get(sink, NOTHING)
        begun = Begun(sink, value["run"], tuple(value["retired"]))
        self.states[sink] = replace(state, begun=begun, token=_token(header))

    def _replay_batch(self, sink: str, batch: int, header: BatchHeader, record: Record) -> None:
        state = self.states.get(sink, NOTHING)
        if state.token is not None:
            if (header.producer_id, header.producer_epoch) != state.token[:2]:
                return  # Of a run that was over, from before the producer id was replaced.
            state = replace(state, token=_token(header))
        if record.value is None:
            last = None if state.last is not None and state.last.batch == batch else state.last
        else:
            last = _committed(sink, batch, _content(record.value))
        self.states[sink] = replace(state, last=last)


def _token(header: BatchHeader) -> Token:
    """Counted from the header, which compaction leaves as it was."""
    after = (header.base_sequence + header.last_offset_delta + 1) % (1 << 31)
    return Token(header.producer_id, header.producer_epoch, after, header.last_offset)


def _committed(sink: str, batch: int, value: dict[str, Any]) -> Committed:
    winners = tuple(Winner(**winner) for winner in value["winners"])
    return Committed(sink, batch, value["run"], value["query"], winners, value["rows"])


def _key(*parts: object) -> bytes:
    return json.dumps(parts, separators=(",", ":")).encode()


def _value(content: dict[str, Any]) -> bytes:
    return json.dumps({"format": FORMAT} | content, separators=(",", ":")).encode()


def _content(data: bytes) -> dict[str, Any]:
    content = _read(data)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else "none"
        raise SinkFailure(
            f"the ledger has a record of format {found}; this version knows {FORMAT}", "upgrade Penstock on every machine of the job"
        )
    return content


def _read(data: bytes | None) -> Any:
    try:
        return json.loads(data or b"null")
    except ValueError:
        return None  # Somebody else's record: nobody's business here.
