"""The blocking door to brokers: options read and refused, one client for each contact, every wait with an end, forks that start afresh."""

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from waiting import EXPIRES_MS, EXPIRES_S, PATIENCE_MS

from penstock.peers.failures import PeerFailure, UnknownTopic
from penstock.pipeline.brokers import brokers, contact
from penstock.pipeline.options import WrongOption

if TYPE_CHECKING:
    from pipeline_topics import Topics

    from penstock.testing.brokers import Broker as Node


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "nowhere"}, "'nowhere' is not an address"),
        ({"bootstrap.servers": "a:1", "kafka.security.protocol": "SASL_SSL"}, "plain text only"),
        ({"bootstrap.servers": "a:1", "kafka.request.timeout.ms": "soon"}, "kafka.request.timeout.ms is 'soon', not a whole number"),
        ({"bootstrap.servers": "a:1", "kafka.request.timeout.ms": "0"}, "kafka.request.timeout.ms is 0"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(options: dict[str, str], problem: str) -> None:
    with pytest.raises(WrongOption, match=problem):
        contact(options)


def test_settings_of_kafkas_clients_are_carried_out() -> None:
    given = contact(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "31500",
            "kafka.default.api.timeout.ms": "62500",
            "kafka.metadata.max.age.ms": "3500",
            "kafka.security.protocol": "plaintext",
        }
    )
    assert (given.bootstrap, given.client_id) == ("a:1,b:2", "me")
    assert (given.request_timeout_s, given.deadline_s, given.metadata_age_max_s) == (31.5, 62.5, 3.5)


def test_the_same_contact_gives_the_same_client() -> None:
    one = brokers({"bootstrap.servers": "127.0.0.1:1"})
    assert brokers({"kafka.bootstrap.servers": "127.0.0.1:1"}) is one
    assert brokers({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.client.id": "another"}) is not one


def test_what_a_call_raises_is_raised_here(node: "Node") -> None:
    broker = brokers({"bootstrap.servers": node.bootstrap})
    with pytest.raises(UnknownTopic, match="there is no topic 'absent'"):
        broker.run(broker.client.describe("absent"))


def test_nobody_there_is_told_in_words_when_time_is_up() -> None:
    broker = brokers({"bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": str(EXPIRES_MS)})
    with pytest.raises(PeerFailure, match=f"gave up after {EXPIRES_S} s"):
        broker.run(broker.client.metadata())


def test_a_call_that_never_ends_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.pipeline.brokers.GRACE_S", EXPIRES_S)
    broker = brokers({"bootstrap.servers": "127.0.0.1:1"})
    ended: list[str] = []

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    with pytest.raises(PeerFailure, match="gave no answer within"):
        broker.run(never(), deadline_s=EXPIRES_S)
    broker.run(asyncio.sleep(0))  # The loop has turned since.
    assert ended == ["cancelled"]


def test_a_forked_process_starts_from_nothing(node: "Node", topics: "Topics") -> None:
    """The parent's thread did not come along: a child that used the parent's loop would wait for ever."""
    topic = topics.create(partitions=3)
    options = {"bootstrap.servers": node.bootstrap, "kafka.default.api.timeout.ms": str(PATIENCE_MS)}
    parents = brokers(options)
    assert len(parents.run(parents.client.describe(topic)).partitions) == 3
    child = os.fork()
    if child == 0:
        code = 1
        try:
            own = brokers(options)
            code = 0 if own is not parents and len(own.run(own.client.describe(topic)).partitions) == 3 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(parents.run(parents.client.describe(topic)).partitions) == 3, "the parent's own loop goes on"
