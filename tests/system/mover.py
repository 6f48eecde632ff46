"""A program that moves records from topic to topic, each exactly once, until it is killed. Run as `python mover.py '<options as JSON>'`.

It is what a user would write: the Python face's loop, ended by whatever it cannot go on from, and started again by whoever looks after it.
"""

import faulthandler
import json
import signal
import sys

from penstock.client import Consumer, Message, Outgoing, Producer, read_process_write

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
    main()
