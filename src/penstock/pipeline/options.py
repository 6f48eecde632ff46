"""The options of a source or a sink, read as what they should be, and refused by name where they are not.

Spark gives every option as text, and takes their names in any case. A refusal names the option, says what it held, and what is allowed.
Not here: which options there are (source/options.py, sink/options.py, and for the connection brokers.py).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

from penstock.pipeline.complaints import PipelineComplaint

KAFKA = "kafka."  # What stands before the settings of Kafka's clients.

_DURATION = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")  # As Spark writes durations.
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TRUTHS = {"true": True, "false": False}
_NEARLY = 0.85  # How like an option a name must be to be taken for it, misspelled.
_WHOLE_MAX = (1 << 63) - 1

T = TypeVar("T")


class WrongOption(PipelineComplaint):
    """An option that cannot be carried out."""


class Options:
    """Options by name, in any case. Each reader gives the default where the option was not given."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def names(self) -> list[str]:
        """In lower case, sorted."""
        return sorted(self._given)

    def text(self, name: str, default: T) -> str | T:
        return self._given.get(name.lower(), default)

    def flag(self, name: str, default: bool) -> bool:
        given = self._given.get(name.lower())
        if given is None:
            return default
        if given.strip().lower() not in _TRUTHS:
            raise WrongOption(f"{name} is {given!r}", "write true or false")
        return _TRUTHS[given.strip().lower()]

    def whole(self, name: str, default: T, *, low: int = 0, high: int = _WHOLE_MAX) -> int | T:
        given = self._given.get(name.lower())
        if given is None:
            return default
        try:
            number = int(given)
        except ValueError:
            raise WrongOption(f"{name} is {given!r}, not a whole number", f"write one from {low} on") from None
        if not low <= number <= high:
            bound = f"up to {high}" if number > high else f"from {low} on"
            raise WrongOption(f"{name} is {number}", f"write a whole number {bound}")
        return number

    def seconds(self, name: str, default: T) -> float | T:
        """A duration as Spark writes them: 500ms, 15s, 10m, 1h; without a unit, milliseconds."""
        given = self._given.get(name.lower())
        if given is None:
            return default
        match = _DURATION.fullmatch(given.strip().lower())
        if match is None:
            raise WrongOption(f"{name} is {given!r}, not a duration", "write a number and ms, s, m, h or d, for example 15m")
        return int(match[1]) * _SECONDS[match[2] or "ms"]

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        given = self._given.get(name.lower(), default).strip().lower()
        if given not in allowed:
            raise WrongOption(f"{name} is {given!r}", f"write {' or '.join(allowed)}")
        return given

    def refuse_strangers(self, known: Iterable[str], *, of_whom: str, elsewhere: Mapping[str, str]) -> None:
        """Refuses settings of Kafka's clients that nothing here would carry out: ignoring one could cost data.

        `elsewhere` says for some of them what to use instead.
        """
        names = {(KAFKA + name).lower() for name in known}
        for given in self.names():
            if not given.startswith(KAFKA) or given in names:
                continue
            setting = given.removeprefix(KAFKA)
            advice = elsewhere.get(setting) or f"leave it out; {of_whom} takes {', '.join(KAFKA + name for name in sorted(known))}"
            raise WrongOption(f"{of_whom} does not know the setting {given}", advice)

    def refuse_misspelled(self, known: Iterable[str], *, of_whom: str) -> None:
        """Refuses a name that is no option, but nearly one: nobody would carry it out, and something else than was meant would happen.

        Any other name is let pass: it may be Spark's own, or that of the other end of the query.
        """
        names = {name.lower(): name for name in known}
        for given in self.names():
            if given.startswith(KAFKA) or given in names:
                continue
            near = get_close_matches(given, names, n=1, cutoff=_NEARLY)
            if near:
                raise WrongOption(f"{of_whom} has no option {given!r}", f"did you mean {names[near[0]]}?")
