"""A process of group members, to be stopped in order (SIGTERM) or killed: a fork of this program, which has the libraries already.

Each member reads its topic, tells of what it has read, and commits that. What happens is told as lines of JSON: {"who", "what", …}.
The same for three libraries, so that the same claims can be made of each. Nothing here knows of any node's insides.
"""

import asyncio
import gc
import json
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from compatibility.kafka_python import subscribe
from waiting import ASK_MS, ASK_S, METADATA_AGE_MS, NEVER_MS, PATIENCE_MS
from warm import leave, serve

HEARTBEAT_MS = 100  # How soon a member hears of a rebalance.
LOCK = threading.Lock()
STOPPING = threading.Event()
INTERRUPTIBLE = threading.Event()  # Set while the main thread is in a call that a signal may end.


class Stopped(Exception):
    pass


def stop(*_: Any) -> None:
    STOPPING.set()
    if INTERRUPTIBLE.is_set():
        raise Stopped


def tell(who: int, what: str, **more: Any) -> None:
    with LOCK:
        sys.stdout.write(json.dumps({"who": who, "what": what, **more}) + "\n")
        sys.stdout.flush()


def run_confluent(who: int, options: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    fatal: list[str] = []
    config = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": options["session_ms"],
        "max.poll.interval.ms": NEVER_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": options["strategy"],
        "socket.timeout.ms": PATIENCE_MS,
        "reconnect.backoff.max.ms": 500,
        "error_cb": lambda error: fatal.append(error.str()) if error.fatal() else None,
    }
    if options["instance_ids"]:
        config["group.instance.id"] = options["instance_ids"][who]

    def told(what: str) -> Any:
        return lambda _, partitions: tell(who, what, partitions=[one.partition for one in partitions])

    consumer = Consumer(config)
    consumer.subscribe([options["topic"]], on_assign=told("assigned"), on_revoke=told("revoked"), on_lost=told("lost"))
    try:
        while not STOPPING.is_set():
            try:
                read = consumer.consume(200, ASK_S)
            except KafkaException as failure:
                tell(who, "failed", error=failure.args[0].name())
                return
            records = [one for one in read if one.error() is None]
            fatal += [one.error().str() for one in read if one.error() is not None and one.error().code() == KafkaError._FATAL]
            if fatal:
                tell(who, "failed", error=fatal[0])
                return
            if records:
                tell(who, "read", records=[[one.partition(), one.offset(), one.value().decode()] for one in records])
                try:
                    done = consumer.commit(asynchronous=False)
                    tell(who, "committed", offsets=[[one.partition, one.offset] for one in done if one.error is None])
                except KafkaException as failure:
                    tell(who, "uncommitted", error=failure.args[0].name())
    finally:
        consumer.close()


def run_kafka_python(who: int, options: dict[str, Any]) -> None:
    """One that is alone polls until something comes, and is interrupted when it shall stop. One among others polls for short times.

    A poll that ends while the library joins makes it join again later, and such a member may cause a rebalance that no other asked for.
    """
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Any) -> None:
            tell(who, "assigned", partitions=sorted(one.partition for one in assigned))

        def on_partitions_revoked(self, revoked: Any) -> None:
            tell(who, "revoked", partitions=sorted(one.partition for one in revoked))

        def on_partitions_lost(self, lost: Any) -> None:
            tell(who, "lost", partitions=sorted(one.partition for one in lost))

    assignor = CooperativeStickyAssignor if options["strategy"] == "cooperative-sticky" else RangePartitionAssignor
    more = {"group_instance_id": options["instance_ids"][who]} if options["instance_ids"] else {}
    consumer = KafkaConsumer(
        bootstrap_servers=options["bootstrap"], group_id=options["group"], enable_auto_commit=False, auto_offset_reset="earliest",
        session_timeout_ms=options["session_ms"], heartbeat_interval_ms=HEARTBEAT_MS, max_poll_interval_ms=NEVER_MS,
        partition_assignment_strategy=[assignor], reconnect_backoff_max_ms=500, metadata_max_age_ms=METADATA_AGE_MS, **more,
    )  # fmt: skip
    subscribe(consumer, options["topic"], listener=Listener())
    is_alone = options["members"] == 1
    try:
        while not STOPPING.is_set():
            try:
                read = poll_interruptibly(consumer) if is_alone else consumer.poll(timeout_ms=ASK_MS, max_records=200)
            except Stopped:
                return
            except KafkaError as failure:
                tell(who, "failed", error=type(failure).__name__)
                return
            records = [[one.partition, one.offset, one.value.decode()] for batch in read.values() for one in batch]
            if records:
                tell(who, "read", records=records)
                try:
                    consumer.commit()
                    tell(who, "committed", offsets=[[where.partition, batch[-1].offset + 1] for where, batch in read.items()])
                except KafkaError as failure:
                    tell(who, "uncommitted", error=type(failure).__name__)
    finally:
        consumer.close()


def poll_interruptibly(consumer: Any) -> Any:
    INTERRUPTIBLE.set()
    try:
        if STOPPING.is_set():
            raise Stopped
        return consumer.poll(timeout_ms=PATIENCE_MS, max_records=200)
    finally:
        INTERRUPTIBLE.clear()


async def run_aiokafka(who: int, options: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Any) -> None:
            tell(who, "assigned", partitions=sorted(one.partition for one in assigned))

        async def on_partitions_revoked(self, revoked: Any) -> None:
            tell(who, "revoked", partitions=sorted(one.partition for one in revoked))

    more = {"group_instance_id": options["instance_ids"][who]} if options["instance_ids"] else {}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options["bootstrap"], group_id=options["group"], enable_auto_commit=False, auto_offset_reset="earliest",
        session_timeout_ms=options["session_ms"], heartbeat_interval_ms=HEARTBEAT_MS, max_poll_interval_ms=NEVER_MS,
        partition_assignment_strategy=(RangePartitionAssignor,), metadata_max_age_ms=METADATA_AGE_MS, **more,
    )  # fmt: skip
    consumer.subscribe([options["topic"]], listener=Listener())
    await consumer.start()
    try:
        while not STOPPING.is_set():
            try:
                read = await consumer.getmany(timeout_ms=ASK_MS, max_records=200)
            except KafkaError as failure:
                tell(who, "failed", error=type(failure).__name__)
                return
            records = [[one.partition, one.offset, one.value.decode()] for batch in read.values() for one in batch]
            if records:
                tell(who, "read", records=records)
                try:
                    await consumer.commit()
                    tell(who, "committed", offsets=[[where.partition, batch[-1].offset + 1] for where, batch in read.items()])
                except KafkaError as failure:
                    tell(who, "uncommitted", error=type(failure).__name__)
    finally:
        await consumer.stop()


async def run_all_aiokafka(options: dict[str, Any]) -> None:
    await asyncio.gather(*(run_aiokafka(who, options) for who in range(options["members"])))


def main() -> None:
    options = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, stop)
    if options["library"] == "aiokafka":
        asyncio.run(run_all_aiokafka(options))
        return
    run = {"confluent": run_confluent, "kafka-python": run_kafka_python}[options["library"]]
    if options["members"] == 1:
        run(0, options)
        return
    threads = [threading.Thread(target=run, args=(who, options)) for who in range(options["members"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    import aiokafka  # noqa: F401
    import confluent_kafka  # noqa: F401
    import kafka  # noqa: F401

    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    main()
    leave(0)
