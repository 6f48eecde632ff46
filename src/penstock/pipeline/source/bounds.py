"""Where to begin and where to end: a word, offsets, or timestamps, for all partitions or for each.

The forms and their order of preference are those of Spark's Kafka source: one timestamp for all, then timestamps by partition, then
offsets. In offsets by partition -1 stands for the latest and -2 for the earliest. One word is new: `committed` begins where the group is.
Not here: looking up what a bound means today (lookup.py).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.peers.offsets import EARLIEST, LATEST
from penstock.pipeline.options import Options, WrongOption
from penstock.pipeline.source.offsets import BESIDE_OFFSETS
from penstock.vocabulary import TopicPartition

_OFFSETS_LIKE = '{"orders": {"0": 23, "1": -1}}, where -1 is the latest and -2 the earliest'
_TIMESTAMPS_LIKE = '{"orders": {"0": 1767225600000, "1": 1767225600000}}, in milliseconds since 1970'
_NUMBER_MAX = (1 << 63) - 1  # Offsets and timestamps alike.
_PARTITIONS_LIKE = '{"orders": [0, 1], "returns": [0]}'


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The same for all partitions: EARLIEST or LATEST."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record not older, in every partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    timestamps_ms: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Committed:
    """Where the group reads on; the earliest for a partition of which it has committed nothing."""

    group: str


Bound = Everywhere | AtOffsets | AtTimestamp | AtTimestamps | Committed

FROM_EARLIEST = Everywhere(EARLIEST)
TO_LATEST = Everywhere(LATEST)


def read_start(options: Options, *, group: str | None, is_stream: bool) -> Bound:
    """A batch begins at the earliest where nothing is said, a stream at the latest."""
    default = TO_LATEST if is_stream else FROM_EARLIEST
    bound = _read(options, "starting", default, ("earliest", "latest", "committed"), group)
    if not is_stream:
        _refuse(bound, LATEST, "startingOffsets", "a batch that begins at the latest offset would always be empty: begin at an earlier one")
    return bound


def read_end(options: Options) -> Bound:
    bound = _read(options, "ending", TO_LATEST, ("latest",), None)
    _refuse(bound, EARLIEST, "endingOffsets", "a batch that ends at the earliest offset would always be empty: end at a later one")
    return bound


def check_order(start: Bound, end: Bound) -> None:
    """Refuses what can be seen to be wrong before any broker is asked."""
    if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        _compare(start.offsets, end.offsets, "Offsets")
    if isinstance(start, AtTimestamps) and isinstance(end, AtTimestamps):
        _compare(start.timestamps_ms, end.timestamps_ms, "OffsetsByTimestamp")


def read_partitions(name: str, text: str) -> list[TopicPartition]:
    given = _json(name, text, _PARTITIONS_LIKE)
    found = []
    for topic, partitions in given.items():
        if not isinstance(partitions, list) or not all(_is_whole(partition) and partition >= 0 for partition in partitions):
            raise WrongOption(f"{name} is {text!r}", f"write it like {_PARTITIONS_LIKE}")
        found += [TopicPartition(topic, partition) for partition in partitions]
    if not found:
        raise WrongOption(f"{name} names no partition", f"write it like {_PARTITIONS_LIKE}")
    return sorted(dict.fromkeys(found))


def _read(options: Options, side: str, default: Bound, words: tuple[str, ...], group: str | None) -> Bound:
    timestamp = options.text(f"{side}Timestamp", None)
    if timestamp is not None:
        return AtTimestamp(_whole_text(f"{side}Timestamp", timestamp))
    by_timestamp = options.text(f"{side}OffsetsByTimestamp", None)
    if by_timestamp is not None:
        return AtTimestamps(_by_partition(f"{side}OffsetsByTimestamp", by_timestamp, _TIMESTAMPS_LIKE, lowest=0))
    name = f"{side}Offsets"
    given = options.text(name, None)
    if given is None:
        return default
    word = given.strip().lower()
    if word.startswith("{"):
        return AtOffsets(_by_partition(name, given, _OFFSETS_LIKE, lowest=EARLIEST))
    if word == "committed" and word in words:
        if group is None:
            raise WrongOption(f"{name} is committed, but no group is named", "name it in groupId")
        return Committed(group)
    if word in ("earliest", "latest"):  # The wrong one of them is refused in words of its own.
        return Everywhere(EARLIEST if word == "earliest" else LATEST)
    raise WrongOption(f"{name} is {given!r}", f"write {', '.join(words)}, or offsets like {_OFFSETS_LIKE}")


def _refuse(bound: Bound, offset: int, name: str, advice: str) -> None:
    word = "latest" if offset == LATEST else "earliest"
    if bound == Everywhere(offset):
        raise WrongOption(f"{name} is {word} in a batch query", advice)
    if isinstance(bound, AtOffsets):
        for where, given in bound.offsets.items():
            if given == offset:
                raise WrongOption(f"{name} is {word} ({offset}) for {where} in a batch query", advice)


def _compare(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], what: str) -> None:
    for where in sorted(starts.keys() ^ ends.keys()):
        missing, has = ("ending", "starting") if where in starts else ("starting", "ending")
        raise WrongOption(f"{has}{what} names {where}, and {missing}{what} does not", "name the same partitions in both")
    for where, start in starts.items():
        if 0 <= ends[where] < start:
            raise WrongOption(f"{where} would begin at {start} and end at {ends[where]}", "let it end where it begins, or later")


def _by_partition(name: str, text: str, example: str, *, lowest: int) -> dict[TopicPartition, int]:
    found = {}
    for topic, by_partition in _json(name, text, example).items():
        if topic in BESIDE_OFFSETS:  # Offsets copied from a query's progress.
            continue
        if not isinstance(by_partition, dict):
            raise WrongOption(f"{name} is {text!r}", f"write it like {example}")
        for partition, number in by_partition.items():
            if not partition.isdecimal() or not _is_whole(number) or not lowest <= number <= _NUMBER_MAX:
                raise WrongOption(f"{name} has {number!r} for partition {partition!r} of {topic!r}", f"write it like {example}")
            found[TopicPartition(topic, int(partition))] = number
    return dict(sorted(found.items()))


def _json(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise WrongOption(f"{name} is {text!r}", f"write it like {example}")
    return given


def _whole_text(name: str, text: str) -> int:
    if not text.strip().isdecimal() or int(text) > _NUMBER_MAX:
        raise WrongOption(f"{name} is {text!r}", f"write milliseconds since 1970, up to {_NUMBER_MAX}, for example 1767225600000")
    return int(text)


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
