"""Requests are read quickly where they are as they should be, and slowly otherwise. Nobody can tell which way theirs went.

The slow way is the measure: what the quick one takes, it takes to mean the same, and what it does not take is left to the slow one.
"""

import builtins
import json
import types
import typing
from contextlib import suppress
from functools import cache
from types import NoneType
from typing import Any

import pytest
from growth import assert_grows_slower_than_square
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiers import pick

from penstock.broker.queues.calls import Lent
from penstock.http.sqs import reading, receiving, sending
from penstock.http.sqs.actions import ACTIONS, Action
from penstock.http.sqs.batches import Failures, check_entries
from penstock.http.sqs.bytes_as_text import text_of
from penstock.http.sqs.desk import Call
from penstock.http.sqs.errors import SqsError
from penstock.http.sqs.queue_records import SqsQueue
from penstock.http.sqs.shapes import Shape
from penstock.http.sqs.texts import are_batch_ids, is_batch_id, is_xml_text
from penstock.settings import KIB
from penstock.simulator.knobs import replaced

HOT = [
    "AmazonSQS.SendMessage", "AmazonSQS.SendMessageBatch", "AmazonSQS.ReceiveMessage", "AmazonSQS.DeleteMessageBatch",
    "AmazonSQS.ChangeMessageVisibilityBatch", "Penstock.Send", "Penstock.Receive", "Penstock.Settle", "Penstock.ConfigureQueue",
]  # fmt: skip
SEND, SEND_BATCH, RECEIVE = (ACTIONS[f"AmazonSQS.{name}"] for name in ("SendMessage", "SendMessageBatch", "ReceiveMessage"))

texts = st.text(max_size=9) | st.sampled_from(["", "q", "QQ==", "no base64!", "\x00", "\x7f", "\ud800", "\U0001f600", "a\nb"])
numbers = st.integers(-5, 50) | st.sampled_from([2**31, 2**63, -(2**63), 2**64, 10**30])
strangers = st.none() | st.booleans() | texts | st.integers() | st.floats() | st.just([]) | st.just({}) | st.just([{"a": [1]}])


@cache
def fitting(form: Any) -> st.SearchStrategy[Any]:
    """Values of a form, in which now and then something is of another kind."""
    if typing.is_typeddict(form):
        members = typing.get_type_hints(form)
        required = {name: of(members[name]) for name in sorted(form.__required_keys__)}
        whole = st.fixed_dictionaries(required, optional={name: of(members[name]) for name in sorted(form.__optional_keys__)})
        return st.builds(lambda known, more: {**more, **known}, whole, st.sampled_from([{}] * 4 + [{"x": 1}, {"Stranger": "\ud800"}]))
    if form is not (plain := plain_of(form)):
        return st.none() | fitting(plain)
    match typing.get_origin(form):
        case builtins.list:
            return st.lists(of(typing.get_args(form)[0]), max_size=3)
        case builtins.dict:
            return st.dictionaries(texts, of(typing.get_args(form)[1]), max_size=2)
    return {str: texts, int: numbers, bool: st.booleans(), NoneType: texts, Any: strangers}[form]


def plain_of(form: Any) -> Any:
    """Of `X | None`: X."""
    is_union = typing.get_origin(form) in (typing.Union, types.UnionType)
    return next(each for each in typing.get_args(form) if each is not NoneType) if is_union else form


@cache
def of(form: Any) -> st.SearchStrategy[Any]:
    own = fitting(form)
    return st.integers(0, 30).flatmap(lambda dice: own if dice else strangers)


@st.composite
def bodies(draw: st.DrawFn, shape: Shape) -> bytes:
    content, indent = draw(fitting(shape.form)), draw(st.sampled_from([None, 1]))
    text = json.dumps(content, ensure_ascii=draw(st.booleans()), indent=indent).encode(errors="surrogatepass")
    at = draw(st.integers(0, len(text)))
    spoiled = [text[:at] + draw(st.binary(max_size=3)) + text[at:], text[:at], b"\xef\xbb\xbf" + text]
    return draw(st.sampled_from([text] * 9 + spoiled))


def read_by(way: Any, action: Action, body: bytes) -> Any:
    try:
        return known(action.shape.form, way(action, body))
    except SqsError as refusal:
        return refusal.kind, refusal.words


def known(form: Any, value: Any) -> Any:
    """Without members that nobody knows, which are not looked at."""
    form = plain_of(form)
    if typing.is_typeddict(form):
        members = typing.get_type_hints(form)
        return {name: known(members[name], each) for name, each in value.items() if name in members} if value is not None else None
    match value:
        case list() if typing.get_args(form):
            return [known(typing.get_args(form)[0], each) for each in value]
        case dict() if typing.get_args(form):
            return {name: known(typing.get_args(form)[1], each) for name, each in value.items()}
    return value


@pytest.mark.repeats
@pytest.mark.parametrize("name", HOT)
@settings(max_examples=pick(test=50, slow=80), deadline=None)
@given(data=st.data())
def test_both_ways_read_the_same(name: str, data: st.DataObject):
    action = ACTIONS[name]
    body = data.draw(bodies(action.shape))
    assert read_by(reading.read, action, body) == read_by(reading.read_slowly, action, body), body


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"null", b"[]", b'"x"', b"{", b'{"QueueUrl":"q","MessageBody":"b"} x', b'{"QueueUrl":"q","MessageBody":"\xff"}',
        b'{"QueueUrl":"q","MessageBody":"\xed\xa0\x80"}', b'{"QueueUrl":"q","MessageBody":"b","x":"\xff"}',
        b'{"QueueUrl":"q","MessageBody":"b","x":"\xed\xa0\x80"}', b'{"QueueUrl":"q","MessageBody":"\\ud800"}',
        b'{"QueueUrl":"q","MessageBody":"b","x":"\\udc00\\ud800"}', b'{"QueueUrl":"q","MessageBody":"a\nb"}',
        b'{"QueueUrl":"q","QueueUrl":"p","MessageBody":"b"}', b'{"QueueUrl":1,"QueueUrl":"p","MessageBody":"b"}',
        b'{"QueueUrl":"q","MessageBody":"b","DelaySeconds":1.0}', b'{"QueueUrl":"q","MessageBody":"b","DelaySeconds":1e0}',
        b'{"QueueUrl":"q","MessageBody":"b","DelaySeconds":-0}', b'{"QueueUrl":"q","MessageBody":"b","DelaySeconds":true}',
        b'{"QueueUrl":"q","MessageBody":"b","DelaySeconds":null}', b'{"QueueUrl":"q","MessageBody":"b","x":NaN}',
        b'{"QueueUrl":"q","MessageBody":"b","DelaySeconds":' + b"9" * 30 + b"}", b"[" * 100_000,
        '{"QueueUrl":"q","MessageBody":"b"}'.encode("utf-16"), '{"QueueUrl":"q","MessageBody":"b"}'.encode("utf-8-sig"),
        b'{"QueueUrl":"q","MessageBody":"b","MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":"no base64!"}}}',
        b'{"QueueUrl":"q","MessageBody":"b","MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":"QQ=="}}}',
    ],
)  # fmt: skip
def test_both_ways_read_the_same_of_what_parsers_differ_about(body: bytes):
    assert read_by(reading.read, SEND, body) == read_by(reading.read_slowly, SEND, body)


def test_what_is_as_it_should_be_goes_the_quick_way(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reading, "read_slowly", None)
    assert reading.read(SEND, b'{"QueueUrl":"q","MessageBody":"\\u00e9\xc3\xa9"}') == {"QueueUrl": "q", "MessageBody": "éé"}
    entries = [{"Id": "1", "MessageBody": "b", "DelaySeconds": 1, "MessageAttributes": {"a": {"DataType": "String", "StringValue": "v"}}}]
    wish = {"QueueUrl": "q", "Entries": entries}
    assert reading.read(SEND_BATCH, json.dumps(wish).encode()) == wish
    assert reading.read(RECEIVE, b'{"QueueUrl":"q","WaitTimeSeconds":null,"AttributeNames":["All"]}') == {
        "QueueUrl": "q",
        "AttributeNames": ["All"],
    }


queues = st.builds(SqsQueue, st.just("q"), st.booleans(), st.just({}), size_max=st.sampled_from([3, 1024]), hashes_bodies=st.just(True))
entries = st.fixed_dictionaries(
    {"Id": st.sampled_from(["a", "b", "_-9", "", "é", "x" * 81, "a\nb"]), "MessageBody": st.text(max_size=5)},
    optional={"DelaySeconds": st.integers(-1, 901), "MessageGroupId": st.sampled_from(["g", ""])},
)


@pytest.mark.repeats
@settings(max_examples=pick(test=100, slow=300), deadline=None)
@given(queues, st.lists(entries, min_size=1, max_size=4), st.sampled_from(["", "key"]))
@example(SqsQueue("q", False, {}), [{"Id": "a", "MessageBody": "x"}, {"Id": "b", "MessageBody": "\x7f\n"}], "")
def test_a_plain_batch_is_what_each_of_its_entries_would_be(queue: SqsQueue, batch: list[dict[str, Any]], key_id: str):
    failures, call = Failures(), Call({}, key_id=key_id)
    whole, one_by_one = sending._plain_letters(queue, batch, call), sending._letters(queue, batch, call, failures)
    assert whole is None or (whole == one_by_one and not failures.beside([]).get("Failed"))


@given(st.lists(st.text("ab_-9é\n ", max_size=3) | st.sampled_from(["x" * 80, "x" * 81]), min_size=1, max_size=4))
def test_ids_are_good_together_where_each_of_them_is(ids: list[str]):
    assert are_batch_ids(ids) == all(map(is_batch_id, ids))
    try:
        check_entries([{"Id": each} for each in ids], "Entry")
        is_taken = True
    except SqsError:
        is_taken = False
    assert is_taken == (all(map(is_batch_id, ids)) and len(set(ids)) == len(ids))


@given(st.text())
def test_a_text_is_told_from_what_xml_cannot_hold(text: str):
    allowed = all(c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c >= "\U00010000" for c in text)
    assert is_xml_text(text) == allowed


@given(
    st.text(max_size=5) | st.sampled_from(["\x7f", "\x00", "\ufffe", "a\\u0000"]), st.booleans(), st.sampled_from(["utf-8", "utf-16-le"])
)
def test_a_text_in_json_that_is_ascii_and_has_no_escapes_is_fit_for_xml(text: str, ensures_ascii: bool, encoding: str):
    body = json.dumps({"QueueUrl": "q", "MessageBody": text}, ensure_ascii=ensures_ascii).encode(encoding, "surrogatepass")
    for raw in (body, body.replace(b"\\u0000", b"\x00")):
        if b"\\" in raw or not raw.isascii():
            continue
        with suppress(SqsError):
            assert is_xml_text(reading.read(SEND, raw)["MessageBody"])


@given(st.lists(st.binary(max_size=9) | st.text(max_size=9).map(str.encode), min_size=1, max_size=3), st.sampled_from([(), (("h", b"1"),)]))
def test_plain_messages_are_shown_as_each_of_them_would_be(bodies: list[bytes], headers: tuple[tuple[str, bytes], ...]):
    lent = [Lent("id", "handle", 0, at, 1, 9, 9, 9, None, body, headers) for at, body in enumerate(bodies)]
    plain = receiving._plain_messages(lent)
    assert plain is None or plain == [
        receiving._message(SqsQueue("q", False, {}), each, frozenset(), receiving.NONE_PICKED) for each in lent
    ]
    assert (plain is None) == (bool(headers) or any(text_of(body) is None for body in bodies))


def test_a_large_request_of_too_many_small_values_is_not_read() -> None:
    many = b'{"QueueUrl": "q", "Entries": [' + b"{}," * 400_000 + b"{}]}"
    with pytest.raises(SqsError, match="at most 250000 values"):
        reading.read(SEND_BATCH, many)


@pytest.mark.parametrize("text", [",", '",', "\\,", '\\",'])
def test_commas_in_texts_are_no_values(text: str) -> None:
    wish = {"QueueUrl": "q", "MessageBody": text * 600_000}
    assert reading.read(SEND, json.dumps(wish).encode()) == wish


def test_a_redrive_of_as_many_ids_as_there_may_be_is_read() -> None:
    wish = {"Queue": "q", "Filter": {"Ids": [f"{number:036}" for number in range(100_000)]}}
    assert reading.read(ACTIONS["Penstock.Redrive"], json.dumps(wish).encode()) == wish


MEBIBYTES = pick(test=4, slow=8)  # 8 is the bound.
MEASURED_BYTES = 4 * KIB  # And four times as much, which is still one piece of those in which a large body is looked at.
HOSTILE = [
    b'\\",', b'",', b'\\\\",', b'\\\\\\",', b",", b'""', b'"', b"\\", b'{"', b'\\u",', b'"\\"', b"\\,", b"1,",
    b"[,", b'"a":{},', b"\xff,", b"0.1,", b"\n,",
]  # fmt: skip


def of_size(beginning: bytes, piece: bytes, size: int, end: bytes) -> bytes:
    return beginning + piece * (size // len(piece)) + end


@pytest.mark.repeats
@pytest.mark.parametrize("piece", HOSTILE, ids=repr)
@pytest.mark.parametrize("beginning", [b'{"QueueUrl":"q","MessageBody":"', b'{"QueueUrl":', b""], ids=["text", "value", "nothing"])
def test_no_large_body_takes_long_to_read(beginning: bytes, piece: bytes):
    """A text without end among them, with a place to begin at in each of its pieces. Work that grows with the square of a body's size
    would take hours for the largest, and a second for those that are measured first, once as small bodies
    and once as if they were large."""
    for end in (b"", b"\\"):

        def refuse(size: int, end: bytes = end) -> None:
            with pytest.raises(SqsError):
                reading.read(SEND, of_size(beginning, piece, size, end))

        def look(size: int, end: bytes = end) -> None:
            commas = of_size(beginning, piece, size, end).count(b",")
            with replaced([(reading, "READ_ASIDE_BYTES", 0), (reading, "VALUES_MAX", commas - 1)]):
                refuse(size)

        assert_grows_slower_than_square(look, MEASURED_BYTES)
        assert_grows_slower_than_square(refuse, MEASURED_BYTES)
        refuse(MEBIBYTES << 20)


bits_of_json = st.lists(st.sampled_from([b'"', b"\\", b'\\"', b",", b"a", b"\\\\", b'",', b"[{", b'"a,b"']), max_size=40).map(b"".join)


@given(bits_of_json, st.integers(1, 9))
def test_commas_between_texts_are_counted_in_pieces_as_one_by_one(body: bytes, piece_bytes: int):
    between, is_json = counted_one_by_one(body)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "PIECE_BYTES", piece_bytes)
        counted = reading._commas_between_texts(body, enough=1_000)
    assert counted == between or not is_json


def counted_one_by_one(body: bytes) -> tuple[int, bool]:
    """And whether it may be JSON: what is escaped outside of texts is none, and how it is counted does not matter."""
    is_in_text = is_escaped = False
    between, is_json = 0, True
    for byte in body:
        if byte == ord("\\") and not is_in_text:
            is_json = False
        if is_escaped:
            is_escaped = False
        elif byte == ord("\\"):
            is_escaped = True
        elif byte == ord('"'):
            is_in_text = not is_in_text
        elif byte == ord(",") and not is_in_text:
            between += 1
    return between, is_json
