"""Times and spans, as people write and read them."""

import re
from datetime import UTC, datetime

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|m|h|d|w|)")
_SECONDS = {"ms": 0.001, "s": 1, "": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def parse_time(text: str) -> int | None:
    """Milliseconds since 1970 from ISO 8601 (UTC unless it says otherwise) or `@` and milliseconds; None where it is neither."""
    if text.startswith("@") and text[1:].isascii() and text[1:].isdigit():
        return int(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def spoken(span_ms: int | None) -> str | None:
    """A span in its two largest units: `3 d 4 h`, `12 min 5 s`, `0.4 s`."""
    if span_ms is None:
        return None
    if 0 < span_ms < 10_000:
        return f"{span_ms / 1000:.1f} s"
    words: list[str] = []
    for unit_ms, name in _UNITS:
        count, span_ms = divmod(span_ms, unit_ms)
        if words or count:
            words.append(f"{count} {name}")
        if len(words) == 2:
            break
    return " ".join(words) or "0 s"


def parse_span(text: str) -> float | None:
    """Seconds from `90`, `1.5h`, `10min`, `7d`; None where it is none of these."""
    found = _SPAN.fullmatch(text.strip().replace(" ", ""))
    return None if found is None else float(found[1]) * _SECONDS[found[2]]
