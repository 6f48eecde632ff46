"""librdkafka's consumer as a source of messages: joined or assigned, asked for what has come, told what to commit.

Errors come out of it as ours. Those that it rides out by itself (a broker that is away for a while) are noted in the log and otherwise
passed over. An error that came behind records is raised by the next call: the records were read, and must be handed out first.
Not here: what was handed out and what may be committed (consumer.py, progress.py).
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.client.failures import ClientError, CommitFailed, F, ReadFailed, error_in, failed
from penstock.client.library import confluent_kafka, log
from penstock.client.options import Start
from penstock.client.progress import Place
from penstock.client.records import Message

SLICE_SECONDS = 0.2  # A wait is cut into these, so that Ctrl-C and hurry() are heard.
ASKING_SECONDS = 10.0  # For answers that a caller waits for: committed offsets, the ends of a partition.
RETRY_SECONDS = 0.01

KafkaError, TopicPartition = confluent_kafka.KafkaError, confluent_kafka.TopicPartition

Told = Callable[[list[Place]], None]

# Told by the library although it goes on by itself.
PASSING = frozenset({
    KafkaError._ALL_BROKERS_DOWN, KafkaError._MAX_POLL_EXCEEDED, KafkaError._PARTITION_EOF, KafkaError._TIMED_OUT, KafkaError._TRANSPORT,
})  # fmt: skip


class Source:
    def __init__(self, settings: dict[str, Any], on_assigned: Told, on_revoked: Told) -> None:
        self._library = confluent_kafka.Consumer({**settings, "error_cb": self._heard_trouble})
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._failure: ClientError | None = None  # Came behind records.
        self._trouble = ""
        self._is_hurried = False

    def join(self, topics: list[str]) -> None:
        """Becomes a member of the group; partitions come and go during fetch() from then on."""

        def assigned(_: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
            self._on_assigned(_places(partitions))

        def revoked(_: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
            self._on_revoked(_places(partitions))

        with self._translated(ReadFailed, "cannot subscribe"):
            self._library.subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=revoked)

    def take_all(self, topics: list[str], start: Start) -> None:
        """Reads every partition that these topics have now, as a member of nothing."""
        places = [(topic, number) for topic in topics for number in self._partitions_of(topic)]
        self.read_from(dict.fromkeys(places), start)
        self._on_assigned(places)

    def read_from(self, offsets: Mapping[Place, int | None], start: Start) -> None:
        """As a member of nothing: these partitions from now on, each from its offset, or from the start where there is none."""
        end = confluent_kafka.OFFSET_END if start == "latest" else confluent_kafka.OFFSET_BEGINNING
        with self._translated(ReadFailed, "the partitions cannot be read"):
            self._library.assign(_with_offsets({place: end if offset is None else offset for place, offset in offsets.items()}))

    def fetch(self, count_max: int, timeout: float) -> Iterator[list[Message]]:
        """What has come, as soon as something has; nothing when time is up.

        In pieces: each must be taken over before the next is asked for, because asking may revoke partitions that it is from.
        """
        self._raise_what_came_behind()
        deadline, has_any = time.monotonic() + timeout, False
        with self._translated(ReadFailed, "records cannot be read"):
            piece = self._sorted(self._library.consume(count_max, 0))
            while not piece and self._failure is None and not self._is_hurried and (left := deadline - time.monotonic()) > 0:
                first = self._library.poll(min(left, SLICE_SECONDS))
                piece = [] if first is None else self._sorted([first])
                if piece and count_max > 1:
                    yield piece
                    has_any = True
                    piece = self._sorted(self._library.consume(count_max - 1, 0))
                    break
        yield piece
        if not has_any and not piece:
            self._raise_what_came_behind()

    def serve(self) -> list[Message]:
        """Lets the library do what it has to, rebalances above all. It cannot be asked for that alone: it may hand out one record more."""
        with self._translated(ReadFailed, "records cannot be read"):
            raw = self._library.poll(0)
        return [] if raw is None else self._sorted([raw])

    def store(self, offsets: Mapping[Place, int]) -> None:
        """For the library to commit in its own time."""
        self._library.store_offsets(offsets=_with_offsets(offsets))

    def commit(self, offsets: Mapping[Place, int], what: str) -> None:
        with self._translated(CommitFailed, what):
            answered = self._library.commit(offsets=_with_offsets(offsets), asynchronous=False)
        for each in answered:
            if each.error is not None:
                raise failed(CommitFailed, f"{what} in {each.topic}-{each.partition}", each.error)

    def seek(self, place: Place, offset: int) -> None:
        """Tried for a while: a partition that was assigned a moment ago is not being fetched yet."""
        deadline = time.monotonic() + ASKING_SECONDS
        while True:
            try:
                self._library.seek(TopicPartition(*place, offset))
                return
            except confluent_kafka.KafkaException as failure:
                error = error_in(failure)
                if error.code() != KafkaError._STATE or time.monotonic() > deadline:
                    raise failed(ReadFailed, f"cannot seek in {_name(place)}", error) from None
            time.sleep(RETRY_SECONDS)

    def ends(self, place: Place) -> tuple[int, int]:
        """The first offset, and the one after the last."""
        with self._translated(ReadFailed, f"the ends of {_name(place)} cannot be had"):
            return self._library.get_watermark_offsets(TopicPartition(*place), timeout=ASKING_SECONDS)

    def committed(self, place: Place) -> int | None:
        with self._translated(ReadFailed, f"the committed offset of {_name(place)} cannot be had"):
            (found,) = self._library.committed([TopicPartition(*place)], timeout=ASKING_SECONDS)
        return found.offset if found.offset >= 0 else None

    def membership(self) -> object:
        """Who this consumer is in its group now, for a producer that commits its offsets."""
        with self._translated(ReadFailed, "the group says nothing of this consumer"):
            return self._library.consumer_group_metadata()

    def hurry(self) -> None:
        """From any thread: no wait in fetch() lasts longer than a moment from now on."""
        self._is_hurried = True

    def close(self) -> None:
        self._library.close()

    def _partitions_of(self, topic: str) -> list[int]:
        with self._translated(ReadFailed, f"topic {topic!r} cannot be looked up"):
            found = self._library.list_topics(topic, timeout=ASKING_SECONDS).topics[topic]
        if found.error is not None:
            raise failed(ReadFailed, f"topic {topic!r} cannot be read", found.error)
        return sorted(found.partitions)

    def _sorted(self, batch: list[confluent_kafka.Message]) -> list[Message]:
        """The records of a batch. An error among them is kept until the records before it were handed out."""
        messages = []
        for each in batch:
            error = each.error()
            if error is None:
                messages.append(_message(each))
            elif error.code() in PASSING:
                log.warning("librdkafka goes on after: %s", error.str())
            elif self._failure is None:
                self._failure = failed(ReadFailed, "records cannot be read", error, self._trouble)
        return messages

    def _raise_what_came_behind(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    @contextmanager
    def _translated(self, kind: type[F], what: str) -> Iterator[None]:
        try:
            yield
        except confluent_kafka.KafkaException as failure:
            raise failed(kind, what, error_in(failure), self._trouble) from None

    def _heard_trouble(self, error: confluent_kafka.KafkaError) -> None:
        self._trouble = error.str()
        log.debug("librdkafka: %s", error)


def _message(raw: Any) -> Message:
    """`Any`, because the library's types allow for None everywhere; a record that was read has it all."""
    kind, timestamp = raw.timestamp()
    when = None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp
    return Message(raw.topic(), raw.partition(), raw.offset(), raw.key(), raw.value(), tuple(raw.headers() or ()), when)


def _places(partitions: list[confluent_kafka.TopicPartition]) -> list[Place]:
    return [(each.topic, each.partition) for each in partitions]


def _with_offsets(offsets: Mapping[Place, int]) -> list[confluent_kafka.TopicPartition]:
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
