"""Regular expressions that clients bring: which ones are taken, and what they stand for.

Kafka takes RE2's syntax, which has nothing that could make matching slow. Here Python's engine matches, and it backtracks: so a pattern is
bounded in length, and one that repeats what already repeats, or looks back at what it matched, or looks around, is refused. A pattern must
match a name as a whole. Names are matched when topics come and go, never by a heartbeat. The cluster's own topics are never matched; at
Kafka they would be, and nobody wants them.
"""

import re
from collections.abc import Iterable
from re import _constants as kinds  # type: ignore[attr-defined]  # The one way to see how a pattern is made.
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from penstock.errors import ErrorCode, Refusal

REGEX_LENGTH_MAX = 1_000
_REPEATS = (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT)
_REFUSED = (kinds.GROUPREF, kinds.GROUPREF_EXISTS, kinds.ASSERT, kinds.ASSERT_NOT, kinds.ATOMIC_GROUP)
_FEW = 10  # Repeated so often at most, a part is not unbounded.
_UNBOUNDED_MAX = 3  # In a row: each may try every length of a name's 249 characters, for each length that the one before it tries.


def check_regex(regex: str) -> None:
    """Raises Refusal for a pattern that is none, or that is not taken."""
    if len(regex) > REGEX_LENGTH_MAX:
        raise _refusal(f"a pattern may have {REGEX_LENGTH_MAX} characters, this one has {len(regex)}")
    try:
        tree = parser.parse(regex)
        re.compile(regex)
    except (re.error, OverflowError, RecursionError) as wrong:
        raise _refusal(f"not a regular expression: {wrong}") from None
    if tree.state.flags & (re.VERBOSE | re.LOCALE | re.DEBUG):
        raise _refusal("this pattern sets a flag that is not taken")
    if _unbounded_parts(tree, is_repeated=False) > _UNBOUNDED_MAX:
        raise _refusal(f"a pattern may repeat at most {_UNBOUNDED_MAX} of its parts without bound")


def matching(regex: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that a pattern, once checked, stands for; sorted."""
    pattern = re.compile(regex)
    return tuple(sorted(name for name in names if pattern.fullmatch(name)))


def _unbounded_parts(tree: Iterable[Any], *, is_repeated: bool) -> int:
    """How many parts on one way through the pattern repeat without bound. Raises Refusal for parts that are not taken at all."""
    found = 0
    for kind, content in tree:
        if kind in _REFUSED:
            raise _refusal("a pattern may neither look back at what it matched nor look around")
        if kind in _REPEATS:
            _, most, part = content
            if is_repeated and most > 1:
                raise _refusal("a part that repeats may not be repeated again")
            found += (most > _FEW) + _unbounded_parts(part, is_repeated=is_repeated or most > 1)
        elif kind is kinds.SUBPATTERN:
            found += _unbounded_parts(content[-1], is_repeated=is_repeated)
        elif kind is kinds.BRANCH:
            found += max(_unbounded_parts(branch, is_repeated=is_repeated) for branch in content[1])
    return found


def _refusal(reason: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, reason)
