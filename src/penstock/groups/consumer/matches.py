"""What patterns stand for among the names that there are. Each name is held against a pattern once, however often names come and go.

That can be done ahead, some names at a time (`look`), for there may be ten thousand; `found` does at once whatever is left to be done.
Of patterns that nobody has asked for in a while nothing is kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.patterns import stored_pattern

PATTERNS_MAX = 100
_GONE_MAX = 1_000  # Names that are no longer there, before everything is begun anew.


@dataclass(slots=True)
class _Looked:
    at: int = 0  # How many of the names ever seen were held against the pattern.
    found: list[str] = field(default_factory=list)
    answer: tuple[str, ...] = ()
    version: int = -1  # Of the names for which the answer holds.


class Matches:
    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, None] = {}  # Those that there are.
        self._seen: dict[str, None] = {}  # Those that there ever were,
        self._in_order: list[str] = []  # and the same as they came.
        self._version = 0
        self._looked: dict[str, _Looked] = {}  # By pattern; the one longest unused first.
        self.renew(names)

    def renew(self, names: Iterable[str]) -> None:
        """There are these now, and no others."""
        self._names = dict.fromkeys(names)
        self._version += 1
        if len(self._seen) > 2 * len(self._names) + _GONE_MAX:
            self._seen, self._in_order = {}, []
            self._looked.clear()
        come = [name for name in self._names if name not in self._seen]
        self._seen.update(dict.fromkeys(come))
        self._in_order += come

    def look(self, regex: str, names_max: int) -> bool:
        """Holds some more names against a pattern. Whether none is left."""
        return self._look(self._of(regex), regex, names_max)

    def found(self, regex: str) -> tuple[str, ...]:
        """The names that a pattern stands for; sorted."""
        looked = self._of(regex)
        self._look(looked, regex, len(self._in_order))
        if looked.version != self._version:
            looked.answer = tuple(sorted(name for name in looked.found if name in self._names))
            looked.version = self._version
        return looked.answer

    def _of(self, regex: str) -> _Looked:
        looked = self._looked[regex] = self._looked.pop(regex, _Looked())
        if len(self._looked) > PATTERNS_MAX:
            del self._looked[next(iter(self._looked))]
        return looked

    def _look(self, looked: _Looked, regex: str, names_max: int) -> bool:
        if looked.at < len(self._in_order):
            matches = stored_pattern(regex).matches
            names = self._in_order[looked.at : looked.at + names_max]
            looked.found += [name for name in names if matches(name)]
            looked.at += len(names)
        return looked.at == len(self._in_order)
