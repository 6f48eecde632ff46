"""Replies to DescribeConfigs, versions 1 to 4, written by hand.

kafka-topics asks for the settings of all topics in one request, and most topics have the same: a resource's settings are encoded once and
its bytes used again. Through the schemas a thousand topics took a second and a half and held the loop for hundreds of milliseconds.
Requests come through the schemas.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.wire import fields
from penstock.wire.frames import LENGTH, whole_frame

_TYPES_FROM = 3
_FLEXIBLE_FROM = 4

Synonym = tuple[str, str | None, int]  # Name, value, source.


class ConfigRow(NamedTuple):
    name: str
    value: str | None
    is_read_only: bool
    source: int
    config_type: int
    documentation: str | None
    synonyms: Sequence[Synonym]


class ConfigResult(NamedTuple):
    resource_type: int
    resource_name: str
    configs: bytes  # What `encode_configs` of the same version made.
    error_code: int = 0
    error_message: str | None = None


def encode_configs(version: int, rows: Sequence[ConfigRow]) -> bytes:
    """The settings of one resource, to be kept and given to `write_describe_configs_response`."""
    count, string, end = fields.shapes(version >= _FLEXIBLE_FROM)
    pieces = [count(len(rows))]
    for row in rows:
        # Nothing here is secret, which is the byte between the source and the synonyms.
        pieces += (string(row.name), string(row.value), bytes((row.is_read_only, row.source, False)), count(len(row.synonyms)))
        for name, value, source in row.synonyms:
            pieces += (string(name), string(value), bytes((source,)), end)
        if version >= _TYPES_FROM:
            pieces += (bytes((row.config_type,)), string(row.documentation))
        pieces.append(end)
    return b"".join(pieces)


def write_describe_configs_response(version: int, correlation_id: int, results: Sequence[ConfigResult], *, throttle_ms: int = 0) -> bytes:
    """A whole frame."""
    count, string, end = fields.shapes(version >= _FLEXIBLE_FROM)
    pieces = [LENGTH.pack(correlation_id), end, LENGTH.pack(throttle_ms), count(len(results))]
    for result in results:
        front = fields.SHORT.pack(result.error_code) + string(result.error_message)
        pieces += (front, result.resource_type.to_bytes(1, "big", signed=True), string(result.resource_name), result.configs, end)
    pieces.append(end)
    return whole_frame(pieces)
