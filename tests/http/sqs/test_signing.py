"""Signatures of version 4: what botocore signs is taken, and nothing else. Pure: no node, and time is told."""

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from penstock.http.sqs.errors import SqsError
from penstock.http.sqs.signing import Keys

pytestmark = pytest.mark.invariant("http.sqs-requests-exact")

BODY = b'{"QueueName":"q"}'
KEYS = Keys({"AKID": "correct horse", "OTHER": "battery staple"})


def signed(*, secret: str = "correct horse", key_id: str = "AKID", url: str = "http://node:8080/", **more: str):
    """What boto3 would send, as the door sees it: path, query, headers, body, and when."""
    headers = {"Host": "node:8080", "X-Amz-Target": "AmazonSQS.GetQueueUrl", "Content-Type": "application/x-amz-json-1.0", **more}
    request = AWSRequest("POST", url, headers=headers, data=BODY)
    SigV4Auth(Credentials(key_id, secret), "sqs", "eu-west-1").add_auth(request)
    sent = {name.lower(): value for name, value in request.headers.items()}
    path, _, query = url.removeprefix("http://node:8080").partition("?")
    moment = datetime.strptime(sent["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return {"path": path, "query": query, "headers": sent, "body": BODY, "wall_ms": int(moment.timestamp() * 1000)}


def refusal(request: dict[str, Any]) -> str:
    with pytest.raises(SqsError) as caught:
        KEYS.verify(**request)
    return caught.value.kind.shape


@pytest.mark.parametrize("url", ["", "000000000000/q", "a%20b/c~d", "queue/q?b=2&a=1&a=0&empty="])
def test_what_botocore_signs_is_taken(url: str):
    assert KEYS.verify(**signed(url=f"http://node:8080/{url}")) == "AKID"


def test_the_query_mode_may_be_signed_and_a_second_key_is_another_client():
    request = signed(key_id="OTHER", secret="battery staple", **{"x-amzn-query-mode": "true", "X-Spaced": "a   b "})
    assert "x-amzn-query-mode" in request["headers"]["authorization"]
    assert KEYS.verify(**request) == "OTHER"


def test_a_wrong_secret_is_refused():
    assert refusal(signed(secret="wrong")) == "InvalidSignatureException"


def test_an_unknown_key_is_refused():
    assert refusal(signed(key_id="STRANGER")) == "UnrecognizedClientException"


@pytest.mark.parametrize(
    "change",
    [
        {"body": BODY + b" "},
        {"path": "/other"},
        {"query": "a=1"},
        {"headers": {"x-amz-target": "AmazonSQS.DeleteQueue"}},
        {"headers": {"host": "other:8080"}},
    ],
)
def test_what_was_changed_on_the_way_is_refused(change: dict[str, Any]):
    request = signed()
    request |= change | {"headers": request["headers"] | change.get("headers", {})}
    assert refusal(request) == "InvalidSignatureException"


@pytest.mark.parametrize("seconds", [-301, 301, 86_400 * 365])
def test_an_old_request_is_refused_and_one_from_the_future_too(seconds: int):
    request = signed()
    assert KEYS.verify(**(request | {"wall_ms": request["wall_ms"] + 299_000}))
    assert refusal(request | {"wall_ms": request["wall_ms"] + seconds * 1000}) == "InvalidSignatureException"


def test_the_target_must_be_signed():
    request = signed()
    headers = dict(request["headers"])
    headers["authorization"] = headers["authorization"].replace(";x-amz-target", "")
    assert refusal(request | {"headers": headers}) == "AccessDeniedException"


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (None, "MissingAuthenticationTokenException"),
        ("", "IncompleteSignatureException"),
        ("Basic Zm9v", "IncompleteSignatureException"),
        ("AWS4-HMAC-SHA256 Credential=AKID, SignedHeaders=host, Signature=0", "IncompleteSignatureException"),
        ("AWS4-HMAC-SHA256 Credential=AKID/1/2/3/aws4_request, SignedHeaders=host;x-amz-target", "IncompleteSignatureException"),
    ],
)
def test_what_is_no_signature_is_refused(text: str | None, shape: str):
    request = signed()
    headers = {name: value for name, value in request["headers"].items() if name != "authorization"}
    assert refusal(request | {"headers": headers if text is None else headers | {"authorization": text}}) == shape


@pytest.mark.parametrize("date", ["", "today", "20260101T000000Z"])
def test_the_moment_of_signing_must_be_told(date: str):
    request = signed()
    assert refusal(request | {"headers": request["headers"] | {"x-amz-date": date}}) == "IncompleteSignatureException"


def test_secrets_are_not_shown():
    assert "horse" not in repr(KEYS) and KEYS and not Keys({})
