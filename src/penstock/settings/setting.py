"""What a setting is: a name, a default, bounds, and the reason to change it, written for the person who reads the reference page.

A scope is a frozen dataclass with one field for each setting. The fields are declared with `setting`; the texts that people write are read
and written here, by the types of the defaults.
"""

from dataclasses import dataclass, field, fields
from typing import Any

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
DAY_MS = 24 * HOUR_MS
INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

Value = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Setting:
    """What a person may set. `bounds` are inclusive; `choices` are the only words taken."""

    name: str
    default: Value
    reason: str
    bounds: tuple[int | float, int | float] | None = None
    choices: tuple[str, ...] | None = None
    is_dynamic: bool = False  # A running node takes a new value.
    is_own: bool = False  # Of topics: each has its own, and no node has one for all of them.
    bytes_max: int | None = None  # Of a text.

    @property
    def is_list(self) -> bool:
        """Whether it is made of words with commas between them, of which single ones may be added and taken away."""
        return self.choices is not None and any("," in choice for choice in self.choices)

    @property
    def kind(self) -> str:
        return {bool: "boolean", int: "integer", float: "number", str: "word" if self.choices else "text"}[type(self.default)]

    def parse(self, text: str) -> Value:
        """The value that a text stands for. Raises ValueError with a sentence that says what is allowed."""
        value = self._read(text.strip())
        if self.choices is not None and value not in self.choices:
            raise ValueError(f"{self.name} must be one of {', '.join(self.choices)}, not {text!r}")
        if self.bytes_max is not None and len(text.encode()) > self.bytes_max:
            raise ValueError(f"{self.name} has at most {self.bytes_max} bytes, not {len(text.encode())}")
        if self.bounds is not None and isinstance(value, int | float) and not self.bounds[0] <= value <= self.bounds[1]:
            raise ValueError(f"{self.name} must lie between {self.bounds[0]} and {self.bounds[1]}, not {text}")
        return value

    def spelled(self, text: str) -> str:
        """The text as this module would write its value; as it came where it has none."""
        try:
            return as_text(self.parse(text))
        except ValueError:
            return text

    def _read(self, text: str) -> Value:
        if isinstance(self.default, bool):
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
            raise ValueError(f"{self.name} must be true or false, not {text!r}")
        try:
            return type(self.default)(text)
        except ValueError:
            raise ValueError(f"{self.name} must be a {self.kind}, not {text!r}") from None


def setting(
    name: str,
    default: Any,
    reason: str,
    *,
    bounds: tuple[int | float, int | float] | None = None,
    choices: tuple[str, ...] | None = None,
    dynamic: bool = False,
    own: bool = False,
    bytes_max: int | None = None,
) -> Any:
    return field(default=default, metadata={"setting": Setting(name, default, reason, bounds, choices, dynamic, own, bytes_max)})


def as_text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def attributes_by_name(scope: type[Any]) -> dict[str, str]:
    return {slot.metadata["setting"].name: slot.name for slot in fields(scope) if "setting" in slot.metadata}


def settings_by_name(scope: type[Any]) -> dict[str, Setting]:
    return {slot.metadata["setting"].name: slot.metadata["setting"] for slot in fields(scope) if "setting" in slot.metadata}
