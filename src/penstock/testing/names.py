"""Settings as Python spells them: `num_partitions=3` is `num.partitions`, `topic_retention_ms=1000` is what topics inherit.

A name that nobody knows is refused with the nearest one that somebody does, before a process is started for it.
"""

from collections.abc import Mapping
from difflib import get_close_matches

from penstock.settings import NODE_SETTINGS, TOPIC_SETTINGS

NODE_NAMES = {name.replace(".", "_"): name for name in NODE_SETTINGS}
TOPIC_NAMES = {name.replace(".", "_"): name for name in TOPIC_SETTINGS}
NAMES = NODE_NAMES | {f"topic_{spelling}": f"topic.{name}" for spelling, name in TOPIC_NAMES.items()}


def node_texts(settings: Mapping[str, object]) -> dict[str, str]:
    return _texts(settings, NAMES, "setting")


def topic_texts(config: Mapping[str, object]) -> dict[str, str]:
    return _texts(config, TOPIC_NAMES, "topic setting")


def _texts(given: Mapping[str, object], names: Mapping[str, str], kind: str) -> dict[str, str]:
    for spelling in given:
        if spelling not in names:
            near = get_close_matches(spelling, list(names), n=1, cutoff=0.6)
            raise TypeError(f"there is no {kind} {spelling!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return {names[spelling]: _as_text(value) for spelling, value in given.items()}


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
