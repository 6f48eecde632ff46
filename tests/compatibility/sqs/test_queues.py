"""Queues through boto3: made, found, listed, set, tagged, purged and deleted, with the errors that AWS gives."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from penstock.testing import Broker

Refused = Callable[..., tuple[str, str]]


def fresh() -> str:
    return f"q-{uuid4().hex[:12]}"


# Making


def test_a_queue_is_made_found_and_deleted(sqs, refused: Refused):
    name = fresh()
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    assert url == f"{sqs.url}/000000000000/{name}"
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    sqs.delete_queue(QueueUrl=url)
    code, words = refused(sqs.get_queue_url, QueueName=name)
    assert (code, words) == ("AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")


def test_a_missing_queue_is_an_exception_of_its_own(sqs):
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as caught:
        sqs.send(f"{sqs.url}/000000000000/{fresh()}", "x")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert caught.value.response["Error"]["QueryErrorCode"] == "QueueDoesNotExist"


def test_the_end_of_a_url_names_the_queue_whatever_stands_before(sqs):
    name = fresh()
    sqs.queue(name)
    for url in (f"http://sqs.eu-west-3.amazonaws.com/123456789012/{name}", f"https://other:1/queue/{name}", f"/{name}/", name):
        assert sqs.send(url, "x")["MessageId"]


def test_a_topic_that_is_no_queue_does_not_exist_here(sqs, penstock_broker, refused: Refused):
    topic = penstock_broker.create_topic()
    assert refused(sqs.get_queue_url, QueueName=topic)[0] == "AWS.SimpleQueueService.NonExistentQueue"
    assert not any(url.endswith(topic) for url in sqs.list_queues().get("QueueUrls", []))
    code, words = refused(sqs.queue, topic)
    assert code == "QueueAlreadyExists" and "not a queue" in words


@pytest.mark.parametrize("name", ["a b", "x" * 81, "ü", "a.b", "q.fifo", ".fifo", "a/b"])
def test_a_name_that_cannot_be_one_is_refused(sqs, refused: Refused, name: str):
    assert refused(sqs.queue, name)[0] == "InvalidParameterValue"


def test_a_fifo_queue_must_be_called_so(sqs, refused: Refused):
    assert refused(sqs.queue, fresh(), FifoQueue=True)[0] == "InvalidParameterValue"
    assert refused(sqs.queue, "x" * 76 + ".fifo", FifoQueue=True)[0] == "InvalidParameterValue"  # The suffix counts.
    url = sqs.fifo()
    assert sqs.attributes(url, "FifoQueue") == {"FifoQueue": "true"}


def test_making_it_again_succeeds_where_what_is_given_holds(sqs, refused: Refused):
    name = fresh()
    url = sqs.queue(name, VisibilityTimeout=70, DelaySeconds=1)
    assert sqs.queue(name) == url
    assert sqs.queue(name, VisibilityTimeout=70) == url
    assert sqs.queue(name, MaximumMessageSize=1_048_576) == url
    code, words = refused(sqs.queue, name, DelaySeconds=2)
    assert code == "QueueAlreadyExists"
    assert words == "A queue already exists with the same name and a different value for attribute DelaySeconds"


def test_a_name_cannot_be_used_again_for_a_minute(sqs):
    name = fresh()
    sqs.delete_queue(QueueUrl=sqs.queue(name))
    with pytest.raises(sqs.exceptions.QueueDeletedRecently) as caught:
        sqs.queue(name)
    assert caught.value.response["Error"]["Code"] == "AWS.SimpleQueueService.QueueDeletedRecently"


@pytest.mark.parametrize(
    ("attributes", "code", "words"),
    [
        ({"Nonsense": "1"}, "InvalidAttributeName", "Unknown Attribute Nonsense."),
        ({"QueueArn": "x"}, "InvalidAttributeName", "Unknown Attribute QueueArn."),
        ({"FifoQueue": "false"}, "InvalidAttributeName", "Unknown Attribute FifoQueue."),
        ({"penstock.enabled": "false"}, "InvalidAttributeName", "Unknown Attribute penstock.enabled."),
        ({"penstock.sqs": "{}"}, "InvalidAttributeName", "Unknown Attribute penstock.sqs."),
        ({"penstock.fifo": "true"}, "InvalidAttributeName", "Unknown Attribute penstock.fifo."),
        ({"ContentBasedDeduplication": "true"}, "InvalidAttributeName", "Unknown Attribute ContentBasedDeduplication."),
        (
            {"DeduplicationScope": "queue"},
            "InvalidAttributeName",
            "You can specify the DeduplicationScope only when FifoQueue is set to true.",
        ),
        (
            {"FifoThroughputLimit": "perQueue"},
            "InvalidAttributeName",
            "You can specify the FifoThroughputLimit only when FifoQueue is set to true.",
        ),
        ({"DelaySeconds": "901"}, "InvalidAttributeValue", "DelaySeconds"),
        ({"DelaySeconds": "-1"}, "InvalidAttributeValue", "DelaySeconds"),
        ({"DelaySeconds": "soon"}, "InvalidAttributeValue", "DelaySeconds"),
        ({"MaximumMessageSize": "1023"}, "InvalidAttributeValue", "MaximumMessageSize"),
        ({"MaximumMessageSize": "1048577"}, "InvalidAttributeValue", "MaximumMessageSize"),
        ({"MessageRetentionPeriod": "59"}, "InvalidAttributeValue", "MessageRetentionPeriod"),
        ({"MessageRetentionPeriod": "1209601"}, "InvalidAttributeValue", "MessageRetentionPeriod"),
        ({"ReceiveMessageWaitTimeSeconds": "21"}, "InvalidAttributeValue", "ReceiveMessageWaitTimeSeconds"),
        ({"VisibilityTimeout": "43201"}, "InvalidAttributeValue", "VisibilityTimeout"),
        ({"KmsDataKeyReusePeriodSeconds": "59"}, "InvalidAttributeValue", "KmsDataKeyReusePeriodSeconds"),
        ({"SqsManagedSseEnabled": "yes"}, "InvalidAttributeValue", "SqsManagedSseEnabled"),
        ({"Policy": "{"}, "InvalidAttributeValue", "Policy"),
        ({"RedrivePolicy": "[]"}, "InvalidParameterValue", "RedrivePolicy"),
        ({"RedrivePolicy": "{}"}, "InvalidParameterValue", "deadLetterTargetArn"),
        ({"RedriveAllowPolicy": '{"redrivePermission":"some"}'}, "InvalidParameterValue", "redrivePermission"),
        ({"penstock.nonsense": "1"}, "InvalidParameterValue", "queue.nonsense"),
        ({"penstock.partitions": "none"}, "InvalidAttributeValue", "penstock.partitions"),
    ],
)
def test_an_attribute_that_cannot_be_is_refused_and_nothing_is_made(
    sqs, refused: Refused, attributes: dict[str, str], code: str, words: str
):
    name = fresh()
    told = refused(sqs.create_queue, QueueName=name, Attributes=attributes)
    assert told[0] == code and words in told[1], told
    assert refused(sqs.get_queue_url, QueueName=name)[0].endswith("NonExistentQueue")
    url = sqs.queue(name)
    if not {"FifoQueue", "penstock.partitions"} & attributes.keys():
        assert refused(sqs.set_queue_attributes, QueueUrl=url, Attributes=attributes)[0] == code


# Attributes

DEFAULTS = {
    "ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesDelayed": "0", "ApproximateNumberOfMessagesNotVisible": "0",
    "DelaySeconds": "0", "MaximumMessageSize": "1048576", "MessageRetentionPeriod": "345600", "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true", "VisibilityTimeout": "30",
}  # fmt: skip
FIFO_DEFAULTS = {
    "FifoQueue": "true", "ContentBasedDeduplication": "false", "DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"
}  # fmt: skip


def without_times(attributes: dict[str, str]) -> dict[str, str]:
    assert int(attributes["CreatedTimestamp"]) > 1_700_000_000
    assert int(attributes["LastModifiedTimestamp"]) >= int(attributes["CreatedTimestamp"])
    return {name: value for name, value in attributes.items() if not name.endswith("Timestamp")}


def test_a_new_queue_has_the_defaults_of_aws(sqs):
    name = fresh()
    url = sqs.queue(name)
    assert without_times(sqs.attributes(url)) == DEFAULTS | {"QueueArn": f"arn:aws:sqs:us-east-1:000000000000:{name}"}
    fifo = sqs.fifo(ContentBasedDeduplication=False)
    assert without_times(sqs.attributes(fifo)) == DEFAULTS | FIFO_DEFAULTS | {"QueueArn": sqs.arn(fifo)}


def test_a_queue_of_another_door_shows_what_holds_there(sqs, refused: Refused, penstock_broker: Broker):
    queue = penstock_broker.queue(lease=90)
    found = sqs.attributes(queue.name)
    assert (found["VisibilityTimeout"], found["MessageRetentionPeriod"]) == ("90", "1209600")
    assert not {"CreatedTimestamp", "LastModifiedTimestamp"} & found.keys(), "nobody knows"
    largest = int(found["MaximumMessageSize"])
    assert sqs.send(queue.name, "x" * largest)["MessageId"]
    code, words = refused(sqs.send, queue.name, "x" * (largest + 1))
    assert (code, words) == ("InvalidParameterValue", "the message has 1048589 bytes in the log, 1048588 are allowed")
    assert refused(sqs.queue, queue.name, MessageRetentionPeriod=345_600)[0] == "QueueAlreadyExists"
    assert sqs.queue(queue.name, VisibilityTimeout=90, MaximumMessageSize=largest).endswith(queue.name)

    sqs.tag_queue(QueueUrl=queue.name, Tags={"a": "b"})
    assert sqs.attributes(queue.name, "MaximumMessageSize") == {"MaximumMessageSize": str(largest)}
    sqs.set_queue_attributes(QueueUrl=queue.name, Attributes={"MaximumMessageSize": "1048576"})
    assert sqs.attributes(queue.name, "MaximumMessageSize") == {"MaximumMessageSize": "1048576"}
    assert sqs.send(queue.name, "x" * (1 << 20))["MessageId"], "who wants such messages gets them"
    assert int(sqs.attributes(queue.name)["LastModifiedTimestamp"]) > 1_700_000_000


def test_without_names_no_attribute_is_told_and_unknown_ones_are_refused(sqs, refused: Refused):
    url = sqs.queue()
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url)
    assert sqs.attributes(url, "FifoQueue", "VisibilityTimeout") == {"VisibilityTimeout": "30"}
    assert refused(sqs.attributes, url, "Nonsense") == ("InvalidAttributeName", "Unknown Attribute Nonsense.")


def test_attributes_that_are_set_hold_and_others_stay(sqs):
    url = sqs.queue(MessageRetentionPeriod=604_800, ReceiveMessageWaitTimeSeconds=10, VisibilityTimeout=200)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "69", "DelaySeconds": "420", "MaximumMessageSize": "2048"})
    found = sqs.attributes(url)
    expected = {
        "MessageRetentionPeriod": "604800", "ReceiveMessageWaitTimeSeconds": "10", "VisibilityTimeout": "69", "DelaySeconds": "420",
        "MaximumMessageSize": "2048",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_the_kind_of_a_queue_does_not_change(sqs, refused: Refused):
    standard, fifo = sqs.queue(), sqs.fifo()
    told = refused(sqs.set_queue_attributes, QueueUrl=standard, Attributes={"FifoQueue": "true"})
    assert told == ("InvalidAttributeName", "Unknown Attribute FifoQueue.")
    code, words = refused(sqs.set_queue_attributes, QueueUrl=fifo, Attributes={"FifoQueue": "false"})
    assert (code, words) == (
        "InvalidAttributeValue",
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
    )
    sqs.set_queue_attributes(QueueUrl=fifo, Attributes={"FifoQueue": "true"})


def test_only_one_kind_of_encryption_is_written_down(sqs, refused: Refused):
    url = sqs.queue()
    names = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"KmsMasterKeyId": "testKeyId", "KmsDataKeyReusePeriodSeconds": "6000"})
    assert sqs.attributes(url, *names) == {
        "KmsMasterKeyId": "testKeyId", "KmsDataKeyReusePeriodSeconds": "6000", "SqsManagedSseEnabled": "false"
    }  # fmt: skip
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"KmsMasterKeyId": "", "KmsDataKeyReusePeriodSeconds": "300"})
    assert sqs.attributes(url, *names) == {"SqsManagedSseEnabled": "false"}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"SqsManagedSseEnabled": "true"})
    assert sqs.attributes(url, *names) == {"SqsManagedSseEnabled": "true"}
    both = {"KmsMasterKeyId": "testKeyId", "SqsManagedSseEnabled": "true"}
    code, words = refused(sqs.set_queue_attributes, QueueUrl=url, Attributes=both)
    assert code == "InvalidAttributeName" and words.startswith("You can use one type of server-side encryption")


def test_throughput_by_group_wants_ids_by_group(sqs, refused: Refused):
    assert refused(sqs.fifo, FifoThroughputLimit="perMessageGroupId")[0] == "InvalidAttributeValue"
    url = sqs.fifo(FifoThroughputLimit="perMessageGroupId", DeduplicationScope="messageGroup")
    assert sqs.attributes(url, "DeduplicationScope", "FifoThroughputLimit") == {
        "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"
    }  # fmt: skip


def test_an_extension_is_a_setting_of_the_queue(sqs, refused: Refused):
    more = {"penstock.backoff.min.ms": "1500", "penstock.partitions": "3"}
    name = fresh()
    url = sqs.queue(name, more=more)
    assert not any(key.startswith("penstock.") for key in sqs.attributes(url))
    assert sqs.attributes(url, *more) == more
    assert sqs.queue(name, more=more) == url
    assert refused(sqs.queue, name, more={"penstock.partitions": "2"})[0] == "QueueAlreadyExists"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"penstock.backoff.min.ms": "0"})
    assert sqs.attributes(url, "penstock.backoff.min.ms") == {"penstock.backoff.min.ms": "0"}


def test_a_fifo_queue_has_several_partitions_only_with_ids_by_group(sqs, refused: Refused):
    assert refused(sqs.fifo, more={"penstock.partitions": "2"})[0] == "InvalidAttributeValue"
    url = sqs.fifo(DeduplicationScope="messageGroup", more={"penstock.partitions": "2"})
    assert refused(sqs.set_queue_attributes, QueueUrl=url, Attributes={"DeduplicationScope": "queue"})[0] == "InvalidAttributeValue"


# Lists


def test_queues_are_listed_in_pages(sqs):
    prefix = f"list-{uuid4().hex[:8]}-"
    urls = [sqs.queue(f"{prefix}{number}") for number in range(5)]
    assert sqs.list_queues(QueueNamePrefix=prefix)["QueueUrls"] == urls
    assert "NextToken" not in sqs.list_queues(QueueNamePrefix=prefix)
    first = sqs.list_queues(QueueNamePrefix=prefix, MaxResults=2)
    assert first["QueueUrls"] == urls[:2]
    rest = sqs.list_queues(QueueNamePrefix=prefix, MaxResults=1000, NextToken=first["NextToken"])
    assert rest["QueueUrls"] == urls[2:] and "NextToken" not in rest
    paged = sqs.client.get_paginator("list_queues").paginate(QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2})
    assert [url for page in paged for url in page["QueueUrls"]] == urls
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="nothing-begins-like-this")


def test_a_page_has_its_bounds(sqs, refused: Refused):
    for count in (0, 1001):
        assert refused(sqs.list_queues, MaxResults=count)[0] == "InvalidParameterValue"
    assert refused(sqs.list_queues, MaxResults=1, NextToken="%%%")[0] == "InvalidParameterValue"


# Tags and permissions


def test_tags_are_set_listed_and_taken_off(sqs, refused: Refused):
    url = sqs.create_queue(QueueName=fresh(), tags={"tag1": "value1"})["QueueUrl"]
    sqs.tag_queue(QueueUrl=url, Tags={"tag2": "value2", "tag3": ""})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"tag1": "value1", "tag2": "value2", "tag3": ""}
    sqs.untag_queue(QueueUrl=url, TagKeys=["tag1", "tag3", "never"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"tag2": "value2"}
    sqs.untag_queue(QueueUrl=url, TagKeys=["tag2"])
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=url)
    assert refused(sqs.tag_queue, QueueUrl=url, Tags={"k" * 129: "v"})[0] == "InvalidParameterValue"
    assert refused(sqs.tag_queue, QueueUrl=url, Tags={"AWS:cloud": "v"})[0] == "InvalidParameterValue"
    assert refused(sqs.create_queue, QueueName=fresh(), tags={"aws:cloud": "v"})[0] == "InvalidParameterValue"
    assert refused(sqs.tag_queue, QueueUrl=url, Tags={str(number): "v" for number in range(51)})[0] == "InvalidParameterValue"


def test_permissions_are_statements_of_the_policy(sqs, refused: Refused):
    url = sqs.queue()
    arn = sqs.arn(url)
    sqs.add_permission(QueueUrl=url, Label="first", AWSAccountIds=["668614515564", "111111111111"], Actions=["ReceiveMessage"])
    policy = json.loads(sqs.attributes(url, "Policy")["Policy"])
    assert policy == {
        "Version": "2008-10-17",
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "first",
                "Effect": "Allow",
                "Principal": {"AWS": ["arn:aws:iam::668614515564:root", "arn:aws:iam::111111111111:root"]},
                "Action": "SQS:ReceiveMessage",
                "Resource": arn,
            }
        ],
    }
    told = refused(sqs.add_permission, QueueUrl=url, Label="first", AWSAccountIds=["111111111111"], Actions=["SendMessage"])
    assert told == ("InvalidParameterValue", "Value first for parameter Label is invalid. Reason: Already exists.")
    sqs.add_permission(QueueUrl=url, Label="second", AWSAccountIds=["111111111111"], Actions=["*"])
    sqs.remove_permission(QueueUrl=url, Label="first")
    assert [each["Sid"] for each in json.loads(sqs.attributes(url, "Policy")["Policy"])["Statement"]] == ["second"]
    told = refused(sqs.remove_permission, QueueUrl=url, Label="first")
    assert told == ("InvalidParameterValue", "Value first for parameter Label is invalid. Reason: can't find label.")
    sqs.remove_permission(QueueUrl=url, Label="second")
    assert sqs.attributes(url, "Policy") == {}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"Actions": ["Nonsense"]}, "InvalidParameterValue"),
        ({"AWSAccountIds": ["me"]}, "InvalidParameterValue"),
        ({"Label": "not a label"}, "InvalidParameterValue"),
        ({"Actions": []}, "MissingParameter"),
        ({"AWSAccountIds": []}, "MissingParameter"),
        ({"Actions": ["SendMessage"] * 8}, "OverLimit"),
    ],
)
def test_a_permission_that_cannot_be_is_refused(sqs, empty: str, refused: Refused, change: dict[str, Any], code: str):
    wish = {"QueueUrl": empty, "Label": "label", "AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"]}
    assert refused(sqs.add_permission, **(wish | change))[0] == code


# Purging


def test_a_purge_takes_what_waits_what_is_in_flight_and_what_is_delayed(sqs):
    url = sqs.queue()
    sqs.send(url, "in flight")
    assert sqs.bodies(url) == ["in flight"]
    sqs.send(url, "waits")
    sqs.send(url, "delayed", DelaySeconds=900)
    assert sqs.counts(url) == (1, 1, 1)
    sqs.purge_queue(QueueUrl=url)
    assert sqs.counts(url) == (0, 0, 0)
    assert sqs.bodies(url) == []
    sqs.send(url, "after")
    assert sqs.bodies(url) == ["after"]


def test_a_second_purge_within_a_minute_is_refused(sqs):
    name = fresh()
    url = sqs.queue(name)
    sqs.purge_queue(QueueUrl=url)
    with pytest.raises(sqs.exceptions.PurgeQueueInProgress) as caught:
        sqs.purge_queue(QueueUrl=url)
    answer = caught.value.response
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert answer["Error"]["Message"] == f"Only one PurgeQueue operation on {name} is allowed every 60 seconds."
