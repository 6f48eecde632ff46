"""boto3 and one real node for all files of this folder; tests keep apart by queues."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from sqs_talk import Sqs

from penstock.testing import Broker


@pytest.fixture(scope="session")
def sqs(penstock_broker: Broker) -> Sqs:
    return Sqs(penstock_broker.http_url)


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
