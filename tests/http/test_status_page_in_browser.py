"""The status page in a real browser, before a real node that writes, goes away and comes back.

All tests share one node and one browser, in which each opens the page anew.
"""

from collections.abc import Iterator

import pytest
from browser import Browser
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from system import harness
from waiting import PATIENCE_S

pytestmark = [pytest.mark.needs("browser"), pytest.mark.invariant("http.cross-site-refused")]

SPITE = "<img src=x onerror=\"document.title='broken into'\">"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Node]:
    with harness.Node(tmp_path_factory.mktemp("node") / "data", settings={"offsets.topic.num.partitions": 4}) as node:
        prepare(node)
        yield node


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def rows(table: str) -> str:
    """The table's cells as text, a line for each row."""
    cells = "[...row.cells].map((cell) => cell.textContent).join('|')"
    return f"[...document.querySelectorAll('#{table} tbody tr')].map((row) => {cells}).join('\\n')"


def write(node: harness.Node, count: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(count):
        producer.produce("orders", f"record {number}", partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0


def prepare(node: harness.Node) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic("orders", 2)])["orders"].result()
    write(node, 10)
    for group in ("billing", SPITE):
        consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        consumer.close()


def test_it_is_readable_in_light_and_dark_and_on_a_narrow_screen(node: harness.Node, browser: Browser) -> None:
    browser.open(f"http://127.0.0.1:{node.http_port}/")
    browser.until("document.getElementById('live').textContent === 'live'")
    grounds = set()
    for scheme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        grounds.add(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert browser.evaluate("getComputedStyle(document.body).backgroundColor !== getComputedStyle(document.body).color")
    assert len(grounds) == 2
    browser.call("Emulation.setDeviceMetricsOverride", width=360, height=700, deviceScaleFactor=1, mobile=True)
    assert browser.evaluate("document.documentElement.scrollWidth <= 360"), "tables scroll in their own box, not the page"


def test_it_shows_nodes_topics_and_lag_live_and_says_when_the_connection_is_lost(node: harness.Node, browser: Browser) -> None:
    browser.open(f"http://127.0.0.1:{node.http_port}/")
    browser.until("document.getElementById('live').textContent === 'live'")
    assert "1 (this one)|live|127.0.0.1:" in browser.evaluate(rows("nodes"))
    assert "controller 1 · term 1 · 1 voters, 1 must agree" in browser.evaluate("document.getElementById('nodes-note').textContent")
    assert browser.evaluate("document.getElementById('unwell-section').hidden"), "there is nothing to show there"
    assert "billing|Empty|0|3|" in browser.evaluate(rows("groups"))
    assert "orders|2|10|" in browser.evaluate(rows("topics"))

    browser.evaluate("[...document.querySelectorAll('#groups button')].find((each) => each.textContent === 'billing').click()")
    browser.until(f"{rows('groups')}.includes('orders – 0|||3|')")
    browser.evaluate("document.querySelector('#topics button').click()")
    browser.until(f"{rows('topics')}.includes('partition 1||5||')")

    write(node, 4)
    browser.until(f"{rows('groups')}.includes('billing|Empty|0|5|')")
    browser.until(f"{rows('topics')}.includes('orders|2|14|')")

    browser.evaluate("filter.value = 'nothing'; filter.dispatchEvent(new Event('input'))")
    assert browser.evaluate(rows("topics")) == "no topic has that in its name"

    assert browser.complaints == [], "nothing was refused by the page's own policy"
    assert browser.evaluate("document.title") == "Penstock", "a group's name is a name"
    assert SPITE in browser.evaluate(rows("groups"))

    node.stop()
    browser.until("document.getElementById('live').textContent === 'connection lost'")
    assert "Connection lost" in browser.evaluate("document.getElementById('banner').textContent")
    assert browser.evaluate("getComputedStyle(document.getElementById('banner')).display") != "none"
    assert "billing|Empty|0|5|" in browser.evaluate(rows("groups")), "what was known stays, marked as old"
    node.start()
    browser.until("document.getElementById('live').textContent === 'live'")
    assert browser.evaluate("getComputedStyle(document.getElementById('banner')).display") == "none"
