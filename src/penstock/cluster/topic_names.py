"""Which names a topic may have: Kafka's rules, so that every tool agrees. Names never become paths; ids do.

Some names are the cluster's own: what stands in those topics is written by nodes and kept for nodes. Among them are the companions of
queues, each named for the topic whose ledger it has; nobody but the controller makes, changes or deletes one (companions.py).
"""

import re

from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import TopicId

NAME_LENGTH_MAX = 249  # Kafka's bound: a name, a dash and a partition number fit a file name there.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
COMPANION_PREFIX = "__queue_ledger."
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal(name: str) -> bool:
    """Whether it is the cluster's own."""
    return name in INTERNAL_TOPICS or is_companion(name)


def is_companion(name: str) -> bool:
    return name.startswith(COMPANION_PREFIX)


def companion_name(topic_id: TopicId) -> str:
    """Of the topic that has the ledger of this one."""
    return COMPANION_PREFIX + topic_id.hex()


def check_topic_name(name: str | None) -> str:
    """The name, if a topic may have it; otherwise a refusal that says why."""
    if not name:
        raise _no("a topic needs a name")
    if name in (".", ".."):
        raise _no(f"a topic cannot be called {name!r}")
    if len(name) > NAME_LENGTH_MAX:
        raise _no(f"the name has {len(name)} characters, {NAME_LENGTH_MAX} are allowed")
    if not _LEGAL.fullmatch(name):
        raise _no(f"{name!r} has a character other than letters, digits, '.', '_' and '-'")
    return name


def _no(reason: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
