"""What patterns stand for among the names that there are. Each name is held against a pattern once, however often names come and go.

That can be done ahead, some names at a time (`look`), for there may be ten thousand; `found` does at once whatever is left to be done.
What is remembered of a pattern is a byte for each name; nothing, of those that nobody has asked for in a while.
"""

from collections.abc import Iterable
from itertools import compress

from penstock.patterns import stored_pattern

PATTERNS_MAX = 1_000  # 10 MB, with ten thousand names.
_ANSWERS_MAX = 100  # Of those, whose names stand ready.
_GONE_MAX = 1_000  # Names that are no longer there, before everything is begun anew.


class Matches:
    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, None] = {}  # Those that there are.
        self._seen: dict[str, None] = {}  # Those that there ever were,
        self._in_order: list[str] = []  # and the same as they came.
        self._looked: dict[str, bytearray] = {}  # By pattern: which of those it matches, as far as it was looked. Longest unused first.
        self._answers: dict[str, tuple[str, ...]] = {}  # As long as there are these names.
        self.renew(names)

    def renew(self, names: Iterable[str]) -> None:
        """There are these now, and no others."""
        self._names = dict.fromkeys(names)
        self._answers.clear()
        if len(self._seen) > 2 * len(self._names) + _GONE_MAX:
            self._seen, self._in_order = {}, []
            self._looked.clear()
        come = [name for name in self._names if name not in self._seen]
        self._seen.update(dict.fromkeys(come))
        self._in_order += come

    def look(self, regex: str, names_max: int) -> bool:
        """Holds some more names against a pattern. Whether none is left."""
        looked = self._looked[regex] = self._looked.pop(regex, bytearray())
        if len(self._looked) > PATTERNS_MAX:
            del self._looked[next(iter(self._looked))]
        if len(looked) < len(self._in_order):
            looked += bytes(map(stored_pattern(regex).matches, self._in_order[len(looked) : len(looked) + names_max]))
        return len(looked) == len(self._in_order)

    def found(self, regex: str) -> tuple[str, ...]:
        """The names that a pattern stands for; sorted."""
        answer = self._answers.get(regex)
        if answer is None:
            self.look(regex, len(self._in_order))
            if len(self._answers) >= _ANSWERS_MAX:
                self._answers.clear()
            matched = compress(self._in_order, self._looked[regex])
            answer = self._answers[regex] = tuple(sorted(name for name in matched if name in self._names))
        return answer
