"""Attributes of messages: what may be one, how much they weigh, their digest, how they lie in a record's header.

SDKs check the digest that they get back, some of them also on receive, and there it covers those attributes only that are returned.
In the log all attributes of a message are one header, a JSON object `{name: [type, value]}`, binary values in base64: a message
mostly has none, and then it has no header. A long text that JSON would make more than a third longer, since it consists of quotation marks
and backslashes, is `[type, value, "base64"]`: so no message that AWS takes grows beyond what the topic does.
"""

import json
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from hashlib import md5 as _md5
from typing import Any, NamedTuple

from penstock.http.sqs.errors import INVALID_PARAMETER_VALUE, SqsError
from penstock.http.sqs.texts import WRONG_CHARACTERS, is_xml_text

try:
    from _md5 import md5 as _quick_md5  # type: ignore[import-not-found]
except ImportError:  # A Python that was built without it.
    _quick_md5 = _md5

ATTRIBUTES_MAX = 10
NAME_BYTES_MAX = 256
QUICK_BYTES = 2048  # From here on hashlib lets go of the interpreter meanwhile.

# As AWS says of numbers: 38 digits, between 10^-128 and 10^+126.
NUMBER_DIGITS_MAX = 38
NUMBER_MIN, NUMBER_MAX = Decimal("1e-128"), Decimal("1e126")

BASE64 = "base64"
ESCAPED_MAX = 1_000  # Characters of a text that may all take two bytes, for the sake of those who read the log.

_ESCAPED = '"\\\t\n\r'  # Other characters that JSON escapes are not XML's.
_LENGTH = struct.Struct(">I")
_TEXT, _BINARY = b"\x01", b"\x02"
_NAME = re.compile(r"[0-9A-Za-z_.À-ſ-]+")  # Accented letters are not documented, but taken.
_TYPE = re.compile(r"(String|Number|Binary)(\..*)?", re.DOTALL)
_NUMBER = re.compile(r"[+-]?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")  # In one way only, or a long one would take for ever.


class Attribute(NamedTuple):
    """`value` is a text, or bytes where the type is Binary."""

    type: str
    value: str | bytes

    @property
    def is_binary(self) -> bool:
        return isinstance(self.value, bytes)

    @property
    def content(self) -> bytes:
        return self.value if isinstance(self.value, bytes) else self.value.encode()


Attributes = dict[str, Attribute]


# From a request


def read_attributes(given: Mapping[str, Mapping[str, Any]], *, is_system: bool = False) -> Attributes:
    """Checked. How many there may be is not asked here, since Penstock's own do not count."""
    return {name: _read(name, value, is_system) for name, value in given.items()}


def _read(name: str, given: Mapping[str, Any], is_system: bool) -> Attribute:
    what = f"Message ({'system' if is_system else 'user'}) attribute"
    _check_name(name, what)
    kind = given.get("DataType")
    if not kind:
        raise _wrong(f"{what} '{name}' must contain a non-empty attribute type.")
    if len(kind.encode()) > NAME_BYTES_MAX or not is_xml_text(kind):
        raise _wrong(f"{what} types must be shorter than {NAME_BYTES_MAX} Bytes")
    found = _TYPE.fullmatch(kind)
    if found is None:
        raise _wrong(
            f"{what} '{name}' has an invalid message attribute type, the set of supported type prefixes is Binary, Number, and String."
        )
    if given.get("StringListValues") or given.get("BinaryListValues"):
        raise _wrong(f"{what} '{name}' has a list value; message attribute list values in SendMessage operation are not supported.")
    base, text, blob = found[1], given.get("StringValue"), given.get("BinaryValue")
    if base == "Binary":
        if not blob or text:
            raise _wrong(f"{what} '{name}' must contain a non-empty value of type 'Binary'.")
        return Attribute(kind, b64decode(blob))
    if not text or blob:
        raise _wrong(f"{what} '{name}' must contain a non-empty value of type 'String'.")
    if not is_xml_text(text):
        raise _wrong(WRONG_CHARACTERS)
    if base == "Number" and not _is_number(text):
        raise _wrong(f"Can't cast the value of message (user) attribute '{name}' to a number.")
    return Attribute(kind, text)


def _check_name(name: str, what: str) -> None:
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise _wrong(f"{what} names must be shorter than {NAME_BYTES_MAX} Bytes")
    if _NAME.fullmatch(name) is None:
        raise _wrong(f"{what}s name can only contain upper and lower score characters, digits, periods, hyphens and underscores.")
    lower = name.lower()
    if lower.startswith(("aws.", "amazon.", ".")) or lower.endswith(".") or ".." in lower:
        raise _wrong(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for internal use. "
            "Additionally, they cannot start or end with '.' and can't have successive periods."
        )


def _is_number(text: str) -> bool:
    found = _NUMBER.fullmatch(text)
    if found is None or sum(character.isdigit() for character in found[1]) > NUMBER_DIGITS_MAX:
        return False
    number = abs(Decimal(text))
    return not number or NUMBER_MIN <= number <= NUMBER_MAX


def _wrong(words: str) -> SqsError:
    return SqsError(INVALID_PARAMETER_VALUE, words)


def weight(attributes: Attributes) -> int:
    """Bytes that count against the size of a message: names, types and values."""
    return sum(len(name.encode()) + len(each.type.encode()) + len(each.content) for name, each in attributes.items())


# Digests


def digest(attributes: Attributes) -> str:
    content = bytearray()
    for name in sorted(attributes):
        attribute = attributes[name]
        value = attribute.content
        for part in (name.encode(), attribute.type.encode()):
            content += _LENGTH.pack(len(part))
            content += part
        content += _BINARY if attribute.is_binary else _TEXT
        content += _LENGTH.pack(len(value))
        content += value
    return _md5(content, usedforsecurity=False).hexdigest()


def body_digest(body: bytes) -> str:
    md5 = _quick_md5 if len(body) < QUICK_BYTES else _md5
    return md5(body, usedforsecurity=False).hexdigest()


def body_digests(bodies: Sequence[bytes]) -> list[str]:
    """Of small ones by Python's own function, which begins at once; of large ones by one that works faster, and lets other threads work."""
    md5 = _quick_md5 if max(map(len, bodies)) < QUICK_BYTES else _md5
    return [md5(body, usedforsecurity=False).hexdigest() for body in bodies]


# In a record


def pack_attributes(attributes: Attributes) -> bytes:
    return json.dumps({name: _row(each) for name, each in attributes.items()}, separators=(",", ":"), ensure_ascii=False).encode()


def _row(attribute: Attribute) -> list[str]:
    if isinstance(attribute.value, bytes):
        return [attribute.type, b64encode(attribute.value).decode()]
    text = attribute.value
    if len(text) <= ESCAPED_MAX or 3 * sum(map(text.count, _ESCAPED)) <= len(text):
        return [attribute.type, text]
    return [attribute.type, b64encode(text.encode()).decode(), BASE64]


def unpack_attributes(packed: bytes) -> Attributes:
    """None of them where the header makes no sense: anybody may write records."""
    try:
        rows = json.loads(packed)
        return {
            str(name): Attribute(kind, b64decode(value, validate=True) if kind.startswith("Binary") else _text(value, *encoding))
            for name, (kind, value, *encoding) in rows.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _text(value: Any, encoding: str = "") -> str:
    return b64decode(value, validate=True).decode() if encoding == BASE64 else str(value)


# In an answer


class NameFilter:
    """Which attributes a receiver wants: `All`, `.*`, names, and beginnings of names (`order.*`)."""

    __slots__ = ("_is_all", "_names", "_prefixes")

    def __init__(self, wanted: Iterable[str]) -> None:
        names = tuple(wanted)
        self._is_all = any(name in (".*", "*") or name.lower() == "all" for name in names)
        self._names = frozenset(name for name in names if not name.endswith(".*"))
        self._prefixes = tuple(name.removesuffix(".*") for name in names if name.endswith(".*"))

    def pick(self, attributes: Attributes) -> Attributes:
        if self._is_all:
            return attributes
        return {name: each for name, each in attributes.items() if name in self._names or name.startswith(self._prefixes)}


def shown(attributes: Attributes) -> dict[str, dict[str, str]]:
    return {
        name: (
            {"DataType": each.type, "BinaryValue": b64encode(each.value).decode()}
            if isinstance(each.value, bytes)
            else {"DataType": each.type, "StringValue": each.value}
        )
        for name, each in attributes.items()
    }
