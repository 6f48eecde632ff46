"""Read records as a member of a group: handled, then committed, so that a crash in between repeats some and loses none.

    python examples/consumer.py [127.0.0.1:9092 [SECONDS]]

Start it twice to see two members share the partitions; run it again to see that what was committed does not come back.
Ends when nothing has come for so many seconds: ten unless told otherwise, because a new group waits for more members for three.
Needs `pip install 'penstock[client]'`.
"""

import sys

from penstock.client import Consumer, Message


def main(bootstrap: str = "127.0.0.1:9092", idle_seconds: str = "10") -> None:
    with Consumer(group="billing", topics=["orders"], bootstrap=bootstrap) as consumer:
        while messages := consumer.poll(max_records=500, timeout=float(idle_seconds)):
            for message in messages:
                bill(message)
            consumer.commit()
        print(f"nothing more for now from {len(consumer.assignment())} partitions")


def bill(message: Message) -> None:
    who, what = (content.decode() if content is not None else "nobody" for content in (message.key, message.value))
    print(f"partition {message.partition}, offset {message.offset}: {who} had {what}")


if __name__ == "__main__":
    main(*sys.argv[1:])
