"""What a stage has committed is there for the next one before that begins."""

from concurrent.futures import ThreadPoolExecutor

from pipeline_topics import Topics
from waiting import EXPIRES_S, PATIENCE_S

from penstock.pipeline.topics import wait_until_stable
from penstock.testing import Broker


def test_what_is_committed_is_waited_for_and_what_stays_open_not_for_ever(node: Broker, topics: Topics) -> None:
    topic, other = topics.create(partitions=2), topics.create()
    topics.write_values(topic, 3)
    assert wait_until_stable([topic, other], node.bootstrap)
    producer = topics.write_in_transaction(topic, [(b"k", b"v")], partition=1, ends="open")
    assert wait_until_stable([other], node.bootstrap)
    assert not wait_until_stable([topic, other], node.bootstrap, seconds=EXPIRES_S)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait_until_stable, [topic], node.bootstrap)
        producer.commit_transaction(PATIENCE_S)
        assert waiting.result(PATIENCE_S)
    assert topics.ends(topic) == topics.ends(topic, is_committed_only=False)
