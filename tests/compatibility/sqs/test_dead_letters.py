"""Dead letters through boto3: policies, how a message gets there, and move tasks, which bring it back."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from waiting import until, until_later_than

Refused = Callable[..., tuple[str, str]]


def policy(sqs: Any, url: str, count: object = 1) -> str:
    return json.dumps({"deadLetterTargetArn": sqs.arn(url), "maxReceiveCount": count})


def pair(sqs: Any, count: object = 1) -> tuple[str, str]:
    """A queue and its dead letters' queue."""
    dead = sqs.queue()
    return sqs.queue(RedrivePolicy=policy(sqs, dead, count)), dead


def fail(sqs: Any, url: str, dead: str, *bodies: str) -> None:
    """Messages that end among the dead letters."""
    entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
    for at in range(0, len(entries), 10):
        sqs.send_message_batch(QueueUrl=url, Entries=entries[at : at + 10])
    before = sqs.counts(dead)[0]
    while sqs.receive(url, VisibilityTimeout=0):
        pass
    until(lambda: sqs.counts(dead)[0] == before + len(bodies))


# Policies


@pytest.mark.parametrize("count", [3, "3"])
def test_a_policy_is_told_as_it_was_given(sqs, count: object):
    dead = sqs.queue()
    text = policy(sqs, dead, count)
    url = sqs.queue(RedrivePolicy=text)
    assert sqs.attributes(url, "RedrivePolicy") == {"RedrivePolicy": text}
    assert sqs.queue(url.rpartition("/")[2], RedrivePolicy=policy(sqs, dead, 3)) == url


def test_a_policy_is_taken_off_by_an_empty_one(sqs):
    url, _ = pair(sqs)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert sqs.attributes(url, "RedrivePolicy") == {}
    sqs.send(url, "x")
    assert [sqs.bodies(url, VisibilityTimeout=0) for _ in range(4)] == [["x"]] * 4


@pytest.mark.parametrize("count", [0, 1001, "many", None, True])
def test_a_count_has_its_bounds(sqs, refused: Refused, count: object):
    assert refused(sqs.queue, RedrivePolicy=policy(sqs, sqs.queue(), count))[0] == "InvalidParameterValue"


def test_a_target_must_be_there_be_of_the_same_kind_and_be_another_queue(sqs, refused: Refused):
    url, fifo = sqs.queue(), sqs.fifo()
    missing = json.dumps({"deadLetterTargetArn": sqs.arn(url) + "-not", "maxReceiveCount": 1})
    told = {
        "missing": refused(sqs.queue, RedrivePolicy=missing),
        "other kind": refused(sqs.queue, RedrivePolicy=policy(sqs, fifo)),
        "fifo": refused(sqs.fifo, RedrivePolicy=policy(sqs, url)),
        "itself": refused(sqs.set_queue_attributes, QueueUrl=url, Attributes={"RedrivePolicy": policy(sqs, url)}),
        "no arn": refused(sqs.queue, RedrivePolicy='{"deadLetterTargetArn":"dead","maxReceiveCount":1}'),
    }
    assert {each[0] for each in told.values()} == {"InvalidParameterValue"}, told
    assert told["missing"][1].endswith("Dead letter target does not exist.")


def test_a_queue_says_whose_dead_letters_it_takes(sqs, refused: Refused):
    dead, mine = sqs.queue(), sqs.queue()
    allow = {"redrivePermission": "byQueue", "sourceQueueArns": [sqs.arn(mine)]}
    sqs.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": json.dumps(allow)})
    assert json.loads(sqs.attributes(dead, "RedriveAllowPolicy")["RedriveAllowPolicy"]) == allow
    sqs.set_queue_attributes(QueueUrl=mine, Attributes={"RedrivePolicy": policy(sqs, dead)})
    assert refused(sqs.queue, RedrivePolicy=policy(sqs, dead))[0] == "InvalidParameterValue"
    for wrong in (
        {"redrivePermission": "byQueue"},
        {"redrivePermission": "denyAll", "sourceQueueArns": [sqs.arn(mine)]},
        {"redrivePermission": "byQueue", "sourceQueueArns": [sqs.arn(mine)] * 11},
        {"redrivePermission": "byQueue", "sourceQueueArns": "all"},
    ):
        told = refused(sqs.set_queue_attributes, QueueUrl=dead, Attributes={"RedriveAllowPolicy": json.dumps(wrong)})
        assert told[0] == "InvalidParameterValue"


def test_sources_of_dead_letters_are_listed_in_pages(sqs):
    dead = sqs.queue()
    sources = sorted(sqs.queue(RedrivePolicy=policy(sqs, dead)) for _ in range(3))
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == sources
    page = sqs.list_dead_letter_source_queues(QueueUrl=dead, MaxResults=2)
    assert page["queueUrls"] == sources[:2]
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead, NextToken=page["NextToken"])["queueUrls"] == sources[2:]
    assert sqs.list_dead_letter_source_queues(QueueUrl=sources[0])["queueUrls"] == []


# The way there


def test_a_message_moves_when_it_was_received_too_often_and_keeps_its_id(sqs):
    url, dead = pair(sqs, 2)
    attributes = {"a": {"DataType": "String", "StringValue": "b"}}
    sent = sqs.send(url, "x", MessageAttributes=attributes)
    assert [sqs.bodies(url, VisibilityTimeout=0) for _ in range(2)] == [["x"], ["x"]]
    assert sqs.bodies(url) == []
    (message,) = sqs.first(dead, AttributeNames=["All"], MessageAttributeNames=["All"])
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "x")
    assert message["MessageAttributes"] == attributes
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == sqs.arn(url)
    assert message["Attributes"]["ApproximateReceiveCount"] == "3", "the count goes on"
    assert sqs.counts(url) == (0, 0, 0)


def test_a_dead_letter_of_a_fifo_queue_frees_its_group(sqs):
    dead = sqs.fifo()
    url = sqs.fifo(RedrivePolicy=policy(sqs, dead))
    sqs.send_to(url, "a", "poison", "next")
    sqs.send_to(url, "b", "poison")  # Another message with the same body is a duplicate here,
    sqs.send_to(url, "b", "other")
    assert sqs.bodies(url, 1, VisibilityTimeout=0) == ["poison"]
    found: list[str] = []
    until(lambda: found.extend(sqs.bodies(url)) or len(found) == 2)
    assert sorted(found) == ["next", "other"]
    (message,) = sqs.first(dead, AttributeNames=["All"])
    assert (message["Body"], message["Attributes"]["MessageGroupId"]) == ("poison", "a")
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == sqs.arn(url)


def test_a_fifo_message_shows_its_group_and_its_id_among_the_dead_letters_and_when_it_is_back(sqs):
    """Its id is shown, and counts no more: neither queue takes the moved message for a second copy."""
    dead = sqs.fifo()
    url = sqs.fifo(RedrivePolicy=policy(sqs, dead))
    sqs.send(dead, "other", MessageGroupId="g", MessageDeduplicationId="d-1")  # The dead letters' queue has seen that id.
    sqs.send(url, "x", MessageGroupId="g", MessageDeduplicationId="d-1")
    sqs.delete(dead, *sqs.receive(dead))

    def names(message: dict[str, Any]) -> tuple[str, str, str]:
        told = message["Attributes"]
        return message["Body"], told["MessageGroupId"], told["MessageDeduplicationId"]

    for _ in range(2):  # All within the window of both queues.
        assert [names(each) for each in sqs.receive(url, VisibilityTimeout=0, AttributeNames=["All"])] == [("x", "g", "d-1")]
        assert sqs.bodies(url) == []
        assert [names(each) for each in sqs.first(dead, VisibilityTimeout=0, AttributeNames=["All"])] == [("x", "g", "d-1")]
        sqs.start_message_move_task(SourceArn=sqs.arn(dead))
        until(lambda: tasks(sqs, dead)[0]["Status"] == "COMPLETED")
    assert [names(each) for each in sqs.receive(url, AttributeNames=["All"])] == [("x", "g", "d-1")]


def test_a_dead_letter_of_a_standard_queue_keeps_the_time_of_its_sending_and_one_of_a_fifo_queue_does_not(sqs):
    def sent_at(url: str, **more: Any) -> int:
        (message,) = sqs.first(url, VisibilityTimeout=0, AttributeNames=["SentTimestamp"], **more)
        return int(message["Attributes"]["SentTimestamp"])

    last = sqs.queue()
    dead = sqs.queue(RedrivePolicy=policy(sqs, last))
    url = sqs.queue(RedrivePolicy=policy(sqs, dead))
    sqs.send(url, "x")
    first = sent_at(url)
    until_later_than(first)
    assert sqs.bodies(url) == []
    assert sent_at(dead) == first
    assert sqs.bodies(dead) == []
    assert sent_at(last) == first, "it died twice"
    sqs.start_message_move_task(SourceArn=sqs.arn(last))
    until(lambda: tasks(sqs, last)[0]["Status"] == "COMPLETED")
    assert sent_at(dead) > first, "what is sent back is sent anew"

    fifo_dead = sqs.fifo()
    fifo = sqs.fifo(RedrivePolicy=policy(sqs, fifo_dead))
    sqs.send_to(fifo, "g", "x")
    first = sent_at(fifo)
    until_later_than(first)
    assert sqs.bodies(fifo) == []
    assert sent_at(fifo_dead) > first


# The way back


def test_a_task_brings_dead_letters_back_to_where_they_came_from(sqs):
    first, dead = pair(sqs)
    second = sqs.queue(RedrivePolicy=policy(sqs, dead))
    fail(sqs, first, dead, "a", "b")
    fail(sqs, second, dead, "c")
    handle = sqs.start_message_move_task(SourceArn=sqs.arn(dead))["TaskHandle"]
    until(lambda: tasks(sqs, dead)[0]["Status"] == "COMPLETED")
    (task,) = tasks(sqs, dead)
    assert task["SourceArn"] == sqs.arn(dead)
    assert (task["ApproximateNumberOfMessagesMoved"], task["ApproximateNumberOfMessagesToMove"]) == (3, 3)
    assert not {"DestinationArn", "TaskHandle", "FailureReason"} & task.keys()
    assert task["StartedTimestamp"] > 1_700_000_000_000 and handle
    assert sorted(sqs.bodies(first)) == ["a", "b"]
    assert sqs.bodies(second) == ["c"]
    assert sqs.counts(dead) == (0, 0, 0)


def test_a_task_may_go_to_another_queue(sqs):
    url, dead = pair(sqs)
    other = sqs.queue()
    fail(sqs, url, dead, "a")
    sqs.start_message_move_task(SourceArn=sqs.arn(dead), DestinationArn=sqs.arn(other), MaxNumberOfMessagesPerSecond=500)
    assert sqs.first_bodies(other) == ["a"]
    until(lambda: tasks(sqs, dead)[0]["Status"] == "COMPLETED")
    (task,) = tasks(sqs, dead)
    assert (task["DestinationArn"], task["MaxNumberOfMessagesPerSecond"]) == (sqs.arn(other), 500)


def test_one_task_at_a_time_and_it_can_be_cancelled(sqs, refused: Refused):
    url, dead = pair(sqs)
    count = 60  # The task would take a minute.
    fail(sqs, url, dead, *map(str, range(count)))
    handle = sqs.start_message_move_task(SourceArn=sqs.arn(dead), MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
    (running,) = tasks(sqs, dead)
    assert (running["Status"], running["TaskHandle"]) == ("RUNNING", handle)
    told = refused(sqs.start_message_move_task, SourceArn=sqs.arn(dead))
    words = "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    assert told == ("InvalidParameterValue", words)
    moved = sqs.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
    until(lambda: tasks(sqs, dead)[0]["Status"] == "CANCELLED")
    assert 0 <= moved < count
    assert sqs.counts(dead)[0] + sqs.counts(url)[0] == count, "what was moved stays moved, and nothing is lost"


def tasks(sqs: Any, dead: str) -> list[dict[str, Any]]:
    return sqs.list_message_move_tasks(SourceArn=sqs.arn(dead), MaxResults=10)["Results"]


def test_what_a_task_is_refused_for(sqs, refused: Refused):
    url, dead = pair(sqs)
    arn, missing = sqs.arn(dead), sqs.arn(url) + "-not"
    no_source = "The resource that you specified for the SourceArn parameter doesn't exist."
    no_target = "The resource that you specified for the DestinationArn parameter doesn't exist."
    not_dead = "Source queue must be configured as a Dead Letter Queue."
    assert refused(sqs.start_message_move_task, SourceArn=missing) == ("ResourceNotFoundException", no_source)
    assert refused(sqs.list_message_move_tasks, SourceArn=missing) == ("ResourceNotFoundException", no_source)
    assert refused(sqs.start_message_move_task, SourceArn=arn, DestinationArn=missing) == ("ResourceNotFoundException", no_target)
    assert refused(sqs.start_message_move_task, SourceArn=sqs.arn(url)) == ("InvalidParameterValue", not_dead)
    for fields in (
        {"SourceArn": "dead"},
        {"SourceArn": arn, "MaxNumberOfMessagesPerSecond": 501},
        {"SourceArn": arn, "DestinationArn": arn},
    ):
        assert refused(sqs.start_message_move_task, **fields)[0] == "InvalidParameterValue"
    assert refused(sqs.list_message_move_tasks, SourceArn=arn, MaxResults=11)[0] == "InvalidParameterValue"


def test_a_task_goes_to_a_queue_of_the_same_type_only(sqs, refused: Refused):
    dead, fifo_dead = sqs.queue(), sqs.fifo()
    sqs.queue(RedrivePolicy=policy(sqs, dead))
    sqs.fifo(RedrivePolicy=policy(sqs, fifo_dead))
    told = ("InvalidParameterValue", "Destination queue must be same type of queue as the source.")
    assert refused(sqs.start_message_move_task, SourceArn=sqs.arn(dead), DestinationArn=sqs.arn(sqs.fifo())) == told
    assert refused(sqs.start_message_move_task, SourceArn=sqs.arn(fifo_dead), DestinationArn=sqs.arn(sqs.queue())) == told


def test_a_task_fails_by_awss_name_where_a_letter_came_from_nowhere(sqs):
    _, dead = pair(sqs)
    sqs.send(dead, "by hand")
    sqs.start_message_move_task(SourceArn=sqs.arn(dead))
    until(lambda: tasks(sqs, dead)[0]["Status"] == "FAILED")
    assert tasks(sqs, dead)[0]["FailureReason"] == "CouldNotDetermineMessageSource"


def test_what_a_cancellation_is_refused_for(sqs, refused: Refused):
    url = sqs.queue()

    def handle(**fields: str) -> str:
        return base64.b64encode(json.dumps(fields).encode()).decode()

    told = refused(sqs.cancel_message_move_task, TaskHandle="garbage")
    assert told == ("InvalidParameterValue", "Value for parameter TaskHandle is invalid.")
    assert refused(sqs.cancel_message_move_task, TaskHandle=handle(taskId="x"))[0] == "InvalidParameterValue"
    told = refused(sqs.cancel_message_move_task, TaskHandle=handle(taskId="x", sourceArn=sqs.arn(url)))
    assert told == ("ResourceNotFoundException", "Task does not exist.")
    told = refused(sqs.cancel_message_move_task, TaskHandle=handle(taskId="x", sourceArn=sqs.arn(url) + "-not"))
    assert told[1] == "The resource that you specified for the SourceArn parameter doesn't exist."
