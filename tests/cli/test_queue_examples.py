"""The programs of examples/queues and the programs in the guides do what they say, one after the other on one node.

They stand in the order in which somebody reads them. Work that goes on for ever ends when nothing is left to do.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from cli.running import clean_environment, succeed
from system import harness

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "queues"


@pytest.fixture(scope="module")
def url(node: harness.Node) -> str:
    return f"http://127.0.0.1:{node.http_port}"


def run(*command: str, environment: Mapping[str, str] | None = None) -> list[str]:
    """Runs a program of Python and returns the lines that it printed."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=clean_environment(environment), check=False)
    assert (done.returncode, done.stderr) == (0, ""), f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout.splitlines()


def example(name: str, url: str) -> list[str]:
    return run(str(EXAMPLES / name), url)


def blocks(page: str, heading: str, language: str) -> list[str]:
    """Of one section of a page."""
    section = (ROOT / page).read_text().split(heading, 1)[1]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def test_the_readme_shows_a_queue_at_work(url: str):
    (shown,) = [text for text in blocks("README.md", "or as work queues:", "python") if "Queue(" in text][:1]
    run("-c", re.sub(r"(\.work\(.*)\)  # Done", r"\1, idle=0.1)  # Done", shown), environment={"PENSTOCK_URL": url})


@pytest.fixture(scope="module")
def told_by_commands(url: str) -> list[str]:
    """What the commands of the guide print, which make the queue of its worker."""
    commands = [line for line in blocks("docs/guide/queues.md", "## Five minutes", "")[0].splitlines() if " queues " in line]
    return [succeed(*shlex.split(command)[1:], environment={"PENSTOCK_URL": url}) for command in commands]


def test_the_commands_of_the_guide_succeed(told_by_commands: list[str]):
    assert len(told_by_commands) == 4
    assert told_by_commands[-1] == "hello\n"


@pytest.mark.usefixtures("told_by_commands")
def test_the_guide_shows_a_worker(url: str):
    (shown, *_) = blocks("docs/guide/queues.md", "## Five minutes", "python")
    run("-c", shown.replace("emails.work(deliver)", "emails.work(deliver, idle=0.1)"), environment={"PENSTOCK_URL": url})


def test_a_worker_tries_again_and_buries_what_never_works(url: str):
    told = example("worker.py", url)
    assert "to ann@example.org: your order is on its way" in told
    assert told.index("attempt 1 failed: the mail server is busy") < told.index("to busy@example.org: your order is on its way")
    assert [line for line in told if "is no address" in line and line.startswith("attempt")] == [
        f"attempt {number} failed: 'nowhere' is no address" for number in (1, 2, 3)
    ]
    assert told[-1] == "dead: nowhere after 3 attempts: ValueError: 'nowhere' is no address"


def test_reminders_come_when_they_are_due_unless_they_are_taken_back(url: str):
    told = example("reminders.py", url)
    assert told[0].startswith("waiting: 1, for the passport until 203")
    assert told[1:] == ["now: water the plants", "now: book the train"]


def test_urgent_tickets_come_first(url: str):
    assert example("priorities.py", url) == [
        "9: the site is down",
        "9: the site is still down",
        "4: please change my name",
        "4: where is my parcel?",
        "1: the newsletter looks odd",
    ]


def test_each_customers_steps_come_in_order(url: str):
    assert example("fifo.py", url) == [
        "a second payment is the first one: True",
        *[f"{customer}: ordered, paid, sent" for customer in ("ann", "bob", "cy")],
    ]


def test_the_guide_to_the_sqs_api_shows_boto3(url: str):
    (shown, *_) = blocks("docs/guide/sqs.md", "# The SQS API", "python")
    run("-c", shown.replace("http://127.0.0.1:8080", url))


@pytest.mark.parametrize("name", ["worker.py", "reminders.py", "priorities.py", "fifo.py"])
def test_an_example_that_fails_says_what_and_no_more(name: str):
    command = [sys.executable, str(EXAMPLES / name), "ftp://x"]
    ended = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("url='ftp://x': 'ftp://x' is no address such as http://127.0.0.1:8080\n  give the HTTP port")


@pytest.mark.needs("pycurl")
def test_celery_writes_the_bills(url: str):
    environment = clean_environment({"PENSTOCK_URL": url})
    command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--pool", "solo", "--without-gossip", "--without-mingle"]
    worker = subprocess.Popen(command, cwd=EXAMPLES, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert worker.stdout is not None
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
        worker.kill()
        worker.communicate()
