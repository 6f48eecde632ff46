"""A program that moves records from topic to topic, each exactly once, until it is killed: a fork of this program, with options as JSON.

It is what a user would write: the Python client's loop, ended by whatever it cannot go on from, and started again by the test.
"""

import faulthandler
import gc
import json
import signal
import socket
import sys
from pathlib import Path

from penstock.client import Consumer, Message, Outgoing, Producer, read_process_write

sys.path.append(str(Path(__file__).parents[1]))
from warm import serve

QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "socket.timeout.ms": 5_000,
    "topic.metadata.refresh.interval.ms": 1_000,
}


def main() -> None:
    options = json.loads(sys.argv[1])
    faulthandler.register(signal.SIGUSR1)  # Asked where it stands, it says so.
    name, target = options["name"], options["target"]

    def step(message: Message) -> list[Outgoing]:
        return [Outgoing(target, key=message.key, value=message.value, partition=message.partition)]

    with (
        Producer(options["bootstrap"], transactional_id=name, transaction_seconds=8, settings=QUICK) as producer,
        Consumer(
            group=options["group"], instance=name, topics=[options["source"]], bootstrap=options["bootstrap"], session_seconds=6,
            settings={**QUICK, "heartbeat.interval.ms": 300},
        ) as consumer,
    ):  # fmt: skip
        read_process_write(consumer, producer, step, max_records=options["max_records"])


if __name__ == "__main__":
    import confluent_kafka  # noqa: F401

    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    main()
