"""The tests' own reader: how far it reads does not depend on who writes meanwhile."""

import threading

from pipeline_topics import Topics
from waiting import until


def test_a_topic_that_grows_all_the_time_is_read_to_where_it_ended_when_reading_began(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.write_values(topic, 1_000)
    done = threading.Event()
    written: list[int] = []

    def write_on() -> None:
        with Topics(topics.bootstrap) as others:
            while not done.is_set():
                others.write(topic, [(b"later", b"later")], partition=0)
                written.append(1)

    writing = threading.Thread(target=write_on)
    writing.start()
    try:
        until(lambda: len(written) > 2, "the topic grows")
        seen = topics.read(topic)
    finally:
        done.set()
        writing.join()
    assert [record.value for record in seen[:1_000]] == [b"%d" % number for number in range(1_000)]
    assert {record.value for record in seen[1_000:]} <= {b"later"}
