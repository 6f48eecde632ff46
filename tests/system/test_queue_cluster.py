"""Queues in a cluster of processes, through boto3 and through the Python client: any node answers, whoever leads, and when a node dies the
others go on. What kills under load leave behind is test_queue_kill.py's."""

import asyncio
import json
import threading
from functools import partial
from itertools import permutations
from typing import Any
from urllib.request import urlopen

import pytest
from sqs_talk import LONGEST_POLL_S, Sqs, poll_during
from system.clusters import CALM, Cluster, Member, until
from system.librdkafka import unique
from waiting import ASK_S, NEVER_S, PATIENCE_S

from penstock.client import AsyncQueue, Queue, QueueMessage

pytestmark = pytest.mark.paired

SETTINGS = CALM | {"default.replication.factor": 3, "topic.min.insync.replicas": 2}
MIB = 1 << 20
BOTO3_TRIES = 5  # Its own default.


def url_of(*members: Member) -> str:
    return ",".join(f"http://{member.host}:{member.http_port}" for member in members)


def sqs_at(member: Member, *, tries: int = 1) -> Sqs:
    return Sqs(url_of(member), tries=tries)


def takers(cluster: Cluster, queue: str) -> int:
    """How many wait for messages of a queue, as its leaders tell it."""
    wanted = f'penstock_queue_waiting{{queue="{queue}"}} '
    pages = [urlopen(f"{url_of(member)}/metrics", timeout=PATIENCE_S).read().decode() for member in cluster.alive()]
    return sum(int(float(line.removeprefix(wanted))) for page in pages for line in page.splitlines() if line.startswith(wanted))


class Placed:
    """An SQS queue, the node that leads it, and the two that do not."""

    def __init__(self, cluster: Cluster, *, is_fifo: bool = False, **attributes: Any) -> None:
        maker = sqs_at(cluster.members[0])
        self.name = unique("jobs") + (".fifo" if is_fifo else "")
        kind = {"FifoQueue": True} if is_fifo else {}
        maker.queue(self.name, VisibilityTimeout=int(NEVER_S), **attributes, **kind)
        cluster.wait_until_full(self.name)
        self.leader = cluster.leader_of(self.name)
        self.follower, self.other = (member for member in cluster.members if member is not self.leader)

    def at(self, member: Member, *, tries: int = 1) -> tuple[Sqs, str]:
        """A client of that node, and the queue as that node calls it."""
        client = sqs_at(member, tries=tries)
        return client, client.get_queue_url(QueueName=self.name)["QueueUrl"]


def test_a_message_is_sent_at_one_node_received_at_another_and_deleted_at_a_third(cluster: Cluster) -> None:
    queue = Placed(cluster)
    for members in permutations(cluster.members):
        (sender, to), (receiver, of), (deleter, where) = (queue.at(member) for member in members)
        sent = sender.send(to, "hello", MessageAttributes={"a": {"DataType": "String", "StringValue": "b"}})
        (message,) = receiver.first(of, MessageAttributeNames=["All"])
        assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "hello")
        assert message["MessageAttributes"]["a"]["StringValue"] == "b"
        assert sender.counts(to) == (0, 1, 0)
        deleter.delete(where, message)
        assert sender.counts(to) == (0, 0, 0)


def test_a_fifo_queue_is_one_for_all_nodes(cluster: Cluster) -> None:
    queue = Placed(cluster, is_fifo=True, ContentBasedDeduplication=True)
    doors = [queue.at(member) for member in cluster.members]
    numbers = []
    for number in range(6):
        client, url = doors[number % 3]
        numbers.append(int(client.send(url, f"{number}", MessageGroupId="g")["SequenceNumber"]))
    assert numbers == sorted(numbers), "one order, whichever node was asked"
    (client, url), (second, its_url), (third, their_url) = doors
    again = second.send(its_url, "0", MessageGroupId="g")
    assert int(again["SequenceNumber"]) == numbers[0], "another node knows what was sent before"
    (first,) = client.first(url, 1)
    assert first["Body"] == "0"
    assert second.receive(its_url) == [], "the group is locked at every node"
    client.send(url, "beside it", MessageGroupId="h")
    assert third.first_bodies(their_url) == ["beside it"]
    second.delete(its_url, first)
    assert third.first_bodies(their_url) == ["1", "2", "3", "4", "5"]


def test_a_message_that_fails_at_several_nodes_is_a_dead_letter_of_all_of_them(cluster: Cluster) -> None:
    dead = Placed(cluster)
    arn = sqs_at(dead.leader).arn(dead.at(dead.leader)[1])
    policy = {"deadLetterTargetArn": arn, "maxReceiveCount": 2}
    queue = Placed(cluster, RedrivePolicy=json.dumps(policy))
    client, url = queue.at(queue.follower)
    sent = client.send(url, "hopeless")
    for member in (queue.follower, queue.other):
        taker, its_url = queue.at(member)
        (message,) = taker.first(its_url)
        taker.change(its_url, message, 0)
    assert client.receive(url) == []
    reader, letters = dead.at(dead.follower)
    (letter,) = reader.first(letters, MessageSystemAttributeNames=["All"])
    assert (letter["MessageId"], letter["Body"]) == (sent["MessageId"], "hopeless")
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == client.arn(url)


def test_a_long_poll_at_a_follower_is_answered_by_a_send_at_another(cluster: Cluster) -> None:
    def poll_once() -> list[str]:
        queue = Placed(cluster)
        waiter, url = queue.at(queue.follower)
        sender, its_url = queue.at(queue.other)
        poll = partial(waiter.bodies, url, wait=LONGEST_POLL_S)
        return poll_during(poll, lambda: takers(cluster, queue.name), lambda: sender.send(its_url, "at last"))

    assert until(poll_once, "a long poll brings something") == ["at last"]


def test_the_largest_messages_and_batches_cross_from_node_to_node(cluster: Cluster) -> None:
    queue = Placed(cluster)
    (client, url), (other, its_url) = queue.at(queue.follower), queue.at(queue.other)
    whole = "x" * MIB
    client.send(url, whole)
    assert other.first_bodies(its_url, 1) == [whole]
    tenth = MIB // 10
    entries = [{"Id": str(number), "MessageBody": str(number) * tenth} for number in range(10)]
    assert len(client.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10
    came: list[str] = []
    until(lambda: bool(came.extend(other.bodies(its_url, 10, 1)) or len(came) == 10), "the batch comes")
    assert sorted(came) == [str(number) * tenth for number in range(10)]
    with Queue(queue.name, url=url_of(queue.follower), heartbeat=False) as jobs:  # This door has batches of more than SQS's one MiB.
        bodies = [letter.encode() * MIB for letter in "abcdefghijkl"]
        jobs.send_many(bodies)
        with Queue(queue.name, url=url_of(queue.other), heartbeat=False) as taking:
            found: list[QueueMessage] = []
            until(lambda: bool(found.extend(taking.receive(1_000, wait=ASK_S)) or len(found) == len(bodies)), "they come")
            assert sorted(message.body for message in found) == bodies
            taking.ack_many(found)


def test_a_long_poll_outlives_the_leader(cluster: Cluster) -> None:
    """The node that was asked cannot know what the dead one has lent, and says so; boto3 asks again by itself."""

    def poll_once() -> list[str]:
        queue = Placed(cluster.bring_back())
        waiter, url = queue.at(queue.follower, tries=BOTO3_TRIES)
        sender, its_url = queue.at(queue.other, tries=BOTO3_TRIES)
        sender.send(its_url, "held")
        (held,) = waiter.first(url)

        def happen() -> None:
            queue.leader.kill()
            until(lambda: cluster.leader_of(queue.name) is not queue.leader, "another leads")
            sender.send(its_url, "after it")

        bodies = poll_during(partial(waiter.bodies, url, wait=LONGEST_POLL_S), lambda: takers(cluster, queue.name), happen)
        if bodies:
            sender.delete(its_url, held)  # The lease was not forgotten: nobody else got it.
            assert waiter.counts(url)[:2] == (0, 1)
        return bodies

    assert until(poll_once, "a long poll brings something") == ["after it"]


def test_clients_that_know_several_nodes_go_on_when_theirs_dies(cluster: Cluster) -> None:
    victim, *others = cluster.members
    urls = url_of(victim, *others)
    name = unique("jobs")

    async def beside() -> tuple[str, ...]:
        async with AsyncQueue(name, url=urls, patience=PATIENCE_S) as queue:
            (message,) = await queue.receive(1, wait=PATIENCE_S)
            async with message:
                return message.text, str(message.attempt)

    with Queue(name, url=urls, heartbeat=False, patience=PATIENCE_S) as queue:
        queue.ensure(partitions=3, replicas=3, backoff=0)
        cluster.wait_until_full(name)
        queue.send("held")
        (held,) = queue.receive(1, lease=600)
        came: list[tuple[str, ...]] = []
        waiting = threading.Thread(target=lambda: came.append(asyncio.run(beside())))
        waiting.start()
        until(lambda: takers(cluster, name) > 0, "it waits")
        victim.kill()
        ids = [queue.send(f"{number}", key=f"{number}") for number in range(6)]
        waiting.join()
        assert len(came) == 1
        held.ack()
        rest: list[QueueMessage] = []
        until(lambda: bool(rest.extend(queue.receive(10, wait=ASK_S)) or len(rest) == 5), "they come", why=lambda: f"{queue.counts()}")
        assert sorted([came[0], *((message.text, "1") for message in rest)]) == [(f"{number}", "1") for number in range(6)]
        queue.ack_many(rest)
        counts = queue.counts()
        assert (counts.ready, counts.leased) == (0, 0) and len(set(ids)) == 6
