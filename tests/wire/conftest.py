"""The oracle of the message tests: kio's own parser, which shares no code with ours. It is safe here because the bytes are our own."""

from collections.abc import Callable
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from penstock.wire.frames import LENGTH, read_response_header

ReadReply = Callable[[int, int, bytes], tuple[int, Any]]


@pytest.fixture(scope="session")
def oracle_reply() -> ReadReply:
    """Reads a whole reply frame, length and all: the correlation id and kio's entity."""

    def read(api_key: int, version: int, wire: bytes) -> tuple[int, Any]:
        assert LENGTH.unpack_from(wire)[0] == len(wire) - LENGTH.size, "the length in front is not that of the frame"
        frame = wire[LENGTH.size :]
        correlation_id, at = read_response_header(api_key, version, frame)
        entity, size = entity_reader(load_response_schema(api_key, version))(frame, at)
        assert at + size == len(frame), "bytes are left over"
        return correlation_id, entity

    return read


@pytest.fixture(scope="session")
def oracle_request() -> Callable[[int, int, bytes, int], Any]:
    def read(api_key: int, version: int, frame: bytes, at: int) -> Any:
        entity, size = entity_reader(load_request_schema(api_key, version))(frame, at)
        assert at + size == len(frame), "bytes are left over"
        return entity

    return read
