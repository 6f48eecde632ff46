"""The programs of examples/queues do what they say."""

import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.running import clean_environment, succeed

from penstock.testing import Broker, broker

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "queues"
SECONDS_MAX = 60


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with broker() as running:
        yield running


def run(name: str, node: Broker) -> list[str]:
    command = [sys.executable, str(EXAMPLES / name), node.http_url]
    ended = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=SECONDS_MAX, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    return ended.stdout.splitlines()


def test_a_worker_tries_again_and_buries_what_never_works(node: Broker):
    told = run("worker.py", node)
    assert "to ann@example.org: your order is on its way" in told
    assert told.index("attempt 1 failed: the mail server is busy") < told.index("to busy@example.org: your order is on its way")
    assert [line for line in told if "is no address" in line and line.startswith("attempt")] == [
        f"attempt {number} failed: 'nowhere' is no address" for number in (1, 2, 3)
    ]
    assert told[-1] == "dead: nowhere after 3 attempts: ValueError: 'nowhere' is no address"


def test_reminders_come_when_they_are_due_unless_they_are_taken_back(node: Broker):
    told = run("reminders.py", node)
    assert told[0].startswith("3 reminders wait, the passport's until 203")
    assert told[1:] == ["now: water the plants", "now: book the train"]


def test_urgent_tickets_come_first(node: Broker):
    assert run("priorities.py", node) == [
        "9: the site is down",
        "9: the site is still down",
        "4: please change my name",
        "4: where is my parcel?",
        "1: the newsletter looks odd",
    ]


def test_each_customers_steps_come_in_order(node: Broker):
    assert run("fifo.py", node) == [
        "a second payment is the first one: True",
        *[f"{customer}: ordered, paid, sent" for customer in ("ann", "bob", "cy")],
    ]


def blocks(page: str, heading: str, language: str) -> list[str]:
    """Of one section of a page."""
    section = (ROOT / page).read_text().split(heading, 1)[1]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def run_text(program: str, environment: dict[str, str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=SECONDS_MAX, check=False
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, ""), program + ended.stderr


def test_guides_and_examples_run_one_after_the_other_on_one_node():
    """In the order in which somebody reads them. Work that goes on for ever ends when nothing is left to do."""
    with broker() as node:
        environment = clean_environment({"PENSTOCK_URL": node.http_url})
        (shown,) = [text for text in blocks("README.md", "or as work queues:", "python") if "Queue(" in text][:1]
        run_text(re.sub(r"(\.work\(.*)\)  # Done", r"\1, idle=0.1)  # Done", shown), environment)
        commands = [line for line in blocks("docs/guide/queues.md", "## Five minutes", "")[0].splitlines() if " queues " in line]
        assert len(commands) == 4
        for command in commands:
            succeed(*shlex.split(command)[1:], environment=environment)
        (first, *_) = blocks("docs/guide/queues.md", "## Five minutes", "python")
        run_text(first.replace("emails.work(deliver)", "emails.work(deliver, idle=0.1)"), environment)
        for name in ("worker.py", "reminders.py", "priorities.py", "fifo.py"):
            run(name, node)
        (snippet, *_) = blocks("docs/guide/sqs.md", "# The SQS API", "python")
        run_text(snippet.replace("http://127.0.0.1:8080", node.http_url), environment)


@pytest.mark.parametrize("name", ["worker.py", "reminders.py", "priorities.py", "fifo.py"])
def test_an_example_that_fails_says_what_and_no_more(name: str):
    command = [sys.executable, str(EXAMPLES / name), "ftp://x"]
    ended = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=SECONDS_MAX, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("url='ftp://x': 'ftp://x' is no address such as http://127.0.0.1:8080\n  give the HTTP port")


@pytest.mark.needs("pycurl")
def test_celery_writes_the_bills(node: Broker):
    environment = clean_environment({"PENSTOCK_URL": node.http_url})
    command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--pool", "solo", "--without-gossip", "--without-mingle"]
    worker = subprocess.Popen(command, cwd=EXAMPLES, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert worker.stdout is not None
    patience = threading.Timer(SECONDS_MAX, worker.kill)
    patience.start()
    try:
        sent = subprocess.run([sys.executable, "celery_app.py"], cwd=EXAMPLES, env=environment, capture_output=True, text=True, check=True)
        assert sent.stdout == "three bills are to be written\n"
        owed: set[str] = set()
        for line in worker.stdout:  # Celery makes lines of its log of what a task prints.
            owed |= set(re.findall(r"customer-\d owes \d+", line))
            if len(owed) == 3:
                break
        assert owed == {"customer-0 owes 3", "customer-1 owes 6", "customer-2 owes 9"}
    finally:
        worker.terminate()
        worker.communicate(timeout=SECONDS_MAX)
        patience.cancel()
