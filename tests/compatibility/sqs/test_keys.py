"""A node that knows access keys takes requests that are signed by one of them, from boto3 and from Penstock's own client, and no other."""

from collections.abc import Callable
from pathlib import Path

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config

from penstock.client import Queue
from penstock.client.queues import QueueError
from penstock.testing import Broker

pytestmark = pytest.mark.invariant("http.sqs-requests-exact")

Refused = Callable[..., tuple[str, str]]


def test_only_who_knows_the_secret_is_let_in(tmp_path: Path, refused: Refused):
    keys = tmp_path / "queue.keys"
    keys.write_text("AKID correct-horse\n")
    keys.chmod(0o600)
    with Broker({"topic.flush": "os", "sqs.keys.file": str(keys)}) as node:

        def client(key_id: str, secret: str, **options: object):
            known = {"aws_access_key_id": key_id, "aws_secret_access_key": secret}
            config = Config(retries={"total_max_attempts": 1}, **options)
            return boto3.client("sqs", endpoint_url=node.http_url, region_name="eu-west-1", config=config, **known)

        owner = client("AKID", "correct-horse")
        url = owner.create_queue(QueueName="q")["QueueUrl"]
        owner.send_message(QueueUrl=url, MessageBody="x")
        (message,) = owner.receive_message(QueueUrl=url, AttributeNames=["SenderId"])["Messages"]
        assert message["Attributes"] == {"SenderId": "AKID"}
        assert refused(client("AKID", "wrong-horse").list_queues)[0] == "SignatureDoesNotMatch"
        assert refused(client("STRANGER", "correct-horse").list_queues)[0] == "InvalidClientTokenId"
        assert refused(client("", "", signature_version=UNSIGNED).list_queues)[0] == "MissingAuthenticationToken"
        with Queue("q", url=node.http_url, access_key="AKID", secret_key="correct-horse") as ours:
            ours.send("y")
            assert ours.counts().unfinished == 2
        with Queue("q", url=node.http_url) as stranger, pytest.raises(QueueError):
            stranger.send("z")
        assert "correct-horse" not in node.said()
