"""What is otherwise with a queue than somebody wants it, in words.

A setting that nobody chose for the queue is as Penstock has it, or else as its nodes were told to have it, which a client does not know:
such a one is named only where nothing else can be what differs.
"""

from collections.abc import Mapping

from penstock.settings import TOPIC_SETTINGS
from penstock.settings.setting import as_text


def differences(has: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """One for each setting. None: it is something else, such as partitions."""
    holds = {name: has.get(name, _usual(name)) for name in wanted}
    unlike = [f"{name} is {holds[name]}, not {value}" for name, value in wanted.items() if not _is_same(name, holds[name], value)]
    return unlike or [f"{name} is as the nodes were told, not {value}" for name, value in wanted.items() if name not in has]


def _usual(name: str) -> str:
    return as_text(TOPIC_SETTINGS[name].default) if name in TOPIC_SETTINGS else ""


def _is_same(name: str, one: str, other: str) -> bool:
    """As values: a number can be written in several ways."""
    return one == other or (name in TOPIC_SETTINGS and TOPIC_SETTINGS[name].spelled(one) == TOPIC_SETTINGS[name].spelled(other))
