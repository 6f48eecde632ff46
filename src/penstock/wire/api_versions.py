"""ApiVersions, versions 0 to 4: the first thing a client asks.

The reply's header is always version 0. A client that asks in a version we do not know gets `UNSUPPORTED_VERSION` in a body of version 0,
with the rows that say what we do know, and asks again on the same connection.
Features go out from version 3 (KIP-584), and only when there are any.
"""

from collections.abc import Sequence
from struct import Struct

from penstock.errors import ErrorCode
from penstock.wire import fields
from penstock.wire.frames import LENGTH

VERSION_HIGHEST = 4

ApiRow = tuple[int, int, int]  # API key, lowest and highest version.
Feature = tuple[str, int, int]  # Name, lowest and highest level.

_FLEXIBLE_FROM = 3
_THROTTLE_FROM = 1


def write_api_versions_response(
    version: int,
    correlation_id: int,
    apis: Sequence[ApiRow],
    *,
    throttle_ms: int = 0,
    supported_features: Sequence[Feature] = (),
    finalized_features: Sequence[Feature] = (),
    finalized_features_epoch: int = -1,
) -> bytes:
    """A whole frame."""
    if version >= _FLEXIBLE_FROM:
        rows = b"".join(_FLEXIBLE_ROW.pack(*api, 0) for api in apis)
        section = _features(supported_features, finalized_features, finalized_features_epoch)
        body = fields.compact_count(len(apis)) + rows + LENGTH.pack(throttle_ms) + section
    else:
        body = fields.count(len(apis)) + b"".join(_ROW.pack(*api) for api in apis)
        if version >= _THROTTLE_FROM:
            body += LENGTH.pack(throttle_ms)
    return _frame(correlation_id, ErrorCode.NONE, body)


def write_unsupported_api_versions_response(correlation_id: int, apis: Sequence[ApiRow]) -> bytes:
    """The answer to a version that we do not know: version 0, in which every client can read what we do know."""
    return _frame(correlation_id, ErrorCode.UNSUPPORTED_VERSION, fields.count(len(apis)) + b"".join(_ROW.pack(*api) for api in apis))


_ROW = Struct(">hhh")
_FLEXIBLE_ROW = Struct(">hhhB")
_HEAD = Struct(">iih")


def _frame(correlation_id: int, error_code: int, body: bytes) -> bytes:
    return _HEAD.pack(_HEAD.size - LENGTH.size + len(body), correlation_id, error_code) + body


def _features(supported: Sequence[Feature], finalized: Sequence[Feature], epoch: int) -> bytes:
    section = []
    if supported:
        section.append((0, _feature_rows([(name, lowest, highest) for name, lowest, highest in supported])))
    if epoch != -1:
        section.append((1, fields.LONG.pack(epoch)))
    if finalized:
        section.append((2, _feature_rows([(name, highest, lowest) for name, lowest, highest in finalized])))
    return fields.tagged(section)


def _feature_rows(rows: Sequence[tuple[str, int, int]]) -> bytes:
    """Supported features send the lowest level first, finalized ones the highest."""
    return fields.compact_count(len(rows)) + b"".join(fields.compact_string(name) + _LEVELS.pack(*levels, 0) for name, *levels in rows)


_LEVELS = Struct(">hhB")
