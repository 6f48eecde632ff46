"""The producer: what is sent arrives as it was sent, and what does not arrive is told."""

import subprocess
import sys
import threading
import time
from itertools import count

import pytest
from client.client_side import numbered, read_all, silent_address, values
from waiting import EXPIRES_S, NEVER_S, PATIENCE_S, until

from penstock.client import BufferFull, Closed, NotDelivered, Placed, Producer, Receipt, TimedOut
from penstock.testing import Broker

TOO_LARGE = bytes(5_000)


@pytest.fixture
def strict_topic(penstock_broker: Broker) -> str:
    """Takes nothing that is `TOO_LARGE`."""
    return penstock_broker.create_topic(max_message_bytes=1_000)


def test_a_record_arrives_with_all_that_it_was_sent_with(penstock_broker: Broker, producer: Producer):
    topic = penstock_broker.create_topic(partitions=3)
    sent_at = int(time.time() * 1000) - 60_000
    headers = [("trace", b"\x00\x01"), ("trace", "again"), ("empty", None)]
    receipt = producer.send(topic=topic, key="customer-42", value=b"2 coffees", headers=headers, partition=2, timestamp=sent_at)
    assert receipt.result(PATIENCE_S) == Placed(topic, 2, 0)
    (message,) = read_all(penstock_broker, topic, 1)
    assert (message.topic, message.partition, message.offset) == (topic, 2, 0)
    assert (message.key, message.value, message.timestamp) == (b"customer-42", b"2 coffees", sent_at)
    assert message.headers == (("trace", b"\x00\x01"), ("trace", b"again"), ("empty", None))


@pytest.mark.parametrize("timestamp", [0, -1])
def test_a_timestamp_that_would_be_taken_for_now_is_refused(penstock_topic: str, producer: Producer, timestamp: int):
    with pytest.raises(ValueError, match=f"timestamp={timestamp}: give it in milliseconds"):
        producer.send(topic=penstock_topic, value=b"v", timestamp=timestamp)


def test_text_is_sent_as_utf8_and_nothing_stays_nothing(penstock_broker: Broker, penstock_topic: str, producer: Producer):
    producer.send(topic=penstock_topic, key="ключ", value="значение", headers={"ключ": "значение"})
    producer.send(topic=penstock_topic, key=b"k", value=None)
    producer.send(topic=penstock_topic, value=b"")
    producer.flush()
    first, tombstone, empty = read_all(penstock_broker, penstock_topic, 3)
    assert (first.key, first.value) == ("ключ".encode(), "значение".encode())
    assert first.headers == (("ключ", "значение".encode()),)
    assert (tombstone.key, tombstone.value, tombstone.headers) == (b"k", None, ())
    assert (empty.key, empty.value) == (None, b"")


def test_records_of_one_partition_keep_the_order_of_sending(penstock_broker: Broker, penstock_topic: str):
    with Producer(penstock_broker.bootstrap, compression="zstd") as producer:
        receipts = [producer.send(topic=penstock_topic, value=value) for value in numbered(3_000)]
        assert [receipt.result(PATIENCE_S).offset for receipt in receipts] == list(range(3_000))
    assert values(read_all(penstock_broker, penstock_topic, 3_000)) == numbered(3_000)


@pytest.mark.parametrize(("acks", "offset"), [("all", 0), (1, 0), (0, None)])
def test_every_kind_of_acknowledgement_delivers(penstock_broker: Broker, penstock_topic: str, acks, offset):
    with Producer(penstock_broker.bootstrap, acks=acks) as producer:
        assert producer.send(topic=penstock_topic, value=b"v").result(PATIENCE_S) == Placed(penstock_topic, 0, offset)
    assert values(read_all(penstock_broker, penstock_topic, 1)) == [b"v"]


def test_a_single_record_may_be_acknowledged_otherwise_than_the_rest(penstock_broker: Broker, penstock_topic: str, producer: Producer):
    producer.send(topic=penstock_topic, value=b"first").result(PATIENCE_S)
    assert producer.send(topic=penstock_topic, value=b"second", acks=0).result(PATIENCE_S).offset is None
    producer.flush()
    assert len(read_all(penstock_broker, penstock_topic, 2)) == 2
    assert producer.send(topic=penstock_topic, value=b"third", acks=1).result(PATIENCE_S).offset == 2


def test_an_unknown_kind_of_acknowledgement_is_refused(penstock_broker: Broker, penstock_topic: str, producer: Producer):
    with pytest.raises(ValueError, match="acks must be 'all', 1 or 0, not 'none'"):
        Producer(penstock_broker.bootstrap, acks="none")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not 2"):
        producer.send(topic=penstock_topic, acks=2)  # type: ignore[arg-type]


def test_a_full_buffer_makes_send_wait_until_the_broker_has_taken_some(penstock_broker: Broker, penstock_topic: str):
    with Producer(penstock_broker.bootstrap, buffer_records=50, block_seconds=NEVER_S) as producer:
        for value in numbered(2_000):
            producer.send(topic=penstock_topic, value=value)
    assert values(read_all(penstock_broker, penstock_topic, 2_000)) == numbered(2_000)


def test_a_full_buffer_raises_at_once_when_asked_to():
    with silent_address() as address:
        producer = Producer(address, buffer_records=10, when_full="raise", block_seconds=NEVER_S)
        receipts = [producer.send(topic="t", value=b"v") for _ in range(10)]
        with pytest.raises(BufferFull, match="the buffer is full: 10 records wait for the broker"):
            producer.send(topic="t", value=b"one too many")
        with pytest.raises(TimedOut, match="10 records"):
            producer.close(EXPIRES_S)
        assert {receipt.exception(0) is None for receipt in receipts} == {False}


def test_a_full_buffer_that_stays_full_raises_in_the_end():
    with silent_address() as address:
        producer = Producer(address, buffer_bytes=4 << 10, block_seconds=EXPIRES_S)
        receipts = [producer.send(topic="t", value=bytes(2_000)) for _ in range(2)]
        with pytest.raises(BufferFull, match="wait for receipts"):
            producer.send(topic="t", value=bytes(2_000))
        with pytest.raises(TimedOut, match="2 records"):
            producer.close(EXPIRES_S)
        assert [receipt.exception(0) is None for receipt in receipts] == [False, False]


def test_a_callback_that_sends_into_a_full_buffer_does_not_wait_for_itself(penstock_broker: Broker, strict_topic: str):
    outcomes: list[object] = []

    def send_more(receipt: Receipt) -> None:
        for _ in range(3):
            try:
                outcomes.append(producer.send(topic=strict_topic, value=TOO_LARGE))
            except BufferFull as full:
                outcomes.append(full)

    producer = Producer(penstock_broker.bootstrap, buffer_records=2, acks=1, block_seconds=NEVER_S)
    producer.send(topic=strict_topic, value=TOO_LARGE).add_done_callback(send_more)
    with pytest.raises(NotDelivered):
        producer.close(PATIENCE_S)
    assert [outcome for outcome in outcomes if isinstance(outcome, BufferFull)]


def test_where_nobody_listens_the_receipt_says_so_and_what_to_do():
    with silent_address() as address:
        patient = Producer(address)
        with pytest.raises(TimedOut, match="still under way"):
            patient.send(topic="t", value=b"v").result(EXPIRES_S)
        with pytest.raises(TimedOut):
            patient.close(EXPIRES_S)
        with Producer(address, delivery_seconds=EXPIRES_S) as producer, pytest.raises(NotDelivered) as told:
            producer.send(topic="t", value=b"v").result(PATIENCE_S / 2)  # Much less than what it keeps trying for where nothing is said.
    assert told.value.code == "_MSG_TIMED_OUT"
    assert "look whether the broker is up" in told.value.advice
    assert str(told.value) == f"{told.value.problem}\n  {told.value.advice}"
    assert told.value.may_have_happened


def test_a_failure_that_nobody_asked_about_is_raised_by_flush(penstock_broker: Broker, strict_topic: str):
    producer = Producer(penstock_broker.bootstrap, acks=1)
    for _ in range(3):
        producer.send(topic=strict_topic, value=TOO_LARGE)
    with pytest.raises(NotDelivered, match="3 records were not delivered"):
        producer.flush(PATIENCE_S)
    producer.flush(PATIENCE_S)  # It is told once.
    asked = producer.send(topic=strict_topic, value=TOO_LARGE)
    assert isinstance(asked.exception(PATIENCE_S), NotDelivered)
    producer.close(PATIENCE_S)


def test_closing_gives_up_what_time_does_not_allow_and_its_receipts_say_so():
    with silent_address() as address:
        producer = Producer(address)
        receipt = producer.send(topic="t", value=b"v")
        with pytest.raises(TimedOut):
            producer.close(EXPIRES_S)
        assert receipt.done()
        with pytest.raises(NotDelivered, match="flush"):
            receipt.result(0)


def test_a_record_too_large_for_the_client_is_refused_by_send(penstock_topic: str, producer: Producer):
    with pytest.raises(NotDelivered) as told:
        producer.send(topic=penstock_topic, value=bytes(2_000_000))
    assert told.value.code == "MSG_SIZE_TOO_LARGE"
    assert not told.value.may_have_happened


def test_a_record_too_large_for_the_topic_is_refused_by_its_receipt(penstock_broker: Broker, strict_topic: str):
    with Producer(penstock_broker.bootstrap) as producer, pytest.raises(NotDelivered, match=r"max\.message\.bytes") as told:
        producer.send(topic=strict_topic, value=TOO_LARGE).result(PATIENCE_S)
    assert told.value.code == "MSG_SIZE_TOO_LARGE"
    assert not told.value.may_have_happened


def test_a_partition_that_the_topic_has_not_got_is_refused(penstock_topic: str, producer: Producer):
    producer.send(topic=penstock_topic, value=b"v").result(PATIENCE_S)
    with pytest.raises(NotDelivered, match="fewer partitions"):
        producer.send(topic=penstock_topic, value=b"v", partition=7).result(PATIENCE_S)


def test_callbacks_hear_of_every_record_and_one_that_fails_stops_nobody(penstock_topic: str, producer: Producer):
    heard: list[Placed] = []

    def fail(receipt: Receipt) -> None:
        raise RuntimeError("a callback's own trouble")

    for value in numbered(10):
        receipt = producer.send(topic=penstock_topic, value=value)
        receipt.add_done_callback(fail)
        receipt.add_done_callback(lambda done: heard.append(done.result()))
    producer.flush()
    at_once: list[Placed] = []
    receipt.add_done_callback(lambda done: at_once.append(done.result()))
    assert [placed.offset for placed in at_once] == [9], "it is settled, though another thread may still call those before"
    until(lambda: len(heard) == 10)
    assert [placed.offset for placed in heard] == list(range(10))


def test_many_threads_may_share_a_producer(penstock_broker: Broker, penstock_topic: str, producer: Producer):
    receipts: list[Receipt] = []
    numbers = count()

    def send_some() -> None:
        for _ in range(200):
            receipts.append(producer.send(topic=penstock_topic, value=b"%05d" % next(numbers)))

    threads = [threading.Thread(target=send_some) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(receipt.result(PATIENCE_S).offset or 0 for receipt in receipts) == list(range(1_600))
    assert sorted(values(read_all(penstock_broker, penstock_topic, 1_600)), key=lambda value: value or b"") == numbered(1_600)


def test_a_closed_producer_takes_nothing_more(penstock_broker: Broker, penstock_topic: str):
    producer = Producer(penstock_broker.bootstrap)
    producer.send(topic=penstock_topic, value=b"v")
    producer.close()
    producer.close()
    for acks in ("all", 0):
        with pytest.raises(Closed):
            producer.send(topic=penstock_topic, value=b"v", acks=acks)  # type: ignore[arg-type]


def test_a_producer_that_is_forgotten_delivers_before_the_interpreter_ends(penstock_broker: Broker, penstock_topic: str):
    script = (
        "import sys; from penstock.client import Producer; producer = Producer(sys.argv[1], linger_ms=500)\n"
        "for _ in range(3): producer.send(topic=sys.argv[2], value=b'v')"
    )
    subprocess.run([sys.executable, "-c", script, penstock_broker.bootstrap, penstock_topic], check=True, timeout=PATIENCE_S)
    assert values(read_all(penstock_broker, penstock_topic, 3)) == [b"v"] * 3


def test_without_the_library_the_import_says_what_to_install():
    script = "import sys; sys.modules['confluent_kafka'] = None; from penstock.client import Queue, Producer"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 1
    assert "penstock.client needs confluent-kafka\n  pip install 'penstock[client]'" in ended.stderr
