"""boto3 and one real node for all files of this folder; tests keep apart by queues."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from botocore.exceptions import ClientError
from sqs_talk import LONGEST_POLL_S, Sqs, poll_during
from waiting import PATIENCE_S, until

from penstock.testing import Broker


@pytest.fixture(scope="session")
def sqs(penstock_broker: Broker) -> Sqs:
    return Sqs(penstock_broker.http_url)


@pytest.fixture(scope="session")
def empty(sqs: Sqs) -> str:
    """A queue for requests that are refused: nothing ever gets into it."""
    return sqs.queue()


Prepare = Callable[[], tuple[str, Callable[[], object]]]  # Returns a fresh queue, and what happens while a long poll waits for it.


def takers(sqs: Sqs, url: str) -> int:
    """How many wait for messages of a queue, as the node tells it."""
    wanted = f'penstock_queue_waiting{{queue="{url.rpartition("/")[2]}"}} '
    with urlopen(f"{sqs.url}/metrics", timeout=PATIENCE_S) as page:
        lines = page.read().decode().splitlines()
    return sum(int(float(line.removeprefix(wanted))) for line in lines if line.startswith(wanted))


@pytest.fixture(scope="session")
def polled(sqs: Sqs) -> Callable[..., None]:
    """Checks that one long poll brings these bodies, because of what happens while the node has it waiting."""

    def check(prepare: Prepare, expected: list[str], *, says_how_long: bool = True) -> None:
        wait = {"WaitTimeSeconds": LONGEST_POLL_S} if says_how_long else {}

        def poll_once() -> list[str]:
            url, happen = prepare()
            asked = {"QueueUrl": url, "MaxNumberOfMessages": 10} | wait

            def poll() -> list[str]:
                return [message["Body"] for message in sqs.receive_message(**asked).get("Messages", [])]

            return poll_during(poll, lambda: takers(sqs, url), happen)

        assert until(poll_once, "a long poll brings something") == expected

    return check


@pytest.fixture(scope="session")
def refused() -> Callable[..., tuple[str, str]]:
    """The code and the sentence with which a call is refused."""

    def ask(call: Callable[..., Any], *args: Any, **fields: Any) -> tuple[str, str]:
        with pytest.raises(ClientError) as caught:
            call(*args, **fields)
        error = caught.value.response["Error"]
        return error["Code"], error["Message"]

    return ask


@pytest.fixture(scope="session", autouse=True)
def nobody_else(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keys and settings of whoever runs the tests are not boto3's business."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS", "AWS_CONFIG_FILE"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", str(tmp_path_factory.mktemp("aws") / "config"))
        yield
