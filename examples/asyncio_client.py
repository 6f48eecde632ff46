"""Write and read in one event loop: the producer waits for room, the consumer for records, and neither holds up the other.

    penstock serve --data-dir ./data &
    python examples/asyncio_client.py [127.0.0.1:9092]

Needs `pip install 'penstock[client]'`.
"""

import asyncio
import sys

from penstock.client import AsyncConsumer, AsyncProducer

TOPIC, COUNT = "ticks", 20


async def write(bootstrap: str) -> None:
    async with AsyncProducer(bootstrap) as producer:
        for number in range(COUNT):
            receipt = await producer.send(topic=TOPIC, key="clock", value=f"tick {number}")
            placed = await receipt
            print(f"written tick {number} at offset {placed.offset}")


async def read(bootstrap: str) -> None:
    async with AsyncConsumer(group="asyncio-example", topics=[TOPIC], bootstrap=bootstrap) as consumer:
        async for message in consumer:
            print(f"read    {(message.value or b'').decode()}")
            await consumer.commit()
            if message.value == f"tick {COUNT - 1}".encode():
                return


async def main(bootstrap: str) -> None:
    async with AsyncProducer(bootstrap) as producer:
        await (await producer.send(topic=TOPIC, value="the first record makes the topic"))
    await asyncio.gather(write(bootstrap), read(bootstrap))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"))
