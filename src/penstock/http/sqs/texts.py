"""Which characters and numbers SQS takes.

The regular expressions are tried on every message, so they are written to fail at the first wrong character and to copy nothing.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.http.sqs.errors import INVALID_MESSAGE_CONTENTS, SqsError, invalid

SECONDS_PER_HOUR = 3_600
VISIBILITY_SECONDS_MAX = 12 * SECONDS_PER_HOUR
DELAY_SECONDS_MAX = 900
WAIT_SECONDS_MAX = 20
MESSAGES_MAX = 10

WRONG_CHARACTERS = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
)

# XML 1.0 has no others.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAME = re.compile(r"[0-9A-Za-z!-/:-@\[-`{-~]{1,128}")
_BATCH_ID = re.compile(r"[0-9A-Za-z_-]{1,80}")
_OF_BATCH_IDS = re.compile(r"[0-9A-Za-z_-]*")
BATCH_ID_LENGTH_MAX = 80


def is_xml_text(text: str) -> bool:
    return (text.isascii() and text.isprintable()) or _NOT_XML.search(text) is None  # The first is half the work.


def check_body(body: str) -> None:
    if not is_xml_text(body):
        raise SqsError(INVALID_MESSAGE_CONTENTS, WRONG_CHARACTERS)


def check_name(parameter: str, text: str) -> None:
    """Of a group, a deduplication id, an attempt id."""
    if _NAME.fullmatch(text) is None:
        reason = f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        raise invalid(parameter, text, reason)


def is_batch_id(text: str) -> bool:
    return _BATCH_ID.fullmatch(text) is not None


def are_batch_ids(texts: Sequence[str]) -> bool:
    """All of them, of which there is at least one."""
    return all(texts) and max(map(len, texts)) <= BATCH_ID_LENGTH_MAX and _OF_BATCH_IDS.fullmatch("".join(texts)) is not None


def number_of(body: Mapping[str, Any], parameter: str, low: int, high: int) -> int | None:
    """A number within bounds, both of which it may be; None where there is none."""
    value: int | None = body.get(parameter)
    if value is not None and not low <= value <= high:
        raise invalid(parameter, value, f"Must be >= {low} and <= {high}, if provided.")
    return value
