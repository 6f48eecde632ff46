"""A queue's attributes from the settings of its topic and back. Pure."""

import json

import pytest

from penstock.broker.queues.calls import QueueView
from penstock.http.sqs.errors import SqsError
from penstock.http.sqs.queue_attributes import NUMBERS, check_attributes
from penstock.http.sqs.queue_records import SETTING_BYTES_MAX, SQS_SETTING, SqsQueue, held, new_queue, read_queue, settings_of, tagged
from penstock.settings import TopicConfig
from penstock.vocabulary import TopicId


def seen(settings: dict[str, str], name: str = "q") -> SqsQueue:
    return read_queue(QueueView(name, TopicId(bytes(16)), 1, settings))


def shown(settings: dict[str, str]) -> dict[str, str]:
    return held(seen(settings), TopicConfig().with_overrides(settings))


def changed(settings: dict[str, str], **attributes: str) -> dict[str, str]:
    queue = seen(settings)
    wanted = settings_of(check_attributes(attributes, is_fifo=queue.is_fifo), queue)
    merged: dict[str, str | None] = {**settings, **wanted}
    return {name: value for name, value in merged.items() if value is not None}


def test_settings_of_a_new_queue_are_settings_of_topics():
    for attributes in ({}, {"FifoQueue": "true"}):
        config = TopicConfig().with_overrides(new_queue("q", attributes, {"tag": "ü"}, 5))
        assert config.queue_backoff_min_ms == 0, "AWS knows no backoff"


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_holds_as_it_was_set(name: str):
    for value in (NUMBERS[name].low, NUMBERS[name].high):
        assert shown(changed(new_queue("q", {}, {}, 5), **{name: str(value)}))[name] == str(value)


def test_a_queue_of_this_door_has_awss_defaults():
    found = shown(new_queue("q", {}, {}, 5))
    assert {name: found.get(name) for name in NUMBERS} == {
        name: None if name.startswith("Kms") else str(numbers.default) for name, numbers in NUMBERS.items()
    }


def test_a_queue_of_another_door_has_what_its_settings_say():
    queue = seen({"queue.enabled": "true"})
    assert not queue.tags and not queue.is_fifo and queue.redrive is None
    found = shown({"queue.enabled": "true"})
    assert found["MessageRetentionPeriod"] == "1209600", "for ever, as far as AWS can say it"
    assert found["MaximumMessageSize"] == str(1_048_588 - 61 - 32)
    assert (found["VisibilityTimeout"], found["DelaySeconds"], found["ReceiveMessageWaitTimeSeconds"]) == ("30", "0", "0")
    found = shown({"queue.lease.ms": "90000", "queue.delay.ms": "5000", "queue.ttl.ms": "2592000000", "max.message.bytes": "5000"})
    assert [found[name] for name in ("VisibilityTimeout", "DelaySeconds", "MessageRetentionPeriod")] == ["90", "5", "2592000"]
    assert found["MaximumMessageSize"] == str(5_000 - 61 - 32)
    assert shown({"max.message.bytes": "99000000"})["MaximumMessageSize"] == str(1 << 20)
    assert shown({"queue.ttl.ms": "1"})["MessageRetentionPeriod"] == "1"
    assert held(queue, TopicConfig(queue_ttl_ms=60_000))["MessageRetentionPeriod"] == "60", "a default of the nodes"


def test_a_redrive_policy_of_another_door_is_told_in_aws_words():
    settings = {"queue.dead.letter": "dead", "queue.deliveries.max": "3"}
    text = seen(settings).attributes["RedrivePolicy"]
    assert json.loads(text) == {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead", "maxReceiveCount": 3}
    assert "RedrivePolicy" not in seen({"queue.deliveries.max": "3"}).attributes


def test_a_policy_that_was_changed_behind_this_door_is_told_as_it_holds():
    given = '{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:123456789012:dead","maxReceiveCount":"3"}'
    settings = changed(new_queue("q", {}, {}, 5), RedrivePolicy=given)
    assert seen(settings).attributes["RedrivePolicy"] == given
    assert json.loads(seen(settings | {"queue.deliveries.max": "4"}).attributes["RedrivePolicy"])["maxReceiveCount"] == 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "{",
        '{"attributes":7,"tags":[],"created":"x"}',
        '{"attributes":{"MaximumMessageSize":"many","FifoQueue":"true"}}',
        "[" * 9999,
    ],
)
def test_a_setting_that_makes_no_sense_is_passed_over(text: str):
    queue = seen({SQS_SETTING: text})
    assert (queue.size_max, queue.is_fifo, dict(queue.tags), queue.created_s) == (1 << 20, False, {}, 0)


def test_all_that_only_this_door_knows_has_one_bound():
    queue = seen({})
    tags = {f"{number:03d}" + "😀" * 125: "😀" * 256 for number in range(50)}
    with pytest.raises(SqsError, match=str(SETTING_BYTES_MAX)):
        tagged(queue, tags)
