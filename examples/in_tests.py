"""Test your own code against a real broker: Penstock's pytest fixtures start one, nothing needs to be set up.

    pip install 'penstock[client]' pytest
    pytest examples/in_tests.py

`penstock_broker` is one node for the whole run, `penstock_topic` a fresh topic for each test.
"""

from pathlib import Path

from penstock.client import Consumer, Producer
from penstock.testing import Broker, broker


def place_order(bootstrap: str, topic: str, who: str, what: str) -> None:
    """The code under test."""
    with Producer(bootstrap) as producer:
        producer.send(topic=topic, key=who, value=what)


def test_an_order_can_be_read_by_the_kitchen(penstock_broker: Broker, penstock_topic: str) -> None:
    place_order(penstock_broker.bootstrap, penstock_topic, "alice", "2 coffees")
    with Consumer(group="kitchen", topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as kitchen:
        (order,) = kitchen.poll(timeout=30)
    assert (order.key, order.value) == (b"alice", b"2 coffees")


def test_one_guest_is_always_served_by_the_same_waiter(penstock_broker: Broker) -> None:
    topic = penstock_broker.create_topic(partitions=6)
    for what in ("2 coffees", "1 water", "the bill"):
        place_order(penstock_broker.bootstrap, topic, "alice", what)
    with Consumer(topics=[topic], bootstrap=penstock_broker.bootstrap) as reader:
        orders = reader.poll(timeout=30)
    assert len({order.partition for order in orders}) == 1


def test_orders_survive_a_restart_of_the_broker(tmp_path: Path) -> None:
    with broker(directory=tmp_path) as node:
        place_order(node.bootstrap, "orders", "bob", "1 tea")
    with broker(directory=tmp_path) as node, Consumer(topics=["orders"], bootstrap=node.bootstrap) as reader:
        assert [order.value for order in reader.poll(timeout=30)] == [b"1 tea"]
