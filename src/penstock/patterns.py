"""Regular expressions that clients bring: which ones are taken, and whether a name matches one as a whole.

They are RE2's, as at Kafka: no pattern takes longer than its own length times that of the name, whatever it says. Python's engine
backtracks, and a pattern of fifty characters can keep it busy for years. That is why one that looks back at what it matched, or around, is
refused. A pattern is bounded in length, and in memory: one that compiles to more is refused too. Even so the worst that is taken costs a
millisecond or two for a long name; whoever holds one against many names does it in slices.
The engine is imported with the first pattern: a node that sees none starts without it. It is known here alone.
"""

from collections.abc import Callable
from functools import lru_cache

from penstock.errors import ErrorCode, Refusal

PATTERN_LENGTH_MAX = 1_000
ENGINE_BYTES_MAX = 512 * 1024  # Of one pattern: some five thousand of its instructions, and what it has learnt of names.
PATTERNS_KEPT = 100  # Compiled, in the whole process: 50 MB if all were as large as they may be; as people write them, some kilobytes each.


class Pattern:
    """One that is taken."""

    __slots__ = ("_fullmatch",)

    def __init__(self, fullmatch: Callable[[bytes], object]) -> None:
        self._fullmatch = fullmatch

    def matches(self, name: str) -> bool:
        """The name as a whole."""
        return self._fullmatch(name.encode("utf-8", "surrogatepass")) is not None  # The engine takes twice as long over text.


def pattern_of(regex: str) -> Pattern:
    """Raises Refusal for what is no pattern, or is not taken."""
    if len(regex) > PATTERN_LENGTH_MAX:
        reason = f"a pattern may have {PATTERN_LENGTH_MAX} characters, this one has {len(regex)}"
        raise Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, reason)
    made = _made(regex)
    if isinstance(made, str):
        raise Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, f"not a regular expression as RE2 has them: {made}")
    return made


def stored_pattern(regex: str) -> Pattern:
    """One that was taken when it came. Should this engine no longer take it, it matches nothing: what is stored is never refused."""
    try:
        return pattern_of(regex)
    except Refusal:
        return _OF_NOTHING


_OF_NOTHING = Pattern(lambda name: None)


@lru_cache(maxsize=PATTERNS_KEPT)
def _made(regex: str) -> Pattern | str:
    """The pattern, or why it is none: that is kept too, for it may have cost as much."""
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.max_mem = ENGINE_BYTES_MAX
    options.never_capture = True  # Nobody asks for groups, and looking for them takes a slower way.
    options.log_errors = False  # They are told to whoever brought the pattern.
    try:
        return Pattern(re2.compile(regex, options).fullmatch)
    except UnicodeEncodeError:
        return "it contains half a character"
    except re2.error as wrong:
        (reason,) = wrong.args
        return str(reason.decode("utf-8", "replace")) if isinstance(reason, bytes) else str(reason)
    finally:
        re2.purge()  # It would keep patterns of its own accord, beside those that are kept here.
