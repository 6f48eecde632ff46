"""Messages through boto3 on standard queues: sent, received, deleted, kept; one by one and in batches, with the errors that AWS gives."""

import hashlib
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from waiting import EXPIRES_MS, EXPIRES_S, PATIENCE_S, until, until_later_than

Refused = Callable[..., tuple[str, str]]

TEXT = {"DataType": "String", "StringValue": "b"}


def option(name: str, value: object) -> dict[str, Any]:
    """What a message has that AWS's have not."""
    return {"MessageSystemAttributes": {f"penstock.{name}": {"DataType": "Number", "StringValue": str(value)}}}


# Sending


def test_a_message_comes_as_it_was_sent(sqs):
    url = sqs.queue()
    sent = sqs.send(url, "hé\t\n 😀", MessageAttributes={"a": TEXT})
    assert sent["MD5OfMessageBody"] == hashlib.md5("hé\t\n 😀".encode()).hexdigest()
    assert sent["MD5OfMessageAttributes"] == "bef8bf215374a0a228d67533b1a488be"
    assert "SequenceNumber" not in sent
    (message,) = sqs.receive(url, MessageAttributeNames=["All"])
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "hé\t\n 😀")
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert message["MessageAttributes"] == {"a": TEXT}
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert "Attributes" not in message


def test_the_answer_to_an_empty_receive_has_no_messages(sqs):
    assert "Messages" not in sqs.receive_message(QueueUrl=sqs.queue())


def test_binary_and_labelled_attributes_have_the_known_digest(sqs):
    url = sqs.queue()
    attributes = {"B": {"DataType": "Binary", "BinaryValue": b"\x00\xff"}, "n": {"DataType": "Number.int", "StringValue": "42"}}
    assert sqs.send(url, "x", MessageAttributes=attributes)["MD5OfMessageAttributes"] == "3f346be8859e3922fb444adfbe7f18b8"
    (message,) = sqs.receive(url, MessageAttributeNames=[".*"])
    assert message["MessageAttributes"] == attributes
    assert message["MD5OfMessageAttributes"] == "3f346be8859e3922fb444adfbe7f18b8"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], set()),
        (["All"], {"Hello", "General", "Help.Me"}),
        ([".*"], {"Hello", "General", "Help.Me"}),
        (["Nothing"], set()),
        (["Hello", "Nothing"], {"Hello"}),
        (["Hel.*"], {"Hello", "Help.Me"}),
        (["Help.Me", "Gen.*"], {"Help.Me", "General"}),
    ],
)
def test_only_the_attributes_that_are_asked_for_come_and_count_in_the_digest(sqs, names: list[str], expected: set[str]):
    url = sqs.queue()
    values = {"Hello": "There", "General": "Kenobi", "Help.Me": "Me"}
    sqs.send(url, "x", MessageAttributes={name: {"DataType": "String", "StringValue": value} for name, value in values.items()})
    (message,) = sqs.receive(url, MessageAttributeNames=names)
    assert set(message.get("MessageAttributes", {})) == expected
    assert ("MD5OfMessageAttributes" in message) == bool(expected)
    if expected:
        content = b"".join(
            len(name).to_bytes(4, "big")
            + name.encode()
            + b"\0\0\0\6String\1"
            + len(values[name]).to_bytes(4, "big")
            + values[name].encode()
            for name in sorted(expected)
        )
        assert message["MD5OfMessageAttributes"] == hashlib.md5(content).hexdigest()


def test_system_attributes_are_asked_for_by_either_name(sqs):
    url = sqs.queue()
    sqs.send(url, "x")
    always = {"SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp"}
    first = sqs.receive(url, AttributeNames=["All"], VisibilityTimeout=0)[0]["Attributes"]
    second = sqs.receive(url, MessageSystemAttributeNames=["ALL"], VisibilityTimeout=0)[0]["Attributes"]
    assert set(first) == set(second) == always
    assert (first["ApproximateReceiveCount"], second["ApproximateReceiveCount"]) == ("1", "2")
    assert first["ApproximateFirstReceiveTimestamp"] == second["ApproximateFirstReceiveTimestamp"]
    assert 1_700_000_000_000 < int(first["SentTimestamp"]) <= int(first["ApproximateFirstReceiveTimestamp"])
    third = sqs.receive(url, AttributeNames=["SenderId"], MessageSystemAttributeNames=["SentTimestamp", "SequenceNumber"])[0]
    assert set(third["Attributes"]) == {"SenderId", "SentTimestamp"}


def test_a_trace_header_is_carried_and_does_not_count(sqs, refused: Refused):
    url = sqs.queue(MaximumMessageSize=1024)
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    sent = sqs.send(url, "x" * 1024, MessageSystemAttributes=trace)
    assert len(sent["MD5OfMessageSystemAttributes"]) == 32 and "MD5OfMessageAttributes" not in sent
    (message,) = sqs.receive(url, AttributeNames=["AWSTraceHeader"])
    assert message["Attributes"] == {"AWSTraceHeader": trace["AWSTraceHeader"]["StringValue"]}
    assert refused(sqs.send, url, "x", MessageSystemAttributes={"Other": TEXT})[0] == "InvalidParameterValue"


@pytest.mark.parametrize("body", ["\x00", "a\x08", "\x1f", "\ufffe", "\uffff"])
def test_characters_that_xml_has_not_are_refused(sqs, empty: str, refused: Refused, body: str):
    assert refused(sqs.send, empty, body)[0] == "InvalidMessageContents"


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("ErrorDetails", {"DataType": "String", "StringValue": ""}, "'ErrorDetails' must contain a non-empty value of type 'String'."),
        ("a", {"DataType": "String", "StringValue": "\x01"}, "Invalid characters"),
        ("a", {"DataType": "Text", "StringValue": "x"}, "type"),
        ("a", {"DataType": "Number", "StringValue": "many"}, "number"),
        ("a", {"DataType": "Number", "StringValue": "1" * 39}, "number"),
        ("a", {"DataType": "Number", "StringValue": "٣"}, "number"),
        ("a", {"DataType": "Number", "StringValue": "1e127"}, "number"),
        ("a", {"DataType": "Number", "StringValue": "-1.1e126"}, "number"),
        ("a", {"DataType": "Number", "StringValue": "1e-129"}, "number"),
        ("a", {"DataType": "Binary", "StringValue": "x"}, "Binary"),
        ("AWS.a", TEXT, "AWS."),
        ("amazon.a", TEXT, "Amazon."),
        (".a", TEXT, "start or end"),
        ("a.", TEXT, "start or end"),
        ("a..b", TEXT, "successive periods"),
        ("a b", TEXT, "periods, hyphens and underscores"),
        ("a" * 257, TEXT, "shorter than 256"),
        ("penstock.nonsense", TEXT, "no such option"),
        ("penstock.priority", {"DataType": "Number", "StringValue": "10"}, "0 to 9"),
    ],
)
def test_an_attribute_that_cannot_be_is_refused(sqs, empty: str, refused: Refused, *, name: str, value: dict[str, Any], part: str):
    code, words = refused(sqs.send, empty, "x", MessageAttributes={name: value})
    assert code == "InvalidParameterValue" and part in words


def test_eleven_attributes_are_one_too_many_and_extensions_do_not_count(sqs, refused: Refused):
    url = sqs.queue()
    ten = {f"a{number}": TEXT for number in range(10)}
    assert refused(sqs.send, url, "x", MessageAttributes=ten | {"b": TEXT})[0] == "InvalidParameterValue"
    sqs.send(url, "x", MessageAttributes=ten | {"penstock.priority": {"DataType": "Number", "StringValue": "9"}})
    (message,) = sqs.receive(url, MessageAttributeNames=["All"], AttributeNames=["All"])
    assert set(message["MessageAttributes"]) == set(ten)
    assert not any(name.startswith("penstock") for name in message["Attributes"])


def test_a_message_has_its_size(sqs, refused: Refused):
    url = sqs.queue()
    body = "x" * 1_048_576
    assert sqs.send(url, body)["MessageId"]
    assert sqs.bodies(url) == [body]
    code, words = refused(sqs.send, url, body + "x")
    assert (code, words) == (
        "InvalidParameterValue",
        "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.",
    )
    assert refused(sqs.send, url, body[:-5], MessageAttributes={"a": TEXT})[0] == "InvalidParameterValue"  # 1 + 6 + 1 bytes more.
    small = sqs.queue(MaximumMessageSize=1024)
    assert refused(sqs.send, small, "é" * 513)[1].endswith("Message must be shorter than 1024 bytes.")
    assert sqs.send(small, "é" * 512)["MessageId"]


@pytest.mark.parametrize("character", ['"', "\\", "\n", "é"])
def test_the_largest_message_is_taken_whatever_its_attribute_consists_of(sqs, character: str):
    """Nobody but us cares how it is written down."""
    url = sqs.queue()
    value = character * ((1_048_576 - 8) // len(character.encode()))
    sqs.send(url, "x", MessageAttributes={"a": {"DataType": "String", "StringValue": value}})
    (message,) = sqs.receive(url, MessageAttributeNames=["All"])
    assert message["MessageAttributes"]["a"]["StringValue"] == value


def test_several_large_messages_come_in_one_answer(sqs):
    url = sqs.queue()
    bodies = [character * 200_000 for character in 'aé"']
    for body in bodies:
        sqs.send(url, body, MessageAttributes={"a": TEXT})
    messages = sqs.receive(url, MessageAttributeNames=["All"])
    assert [message["Body"] for message in messages] == bodies
    assert {message["MD5OfMessageAttributes"] for message in messages} == {"bef8bf215374a0a228d67533b1a488be"}


def test_an_empty_body_is_none(sqs, empty: str, refused: Refused):
    told = refused(sqs.send, empty, "")
    assert told == ("MissingParameter", "The request must contain the parameter MessageBody.")


def test_a_delay_has_its_bounds_and_its_queue_a_default(sqs, refused: Refused):
    url = sqs.queue(DelaySeconds=900)
    for seconds in (-1, 901):
        assert refused(sqs.send, url, "x", DelaySeconds=seconds)[0] == "InvalidParameterValue"
    sqs.send(url, "later")
    sqs.send(url, "now", DelaySeconds=0)
    assert sqs.bodies(url) == ["now"]
    assert sqs.counts(url) == (0, 1, 1)


def test_a_delayed_message_wakes_who_waits_for_it(sqs, polled):
    def prepare() -> tuple[str, Callable[[], object]]:
        url = sqs.queue()
        return url, lambda: sqs.send(url, "soon", **option("delay", EXPIRES_S))

    polled(prepare, ["soon"])
    url = sqs.queue()
    sqs.send(url, "soon", DelaySeconds=1)
    (message,) = sqs.first(url, AttributeNames=["All"])
    told = message["Attributes"]
    assert int(told["ApproximateFirstReceiveTimestamp"]) - int(told["SentTimestamp"]) >= 1_000


def test_a_deduplication_id_is_for_fifo_queues(sqs, empty: str, refused: Refused):
    assert refused(sqs.send, empty, "x", MessageDeduplicationId="id")[0] == "InvalidParameterValue"
    assert refused(sqs.receive, empty, ReceiveRequestAttemptId="id")[0] == "InvalidParameterValue"


def test_a_group_on_a_standard_queue_is_told_and_locks_nothing(sqs, refused: Refused):
    url = sqs.queue()
    sqs.send_to(url, "tenant", "a", "b")
    first, second = (sqs.receive(url, 1, AttributeNames=["MessageGroupId"])[0] for _ in range(2))
    assert {first["Body"], second["Body"]} == {"a", "b"}
    assert first["Attributes"] == {"MessageGroupId": "tenant"}
    for group in ("", "a" * 129, "group 123"):
        code, words = refused(sqs.send, url, "x", MessageGroupId=group)
        assert code == "InvalidParameterValue" and words.startswith(f"Value {group} for parameter MessageGroupId is invalid.")


def test_extensions_give_priority_long_delay_and_a_time_to_live(sqs):
    url = sqs.queue()
    sqs.send(url, "tomorrow", **option("delay", 86_400))
    sqs.send(url, "short-lived", **option("ttl", 0.001))
    sqs.send(url, "plain")
    sqs.send(url, "urgent", **option("priority", 9))
    assert sqs.bodies(url) == ["urgent", "plain"]
    assert sqs.counts(url)[2] == 1


# Receiving


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"MaxNumberOfMessages": 0}, "Must be between 1 and 10, if provided."),
        ({"MaxNumberOfMessages": 11}, "Must be between 1 and 10, if provided."),
        ({"WaitTimeSeconds": -1}, "Must be >= 0 and <= 20, if provided."),
        ({"WaitTimeSeconds": 21}, "Must be >= 0 and <= 20, if provided."),
        ({"VisibilityTimeout": -1}, "Must be >= 0 and <= 43200, if provided."),
        ({"VisibilityTimeout": 43_201}, "Must be >= 0 and <= 43200, if provided."),
    ],
)
def test_numbers_of_a_receive_have_their_bounds(sqs, empty: str, refused: Refused, fields: dict[str, int], words: str):
    ((name, value),) = fields.items()
    told = refused(sqs.receive_message, QueueUrl=empty, **fields)
    assert told == ("InvalidParameterValue", f"Value {value} for parameter {name} is invalid. Reason: {words}")


def test_a_long_poll_ends_with_the_first_message(sqs, polled):
    """The queue says how long one is that says nothing itself."""

    def prepare() -> tuple[str, Callable[[], object]]:
        url = sqs.queue(ReceiveMessageWaitTimeSeconds=20)
        return url, lambda: sqs.send(url, "x")

    polled(prepare, ["x"], says_how_long=False)


def test_a_receive_is_counted_and_hides_the_message(sqs):
    url = sqs.queue()
    sqs.send(url, "x")
    assert sqs.counts(url) == (1, 0, 0)
    (message,) = sqs.receive(url)
    assert sqs.counts(url) == (0, 1, 0)
    assert sqs.bodies(url) == []
    sqs.delete(url, message)
    assert sqs.counts(url) == (0, 0, 0)


def test_a_visibility_of_zero_hides_nothing(sqs):
    url = sqs.queue()
    sqs.send(url, "x")
    assert sqs.bodies(url, VisibilityTimeout=0) == sqs.bodies(url, VisibilityTimeout=30) == ["x"]
    assert sqs.bodies(url) == []


def test_too_many_in_flight_are_over_the_limit(sqs, refused: Refused):
    url = sqs.queue(more={"penstock.inflight.max": "2"})
    for body in "abc":
        sqs.send(url, body)
    held = sqs.receive(url)
    assert len(held) == 2
    assert refused(sqs.receive, url)[0] == "OverLimit"
    sqs.delete(url, held[0])
    assert len(sqs.receive(url)) == 1


def test_a_message_that_is_received_again_and_again_goes_to_the_back(sqs):
    url = sqs.queue()
    sqs.send(url, "stubborn")
    sqs.send(url, "other")
    for _ in range(3):
        assert sqs.bodies(url, 1, VisibilityTimeout=0) == ["stubborn"]
    assert sqs.bodies(url, 1) == ["other"]


def test_a_message_outlives_its_retention_by_nothing(sqs):
    url, unpolled = (sqs.queue(MessageRetentionPeriod=60, more={"penstock.ttl.ms": "1"}) for _ in range(2))
    for each in (url, unpolled):
        sqs.send(each, "x")
    until_later_than(time.time_ns() // 1_000_000)

    def is_gone() -> bool:
        assert sqs.bodies(url) == [], "it is received after its retention"
        return sqs.counts(url) == sqs.counts(unpolled) == (0, 0, 0)

    until(is_gone)
    assert sqs.bodies(unpolled) == []


def test_a_queue_of_the_python_door_is_the_same_queue(sqs, penstock_broker):
    queue = penstock_broker.queue()
    sent = queue.send(b"x", headers={"h": "text"}, priority=9)
    url = sqs.get_queue_url(QueueName=queue.name)["QueueUrl"]
    (message,) = sqs.receive(url, MessageAttributeNames=["All"])
    assert (message["MessageId"], message["Body"]) == (sent, "x")
    assert message["MessageAttributes"] == {"h": {"DataType": "String", "StringValue": "text"}}
    sqs.delete(url, message)
    assert queue.counts().unfinished == 0
    sqs.send(url, "y", MessageAttributes={"a": TEXT})
    (received,) = queue.receive()
    assert received.text == "y"
    received.ack()


def test_a_long_poll_ends_when_its_queue_is_deleted(sqs):
    url = sqs.queue()
    heard: list[object] = []

    def wait() -> None:
        try:
            heard.append(sqs.bodies(url, wait=20))
        except sqs.exceptions.QueueDoesNotExist as error:
            heard.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    sqs.bodies(url)  # By now the other one is on its way.
    sqs.delete_queue(QueueUrl=url)
    waiting.join(PATIENCE_S)
    assert len(heard) == 1 and (heard == [[]] or isinstance(heard[0], sqs.exceptions.QueueDoesNotExist))


# Deleting, and changing visibility


def test_deleting_twice_is_no_error_and_garbage_is_no_handle(sqs):
    url = sqs.queue()
    sqs.send(url, "x")
    (message,) = sqs.receive(url)
    for _ in range(3):
        sqs.delete(url, message)
    for garbage in ("garbage", message["ReceiptHandle"][:-1], "ü"):
        words = f'The input receipt handle "{garbage}" is not a valid receipt handle.'
        with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid, match=re.escape(words)):
            sqs.delete(url, {"ReceiptHandle": garbage})
        with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid, match=re.escape(words)):
            sqs.change(url, {"ReceiptHandle": garbage}, 5)
    other = sqs.queue()
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete(other, message)


def test_an_expired_handle_still_deletes(sqs):
    url = sqs.queue(more={"penstock.lease.ms": str(EXPIRES_MS)})
    sqs.send(url, "x")
    (first,) = sqs.receive(url)
    (second,) = sqs.first(url, VisibilityTimeout=0)
    assert first["ReceiptHandle"] != second["ReceiptHandle"]
    sqs.delete(url, first)
    assert sqs.bodies(url) == []
    assert sqs.counts(url) == (0, 0, 0)


def test_a_changed_visibility_does_not_count_for_the_next_receive(sqs):
    url = sqs.queue(more={"penstock.lease.ms": str(EXPIRES_MS)})
    sqs.send(url, "x")
    (message,) = sqs.receive(url, VisibilityTimeout=3_600)
    sqs.change(url, message, 600)
    sqs.change(url, message, 0)
    assert sqs.bodies(url) == ["x"]
    assert sqs.first_bodies(url) == ["x"], "the queue's own time should have counted"


def test_the_visibility_of_a_deleted_message_cannot_be_changed(sqs, refused: Refused):
    url = sqs.queue()
    sqs.send(url, "x")
    (message,) = sqs.receive(url)
    sqs.delete(url, message)
    code, words = refused(sqs.change, url, message, 10)
    assert code == "InvalidParameterValue"
    assert words.endswith("Message does not exist or is not available for visibility timeout change.")


def test_a_visibility_may_be_changed_late_while_nobody_else_has_the_message(sqs):
    url = sqs.queue()
    sqs.send(url, "x")
    (message,) = sqs.receive(url, VisibilityTimeout=0)
    sqs.change(url, message, 30)
    assert sqs.receive(url) == []
    sqs.change(url, message, 0)
    assert len(sqs.receive(url, VisibilityTimeout=30)) == 1
    with pytest.raises(sqs.exceptions.MessageNotInflight) as caught:
        sqs.change(url, message, 10)
    assert caught.value.response["Error"]["Code"] == "AWS.SimpleQueueService.MessageNotInflight"


def test_a_visibility_has_its_bounds(sqs, refused: Refused):
    url = sqs.queue()
    sqs.send(url, "x")
    (message,) = sqs.receive(url)
    for seconds in (-1, 43_201):
        assert refused(sqs.change, url, message, seconds)[0] == "InvalidParameterValue"
    code, words = refused(sqs.change, url, message, 43_200)  # Some time has passed since it came.
    assert code == "InvalidParameterValue" and words.endswith("beyond the limit [43200 seconds].")
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.change(url, {"ReceiptHandle": "garbage"}, 10)


# Batches


def entries(*ids: str, **more: Any) -> list[dict[str, Any]]:
    return [{"Id": each, "MessageBody": each or "x", **more} for each in ids]


def test_a_batch_is_sent_received_and_deleted(sqs):
    url = sqs.queue()
    ids = [f"id-{number}" for number in range(10)]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries(*ids, MessageAttributes={"a": TEXT}))
    assert [each["Id"] for each in sent["Successful"]] == ids and "Failed" not in sent
    assert all(each["MD5OfMessageAttributes"] == "bef8bf215374a0a228d67533b1a488be" for each in sent["Successful"])
    messages = sqs.receive(url)
    assert [message["Body"] for message in messages] == ids
    assert [message["MessageId"] for message in messages] == [each["MessageId"] for each in sent["Successful"]]
    handles = [{"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]} for at, message in enumerate(messages)]
    changed = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[{**each, "VisibilityTimeout": 60} for each in handles])
    assert [each["Id"] for each in changed["Successful"]] == [each["Id"] for each in handles]
    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=handles)
    assert [each["Id"] for each in deleted["Successful"]] == [each["Id"] for each in handles]
    assert sqs.counts(url) == (0, 0, 0)


@pytest.mark.parametrize("action", ["send_message_batch", "delete_message_batch", "change_message_visibility_batch"])
@pytest.mark.parametrize(
    ("ids", "shape"),
    [
        ([], "EmptyBatchRequest"),
        ([str(number) for number in range(11)], "TooManyEntriesInBatchRequest"),
        (["a", "b", "a"], "BatchEntryIdsNotDistinct"),
        (["a", ""], "InvalidBatchEntryId"),
        (["x" * 81], "InvalidBatchEntryId"),
        (["invalid:id"], "InvalidBatchEntryId"),
    ],
)
def test_a_batch_is_refused_as_a_whole_for_its_ids(sqs, empty: str, action: str, ids: list[str], shape: str):
    more = {"send_message_batch": {"MessageBody": "x"}, "delete_message_batch": {"ReceiptHandle": "x"}}
    fields = more.get(action, {"ReceiptHandle": "x", "VisibilityTimeout": 60})
    with pytest.raises(getattr(sqs.exceptions, shape)) as caught:
        getattr(sqs, action)(QueueUrl=empty, Entries=[{"Id": each, **fields} for each in ids])
    assert caught.value.response["Error"]["Code"] == f"AWS.SimpleQueueService.{shape}"
    assert sqs.counts(empty) == (0, 0, 0)


def test_a_batch_may_not_be_longer_than_one_message(sqs, refused: Refused):
    url = sqs.queue()
    halves = [{"Id": "1", "MessageBody": "x" * 524_288}, {"Id": "2", "MessageBody": "x" * 524_289}]
    code, words = refused(sqs.send_message_batch, QueueUrl=url, Entries=halves)
    assert code == "AWS.SimpleQueueService.BatchRequestTooLong"
    assert words == "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes."
    assert sqs.counts(url) == (0, 0, 0)


def test_one_entry_fails_and_the_others_are_sent(sqs):
    url = sqs.queue(MaximumMessageSize=1024)
    wrong = [
        {"Id": "long", "MessageBody": "x" * 1025},
        {"Id": "odd", "MessageBody": "\x00"},
        {"Id": "late", "MessageBody": "x", "DelaySeconds": 901},
        {"Id": "empty", "MessageBody": ""},
    ]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "good", "MessageBody": "good"}, *wrong])
    assert [each["Id"] for each in answer["Successful"]] == ["good"]
    failed = {each["Id"]: (each["Code"], each["SenderFault"]) for each in answer["Failed"]}
    assert failed == {
        "long": ("InvalidParameterValue", True), "odd": ("InvalidMessageContents", True), "late": ("InvalidParameterValue", True),
        "empty": ("MissingParameter", True),
    }  # fmt: skip
    (too_long,) = (each["Message"] for each in answer["Failed"] if each["Id"] == "long")
    assert too_long == "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes."
    assert sqs.bodies(url) == ["good"]


def test_one_handle_fails_and_the_others_are_settled(sqs):
    url = sqs.queue()
    sqs.send(url, "x")
    (message,) = sqs.receive(url)
    good, bad = {"Id": "good", "ReceiptHandle": message["ReceiptHandle"]}, {"Id": "bad", "ReceiptHandle": "garbage"}
    changed = sqs.change_message_visibility_batch(
        QueueUrl=url, Entries=[{**good, "VisibilityTimeout": 60}, {**bad, "VisibilityTimeout": 60}, {**bad, "Id": "none"}]
    )
    assert [each["Id"] for each in changed["Successful"]] == ["good"]
    assert {each["Id"]: each["Code"] for each in changed["Failed"]} == {"bad": "ReceiptHandleIsInvalid", "none": "MissingParameter"}
    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=[good, bad])
    assert [each["Id"] for each in deleted["Successful"]] == ["good"]
    assert [(each["Id"], each["Code"], each["SenderFault"]) for each in deleted["Failed"]] == [("bad", "ReceiptHandleIsInvalid", True)]
