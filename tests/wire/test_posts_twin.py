"""A POST that came whole is read as a full parser would read it, the same by the compiled reader and its twin, or left to that parser."""

import httptools
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiers import pick

from penstock.wire import _posts_py, posts


@pytest.fixture(scope="module")
def compiled():
    return pytest.importorskip("penstock.wire._posts", reason="needs cc: the compiled reader was not built")


class Parsed:
    """All that the full parser finds."""

    def __init__(self, data: bytes) -> None:
        self.path, self.headers, self.body, self.count = b"", dict[bytes, bytes](), b"", 0
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(data)

    def on_url(self, piece: bytes) -> None:
        self.path += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, piece: bytes) -> None:
        self.body += piece

    def on_message_complete(self) -> None:
        self.count += 1


START = b"POST / HTTP/1.1"
names = st.sampled_from(
    [
        b"Host", b"X-Amz-Target", b"user-agent", b"X_Odd", b"Connection", b"Expect", b"Upgrade", b"Transfer-Encoding", b"Proxy-Connection",
        b"Content-Length", b"content-LENGTH", b"Content-Lengths", b"", b"Na me", b"x\xe9", b"keep-alive",
    ]
)  # fmt: skip
values = st.sampled_from(
    [
        b"x",
        b"a b",
        b" a",
        b"a ",
        b"",
        b"close",
        b"Keep-Alive",
        b"keep-alive, close",
        b"100-continue",
        b"chunked",
        b"\xe9",
        b"\t",
        b"a\rb",
        b"3",
    ]
)
starts = st.sampled_from(
    [START] * 6
    + [b"POST /0/q HTTP/1.1", b"POST /? HTTP/1.1", b"POST / HTTP/1.0", b"GET / HTTP/1.1", b"POST * HTTP/1.1", b"post / HTTP/1.1"]
)
lines = st.builds(lambda name, colon, value: name + colon + value, names, st.sampled_from([b": "] * 9 + [b":", b" : "]), values)
ends = st.sampled_from([b"\r\n"] * 9 + [b"\n", b"\r", b"\r\n\r\n"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    body = draw(st.binary(max_size=5))
    length = b"Content-Length: %d" % (len(body) + draw(st.sampled_from([0] * 9 + [1, -1, 1_000_000])))
    all_lines = draw(st.permutations([*draw(st.lists(lines, max_size=4)), *draw(st.sampled_from([[length]] * 6 + [[], [length] * 2]))]))
    end = draw(ends)
    return b"".join(line + end for line in (draw(starts), *all_lines)) + draw(st.sampled_from([b"\r\n"] * 9 + [b"", b" \r\n"])) + body


@pytest.mark.repeats
@settings(max_examples=pick(test=120, slow=500))
@given(requests(), st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=1))
@example(START + b"\r\nContent-Length: 0", [])
@example(START + b"\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", [])
def test_what_is_read_a_full_parser_reads_just_so(compiled, data: bytes, changes: list[tuple[int, int]]):
    changed = bytearray(data)
    for where, byte in changes:
        changed[where % len(changed)] = byte
    data = bytes(changed)
    found = _posts_py.read_post(data)
    assert compiled.read_post(data) == found
    if found is not None:
        parsed = Parsed(data)
        assert (parsed.path, parsed.headers, parsed.body) == found
        assert parsed.count == 1 and parsed.parser.should_keep_alive() and not parsed.parser.should_upgrade()
        httptools.parse_url(found[0])


def test_what_a_botocore_sends_is_read():
    head = START + b"\r\nHost: localhost:8080\r\nAccept-Encoding: identity\r\nX-Amz-Target: Some.Action\r\nContent-Length: 2\r\n\r\n"
    headers = {
        b"host": b"localhost:8080",
        b"accept-encoding": b"identity",
        b"x-amz-target": b"Some.Action",
        b"content-length": b"2",
    }
    assert posts.read_post(head + b"{}") == (b"/", headers, b"{}")
    assert posts.read_post(head + b"{") is None, "not all of it"
    assert posts.read_post(head + b"{}P") is None, "more than one"


@pytest.mark.parametrize("length", [2_000, 2_001, 70_000])
def test_long_paths_are_left_to_the_full_parser(compiled, length):
    data = b"POST /" + b"a" * length + b" HTTP/1.1\r\ncontent-length: 0\r\n\r\n"
    assert (compiled.read_post(data) is None) == (_posts_py.read_post(data) is None) == (length > 2_000)
