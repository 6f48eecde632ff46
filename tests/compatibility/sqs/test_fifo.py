"""FIFO queues through boto3: order, locked groups, deduplication. Each claim is something that AWS was recorded doing."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from waiting import EXPIRES_MS, until

Refused = Callable[..., tuple[str, str]]


# Order and locks


def test_receive_fills_from_one_group_first_and_then_from_the_next(sqs):
    url = sqs.fifo()
    for group, body in (("a", "a1"), ("b", "b1"), ("a", "a2"), ("b", "b2"), ("a", "a3")):
        sqs.send(url, body, MessageGroupId=group)
    assert sqs.bodies(url, 4) == ["a1", "a2", "a3", "b1"]
    assert sqs.bodies(url) == [], "both groups are locked"


def test_a_group_in_flight_is_locked_and_others_go_on(sqs):
    url = sqs.fifo()
    sqs.send_to(url, "a", "a1", "a2")
    sqs.send_to(url, "b", "b1")
    assert sqs.bodies(url, 1) == ["a1"]
    assert sqs.bodies(url) == ["b1"]
    assert sqs.bodies(url) == []


def test_a_new_message_does_not_unlock_its_group(sqs, polled):
    """A poll that waits meanwhile is given what another group has."""
    queues: list[tuple[str, dict[str, Any]]] = []

    def prepare() -> tuple[str, Callable[[], None]]:
        url = sqs.fifo()
        sqs.send_to(url, "a", "a1")
        queues.append((url, *sqs.receive(url)))

        def send() -> None:
            sqs.send_to(url, "a", "a2")
            sqs.send_to(url, "b", "b1")

        return url, send

    polled(prepare, ["b1"])
    url, held = queues[-1]
    sqs.delete(url, held)
    assert sqs.bodies(url) == ["a2"]


def test_deleting_all_that_was_received_unlocks_the_group_and_wakes_who_waits(sqs, polled):
    def prepare() -> tuple[str, Callable[[], None]]:
        url = sqs.fifo()
        sqs.send_to(url, "a", "a1", "a2", "a3")
        held = sqs.receive(url, 2)
        return url, lambda: sqs.delete(url, *held)

    polled(prepare, ["a3"])


def test_deleting_some_leaves_the_group_locked_until_the_rest_is_visible_again(sqs):
    url = sqs.fifo()
    sqs.send_to(url, "a", "a1", "a2", "a3")
    first, second = sqs.receive(url, 2)
    sqs.delete(url, first)
    assert sqs.bodies(url) == []
    sqs.change(url, second, 0)
    assert sqs.bodies(url) == ["a2", "a3"], "what came back comes first"


def test_order_is_kept_however_often_a_message_comes_back(sqs):
    url = sqs.fifo()
    sqs.send_to(url, "a", "a1", "a2")
    for _ in range(4):
        assert sqs.bodies(url, 1, VisibilityTimeout=0) == ["a1"]
    assert sqs.bodies(url) == ["a1", "a2"]


def test_a_lapsed_lease_frees_the_group(sqs):
    url = sqs.fifo()
    sqs.send_to(url, "a", "a1", "a2")
    assert sqs.bodies(url, 1, VisibilityTimeout=1) == ["a1"]
    assert sqs.first_bodies(url) == ["a1", "a2"]


@pytest.mark.parametrize("held", [(0,), (1,), (2,), (0, 1), (0, 1, 2), ()])
def test_a_group_gives_what_came_back_in_front_of_the_first_in_flight(sqs, held: tuple[int, ...]):
    """As AWS was recorded doing."""
    url = sqs.fifo(VisibilityTimeout=60)
    sqs.send_to(url, "a", "m0", "m1", "m2")
    messages = sqs.receive(url, 3)
    for at, message in enumerate(messages):
        if at not in held:
            sqs.change(url, message, 0)
    first = min(held, default=3)
    again = sqs.receive(url, 10)
    assert [each["Body"] for each in again] == ["m0", "m1", "m2"][:first]
    for message in (*again, *(messages[at] for at in held)):
        sqs.change(url, message, 0)
    assert sqs.bodies(url) == ["m0", "m1", "m2"]


def test_an_emptied_group_comes_back_with_its_next_message(sqs):
    url = sqs.fifo()
    sqs.send_to(url, "a", "a1")
    sqs.delete(url, *sqs.receive(url))
    assert sqs.bodies(url) == []
    sqs.send_to(url, "a", "a2")
    assert sqs.bodies(url) == ["a2"]


# Delays


def test_a_delay_is_the_queues_alone(sqs, refused: Refused):
    url = sqs.fifo()
    code, words = refused(sqs.send, url, "x", MessageGroupId="a", DelaySeconds=2)
    assert code == "InvalidParameterValue"
    assert words == (
        "Value 2 for parameter DelaySeconds is invalid. Reason: The request include parameter that is not valid for this queue type."
    )


def test_a_delay_of_zero_is_the_queues_delay(sqs):
    url = sqs.fifo(DelaySeconds=1)
    sqs.send(url, "x", MessageGroupId="a", DelaySeconds=0)
    (message,) = sqs.first(url, AttributeNames=["All"])
    told = message["Attributes"]
    assert int(told["ApproximateFirstReceiveTimestamp"]) - int(told["SentTimestamp"]) >= 1_000


def test_a_delayed_message_does_not_lock_its_group(sqs):
    url = sqs.fifo()
    sqs.send_to(url, "a", "now")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "900"})
    sqs.send_to(url, "a", "delayed")
    assert sqs.bodies(url) == ["now"]
    assert sqs.counts(url) == (0, 1, 1)


def test_a_changed_delay_holds_for_those_that_wait_and_the_order_holds(sqs):
    url = sqs.fifo(DelaySeconds=900)
    sqs.send_to(url, "a", "first")
    assert sqs.bodies(url) == []
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})
    sqs.send_to(url, "a", "second")
    assert sqs.bodies(url) == ["first", "second"]


# Deduplication


def test_a_group_and_an_id_must_be_given(sqs, refused: Refused):
    url = sqs.fifo(ContentBasedDeduplication=False)
    no_dedup = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    assert refused(sqs.send, url, "x", MessageGroupId="a") == ("InvalidParameterValue", no_dedup)
    no_group = "The request must contain the parameter MessageGroupId."
    assert refused(sqs.send, url, "x", MessageDeduplicationId="1") == ("MissingParameter", no_group)
    entry: dict[str, Any] = {"Id": "1", "MessageBody": "x"}
    told = refused(sqs.send_message_batch, QueueUrl=url, Entries=[{**entry, "MessageGroupId": "a"}])
    assert told == ("InvalidParameterValue", no_dedup)
    told = refused(sqs.send_message_batch, QueueUrl=url, Entries=[{**entry, "MessageDeduplicationId": "a"}])
    assert told == ("InvalidParameterValue", no_group)


@pytest.fixture(scope="module")
def empty_fifo(sqs) -> str:
    """For messages that are refused."""
    return sqs.fifo()


@pytest.mark.parametrize("text", ["", "a" * 129, "group 123", "ü"])
@pytest.mark.parametrize("name", ["MessageGroupId", "MessageDeduplicationId"])
def test_ids_are_of_letters_digits_and_punctuation(sqs, empty_fifo: str, refused: Refused, name: str, text: str):
    code, words = refused(sqs.send, empty_fifo, "x", **({"MessageGroupId": "a"} | {name: text}))
    reason = f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length."
    assert (code, words) == ("InvalidParameterValue", f"Value {text} for parameter {name} is invalid. Reason: {reason}")


def test_ids_may_have_any_punctuation(sqs):
    marks = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    url = sqs.fifo()
    sqs.send(url, "x", MessageGroupId=marks, MessageDeduplicationId=marks)
    (message,) = sqs.receive(url, AttributeNames=["All"])
    assert message["Attributes"]["MessageGroupId"] == message["Attributes"]["MessageDeduplicationId"] == marks


@pytest.mark.parametrize("by_content", [True, False])
def test_a_duplicate_is_answered_with_the_first_message_also_after_that_was_deleted(sqs, by_content: bool):
    url = sqs.fifo(ContentBasedDeduplication=by_content)
    more = {"MessageGroupId": "a"} | ({} if by_content else {"MessageDeduplicationId": "id"})
    first = sqs.send(url, "x", **more)
    assert sqs.send(url, "x", **more)["MessageId"] == first["MessageId"]
    sqs.delete(url, *sqs.receive(url))
    again = sqs.send(url, "x", **more)
    assert (again["MessageId"], again["SequenceNumber"]) == (first["MessageId"], first["SequenceNumber"])
    assert sqs.bodies(url) == []


def test_ids_from_the_body_can_be_switched_on(sqs):
    url = sqs.fifo(ContentBasedDeduplication=False)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"ContentBasedDeduplication": "true"})
    sqs.send_to(url, "a", "x", "x")
    assert sqs.bodies(url) == ["x"]


def test_the_same_body_with_another_id_is_another_message(sqs):
    url = sqs.fifo()
    for dedup in ("1", "2", "2"):
        sqs.send(url, "x", MessageGroupId="a", MessageDeduplicationId=dedup)
    assert sqs.bodies(url) == ["x", "x"]


def test_an_id_counts_in_the_whole_queue_or_by_group(sqs):
    whole, by_group = sqs.fifo(), sqs.fifo(DeduplicationScope="messageGroup")
    for group in ("a", "b", "a"):
        sqs.send(whole, "x", MessageGroupId=group)
        sqs.send(by_group, "x", MessageGroupId=group)
    assert len(sqs.receive(whole)) == 1
    assert len(sqs.receive(by_group)) == 2


def test_duplicates_in_one_batch_are_one_message(sqs):
    url = sqs.fifo()
    entries = [{"Id": str(number), "MessageBody": "x", "MessageGroupId": "a"} for number in range(3)]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
    assert len({each["MessageId"] for each in sent}) == 1
    assert sqs.bodies(url) == ["x"]


def test_a_purge_forgets_ids(sqs):
    url = sqs.fifo()
    sqs.send_to(url, "a", "x")
    sqs.purge_queue(QueueUrl=url)
    sqs.send_to(url, "a", "x")
    assert sqs.bodies(url) == ["x"]


# What is told of a message


def test_attributes_of_a_fifo_message(sqs):
    url = sqs.fifo()
    sent = [sqs.send(url, "x", MessageGroupId="group-1", MessageDeduplicationId=f"dedup-{number}") for number in range(3)]
    numbers = [each["SequenceNumber"] for each in sent]
    assert numbers == sorted(numbers) and len(set(numbers)) == 3 and all(len(each) == 20 for each in numbers)
    messages = sqs.receive(url, AttributeNames=["All"])
    assert [message["Attributes"]["SequenceNumber"] for message in messages] == numbers
    first = messages[0]["Attributes"]
    assert (first["MessageGroupId"], first["MessageDeduplicationId"]) == ("group-1", "dedup-0")


# Handles


def test_an_expired_handle_deletes_nothing(sqs, refused: Refused):
    url = sqs.fifo()
    sqs.send_to(url, "a", "x")
    (first,) = sqs.receive(url, VisibilityTimeout=0)
    code, words = refused(sqs.delete, url, first)
    assert code == "InvalidParameterValue"
    assert words == f"Value {first['ReceiptHandle']} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=[{"Id": "1", "ReceiptHandle": first["ReceiptHandle"]}])
    assert [each["Code"] for each in answer["Failed"]] == ["InvalidParameterValue"]
    (second,) = sqs.receive(url)
    sqs.delete(url, second)
    assert sqs.counts(url) == (0, 0, 0)


def test_an_extended_lease_deletes(sqs):
    """Also when the lease that it had at first has run out: that of a message with the same one has."""
    leases_ms = (EXPIRES_MS << number for number in range(20))

    def extended() -> tuple[str, dict[str, Any]] | None:
        url = sqs.fifo(more={"penstock.lease.ms": str(next(leases_ms))})
        sqs.send_to(url, "a", "x")
        sqs.send_to(url, "b", "y")
        message, _ = sqs.receive(url)
        try:
            sqs.change(url, message, 3_600)
        except sqs.exceptions.MessageNotInflight:
            return None  # That was too late; the next lease is longer.
        return url, message

    url, message = until(extended)
    assert sqs.first_bodies(url, VisibilityTimeout=3_600) == ["y"]
    sqs.delete(url, message)
    assert sqs.counts(url) == (0, 1, 0)


def test_an_attempt_id_gives_the_same_messages_and_handles_again(sqs):
    url = sqs.fifo()
    sqs.send_to(url, "a", "a1", "a2")
    sqs.send_to(url, "b", "b1")
    attempt = uuid4().hex
    first = sqs.receive(url, 2, ReceiveRequestAttemptId=attempt)
    again = sqs.receive(url, 2, ReceiveRequestAttemptId=attempt)
    assert [message["Body"] for message in first] == ["a1", "a2"]
    assert [(message["Body"], message["ReceiptHandle"]) for message in again] == [
        (message["Body"], message["ReceiptHandle"]) for message in first
    ]
    assert sqs.bodies(url, ReceiveRequestAttemptId=uuid4().hex) == ["b1"]


def test_at_the_limit_of_messages_in_flight_nothing_comes_and_nothing_is_said(sqs):
    url = sqs.fifo(more={"penstock.inflight.max": "1"})
    sqs.send_to(url, "a", "a1")
    sqs.send_to(url, "b", "b1")
    assert sqs.bodies(url) == ["a1"]
    assert sqs.bodies(url) == []
